"""A profile of a few optimizer steps: a trace, and tables of where the time is spent."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.tables import time_table

log = logging.getLogger(__name__)

# The first steps choose kernels, fill caches and allocate memory for each new batch size.
WARM_UP_STEPS = 40
STEPS = 10
OPERATIONS = 12

STEP = "step"
PARTS = ("batch", "forward", "backward", "gradient norm", "optimizer")
FORWARD = ("choose inputs", "recurrent step", "loss")

Profile = Callable[[int], AbstractContextManager[Callable[[], None]]]
"""Called with the number of remaining steps, it yields a function to call after each of them."""


@contextmanager
def no_profile(steps: int) -> Iterator[Callable[[], None]]:
    """Profile nothing."""
    yield lambda: None


def step_profile(model: nn.Module, folder: Path, device: torch.device) -> Profile:
    """Return a profile of a few steps after a warm-up.

    It writes `folder`/trace.json.gz and prints two tables: the parts of a step, with the forward pass by the model's
    components, and the operations that take the most time.
    """
    parts = components(model)

    def show(finished: Any) -> None:
        # With CUDA every label occurs twice, on the host and on the GPU.
        events = [event for event in finished.key_averages() if event.device_type.name == "CPU"]
        steps = sum(event.count for event in events if event.key == STEP)
        if steps == 0:  # interrupted before the first step
            return
        folder.mkdir(exist_ok=True)
        trace = folder / "trace.json.gz"
        finished.export_chrome_trace(str(trace))
        _print_tables(events, [name for name, _ in parts], steps, device)
        log.info("Trace of %d steps: %s (open it in chrome://tracing or Perfetto)", steps, trace)

    @contextmanager
    def profiled(steps: int) -> Iterator[Callable[[], None]]:
        activities = [ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        count = min(STEPS, max(1, steps - 1))
        # The profiler starts in the step before those that count.
        wait = min(WARM_UP_STEPS, steps - count) - 1
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
    """Return the components of a model that are called as modules.

    A decoder is not: it is replaced by its own components.
    """
    parts = []
    for name, child in model.named_children():
        if name == "decoder":
            parts += [(f"{name}.{part}", module) for part, module in child.named_children()]
        else:
            parts.append((name, child))
    return parts


def _label(module: nn.Module, name: str) -> list[torch.utils.hooks.RemovableHandle]:
    """Label every call of a module in the trace with its name."""
    running: list[record_function] = []

    def enter(_module: nn.Module, _inputs: Any) -> None:
        running.append(record_function(name))
        running[-1].__enter__()  # type: ignore[no-untyped-call]

    def leave(_module: nn.Module, _inputs: Any, _output: Any) -> None:
        running.pop().__exit__(None, None, None)

    return [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]


def _print_tables(events: Sequence[Any], components: Sequence[str], steps: int, device: torch.device) -> None:
    on_device = device.type == "cuda"

    def milliseconds(event: Any, own: bool) -> float:
        prefix = "self_" if own else ""
        kind = "device" if on_device else "cpu"
        return float(getattr(event, f"{prefix}{kind}_time_total")) / 1000 / steps

    labels = {STEP, *PARTS, *FORWARD, *components}
    by_name = {event.key: milliseconds(event, own=False) for event in events if event.key in labels}
    whole = by_name[STEP]
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
    # ProfilerStep is the profiler's own label of a step.
    operations = [
        event
        for event in events
        if event.key not in labels
        and not event.key.startswith("ProfilerStep")
        and milliseconds(event, own=True) > 0
    ]
    operations.sort(key=lambda event: -milliseconds(event, own=True))
    console.print_and_log(time_table(f"time of a step ({whole:.1f} ms, mean of {steps})", "part", rows))
    console.print_and_log(
        time_table(
            "operations that take the most time",
            "operation",
            [
                (f"{event.key} ({event.count / steps:.0f} calls)", time, time / whole)
                for event in operations[:OPERATIONS]
                for time in [milliseconds(event, own=True)]
            ],
        )
    )
