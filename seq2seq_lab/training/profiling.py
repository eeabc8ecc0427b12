"""Where the time of an optimizer update goes: a trace of a few, and a table of its parts."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from seq2seq_lab.runtime import console

log = logging.getLogger(__name__)

# The first updates choose kernels and fill caches, until each size of batch has come they touch new memory, and the
# profiler has a start of its own.
WARM_UP_UPDATES = 40
UPDATES = 10
OPERATIONS = 12

UPDATE = "update"
PARTS = ("batch", "forward", "backward", "gradient norm", "optimizer")
FORWARD = ("choose inputs", "recurrent step", "loss")

Profile = Callable[[int], AbstractContextManager[Callable[[], None]]]
"""Called with the number of updates to come: inside, what it yields is to be called after each of them."""


@contextmanager
def no_profile(updates: int) -> Iterator[Callable[[], None]]:
    """Profile nothing."""
    yield lambda: None


def step_profile(model: nn.Module, folder: Path, device: torch.device) -> Profile:
    """Return what profiles a few updates after a warm-up.

    It writes `folder`/trace.json.gz and prints two tables: the parts of an update (those of the forward pass
    by the model's components), and the operations that take the most time.
    """
    parts = components(model)

    def show(finished: Any) -> None:
        # With CUDA every label comes twice: where it was set, and as the GPU saw it.
        events = [event for event in finished.key_averages() if event.device_type.name == "CPU"]
        updates = sum(event.count for event in events if event.key == UPDATE)
        if updates == 0:  # interrupted before the first
            return
        folder.mkdir(exist_ok=True)
        trace = folder / "trace.json.gz"
        finished.export_chrome_trace(str(trace))
        _say(events, [name for name, _ in parts], updates, device)
        log.info("Trace of %d updates: %s (open it in chrome://tracing or Perfetto)", updates, trace)

    @contextmanager
    def profiled(updates: int) -> Iterator[Callable[[], None]]:
        activities = [ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        count = min(UPDATES, max(1, updates - 1))
        # The update before those that count is the profiler's own start.
        wait = min(WARM_UP_UPDATES, updates - count) - 1
        phases = schedule(wait=wait, warmup=1, active=count, repeat=1) if wait >= 0 else None
        hooks = [hook for name, module in parts for hook in _label(module, name)]
        try:
            with profile(activities=activities, schedule=phases, on_trace_ready=show) as profiler:
                yield profiler.step
        finally:
            for hook in hooks:
                hook.remove()

    return profiled


def components(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the parts of a model that are called as modules, in place of a decoder its own parts."""
    parts = []
    for name, child in model.named_children():
        if name == "decoder":
            parts += [(f"{name}.{part}", module) for part, module in child.named_children()]
        else:
            parts.append((name, child))
    return parts


def _label(module: nn.Module, name: str) -> list[torch.utils.hooks.RemovableHandle]:
    """Have every call of a module stand in the trace under its name."""
    running: list[record_function] = []

    def enter(_module: nn.Module, _inputs: Any) -> None:
        running.append(record_function(name))
        running[-1].__enter__()  # type: ignore[no-untyped-call]

    def leave(_module: nn.Module, _inputs: Any, _output: Any) -> None:
        running.pop().__exit__(None, None, None)

    return [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]


def _say(events: Sequence[Any], components: Sequence[str], updates: int, device: torch.device) -> None:
    on_device = device.type == "cuda"

    def milliseconds(event: Any, own: bool) -> float:
        prefix = "self_" if own else ""
        kind = "device" if on_device else "cpu"
        return float(getattr(event, f"{prefix}{kind}_time_total")) / 1000 / updates

    labels = {UPDATE, *PARTS, *FORWARD, *components}
    by_name = {event.key: milliseconds(event, own=False) for event in events if event.key in labels}
    whole = by_name[UPDATE]
    rows = []
    for part in PARTS:
        rows.append((part, by_name[part], by_name[part] / whole))
        if part == "forward":
            inner = [(name, by_name[name]) for name in (*components, *FORWARD) if name in by_name]
            rows += [
                (f"  {name}", time, time / whole) for name, time in sorted(inner, key=lambda row: -row[1])
            ]
    rest = whole - sum(by_name[part] for part in PARTS)
    rows.append(("rest", rest, rest / whole))
    # The profiler's own mark of a step is no operation.
    operations = [
        event
        for event in events
        if event.key not in labels
        and not event.key.startswith("ProfilerStep")
        and milliseconds(event, own=True) > 0
    ]
    operations.sort(key=lambda event: -milliseconds(event, own=True))
    console.print_and_log(
        console.time_table(f"time of an update ({whole:.1f} ms, mean of {updates})", "part", rows)
    )
    console.print_and_log(
        console.time_table(
            "operations that take the most of it",
            "operation",
            [
                (f"{event.key} ({event.count / updates:.0f} calls)", time, time / whole)
                for event in operations[:OPERATIONS]
                for time in [milliseconds(event, own=True)]
            ],
        )
    )
