"""How far apart the attention and the predictions of the runs of a comparison are."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from seq2seq_lab.analysis.distances import Distances, measure_distances
from seq2seq_lab.errors import UserError
from seq2seq_lab.reporting.runs import Group, Run
from seq2seq_lab.tasks.loaded import Loaded
from seq2seq_lab.tasks.splits import spread

EXAMPLES = 200  # of the test set, at equal distances
ABSENT = "–"
SEEDS, BASELINE = "seeds", "baseline"
DISTANCE_HEADS = (
    "attention between runs",
    "attention to baseline",
    "predictions between runs",
    "predictions to baseline",
)
DISTANCE_NOTE = (
    "Distances: in float32 under teacher forcing, on {count:,} examples. Attention: Jensen–Shannon "
    "divergence of the weights of a word in nats, between 0 and 0.693. Predictions: total variation ½ Σ |p − q|. Means over "
    "words or tokens and over all pairs of runs, ± half the 95% interval over the examples; they describe these runs "
    "only. Baseline: {baseline}."
)
DISTANCE_KEYS = (
    "attention_seed_jsd",
    "attention_baseline_jsd",
    "prediction_seed_tv",
    "prediction_baseline_tv",
)


@dataclass(frozen=True)
class LineDistances:
    """The distances of one line of a comparison.

    Attributes:
        seeds: between its runs; without values for one run.
        baseline: between its runs and those of the baseline; None for the baseline.
    """

    seeds: Distances
    baseline: Distances | None

    def texts(self) -> list[str]:
        """Return the means with their intervals, in the order of `DISTANCE_HEADS`."""
        return [ABSENT if mean is None else mean.text(".3f") for mean in self._means()]

    def values(self) -> list[object]:
        """Return the means in the order of `DISTANCE_KEYS`."""
        return ["" if mean is None else mean.value for mean in self._means()]

    def _means(self) -> Iterator[Any]:
        for kind in ("attention", "predictions"):
            yield getattr(self.seeds, kind)
            yield None if self.baseline is None else getattr(self.baseline, kind)


def line_distances(
    baselines: Mapping[Group, Group], open_run: Callable[..., Any], counted: Callable[[int, int], None]
) -> tuple[dict[Group, LineDistances], int]:
    """Return how far apart the runs of each group are, and the largest number of examples that were read.

    Args:
        baselines: the baseline of each group; all runs of both have the same test set.
        open_run: `seq2seq_lab.load`.
        counted: called with the numbers of finished and of all examples, for each test set.

    Raises:
        UserError: a run cannot be opened, or its task reads no given outputs.
    """
    found: dict[Group, LineDistances] = {}
    most = 0
    for test_set in dict.fromkeys(group.runs[0].test_set for group in baselines):
        groups = [group for group in baselines if group.runs[0].test_set == test_set]
        runs = [run for group in groups for run in group.runs]
        index = {id(run): i for i, run in enumerate(runs)}
        own = {group: [index[id(run)] for run in group.runs] for group in groups}
        pairs: dict[tuple[Group, str], Sequence[tuple[int, int]]] = {}
        for group in groups:
            pairs[group, SEEDS] = [*combinations(own[group], 2)]
            if baselines[group] is not group:
                pairs[group, BASELINE] = [*product(own[group], own[baselines[group]])]
        models = [opened(run, open_run) for run in runs]
        inputs, references = recorded_examples(runs)
        if models[0].reads_targets_only:
            inputs = [""] * len(references)
        measured = measure_distances(models, pairs, inputs, references, counted)
        most = max(most, len(inputs))
        found |= {
            group: LineDistances(measured[group, SEEDS], measured.get((group, BASELINE))) for group in groups
        }
    return found, most


def opened(run: Run, open_run: Callable[..., Any]) -> Any:
    """Return a run, opened; of an evaluation its run with the checkpoint that it scored.

    Raises:
        UserError: it cannot be opened, or its task reads no given texts.
    """
    if not run.is_evaluation:
        found = open_run(run.folder)
    elif run.record["evaluation"]["ensemble"]:
        raise UserError(f"--attention: {run.folder} is an evaluation of an ensemble. Leave it out.")
    else:
        parent = run.folder.resolve().parent
        # The recorded path may be relative to another folder, or the run may have been moved.
        own = parent.parent if parent.name == "evaluations" else run.result["run"]
        found = open_run(own, checkpoint=run.result["checkpoint"])
    if type(found).forced is Loaded.forced or found.reads == "files":
        raise UserError(
            f"--attention: {run.folder} is a run of {type(found.task).__name__}. Give runs of translation, dialogue or a "
            f"language model."
        )
    return found


def recorded_examples(runs: Sequence[Run]) -> tuple[list[str], list[str]]:
    """Return the inputs and the references of some examples of the test set that the runs share.

    Raises:
        UserError: no run has recorded its outputs.
    """
    for run in runs:
        rows = run.examples
        if rows and all(isinstance(row.get("reference"), str) for row in rows):
            chosen = [rows[i] for i in spread(EXAMPLES, len(rows))]
            return [row["input"] for row in chosen], [row["reference"] for row in chosen]
    raise UserError(
        f"--attention: {runs[0].folder} has no file of outputs with references that can be read. Score it again, with "
        f"python -m seq2seq_lab.evaluate {runs[0].folder}, and compare the evaluation."
    )
