"""The number of functions between the command and one training step."""

from benchmarks.call_path import call_paths, file_of

SMALL = (
    *("dataset.validation=10", "dataset.test=10", "dataset.test_compositional=10", "task.samples=0"),
    *("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=8"),
)


def test_few_functions_are_between_the_command_and_the_backward_pass() -> None:
    paths = call_paths(SMALL)
    assert len(paths["backward"]) <= 10
    files = ["run.py", "training/trainer.py", "training/step.py"]
    assert [file_of(code) for code in paths["backward"][-3:]] == files
    assert {file_of(code) for code in paths["score"]} > {
        *files,
        "models/seq2seq.py",
        "models/attention/base.py",
    }
