"""Progress of one stage in the terminal: a line that moves, and a line that stays."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from artifacts import invocation
from flows.pipeline import StepResult


class StageProgress:
    """Shows a stage's events. Where the output is not a terminal, each progress message is a line of its own."""

    def __init__(self, stage: str, console: Console) -> None:
        self._stage = stage
        self._console = console
        self._bar = Progress(TextColumn("{task.fields[stage]:9}"), BarColumn(bar_width=24), TimeElapsedColumn(),
                             TextColumn("{task.description}", markup=False), console=console, transient=True,
                             disable=not console.is_terminal)
        self._task: TaskID | None = None
        self._last = ""

    def __enter__(self) -> StageProgress:
        self._bar.start()
        self._task = self._bar.add_task("starting", total=None, stage=self._stage)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()
        if kind is not None:
            self._console.print(f"✗ {self._stage:9} failed", markup=False)

    def on_event(self, stage: str, event: invocation.Log | invocation.Progress | invocation.Outcome) -> None:
        if isinstance(event, invocation.Progress):
            if self._task is not None:
                self._bar.update(self._task, total=event.total or None, completed=event.done, description=event.message)
            if not self._console.is_terminal and event.message != self._last:
                of = f"{event.done:g}/{event.total:g} " if event.total else ""
                self._console.print(f"  {stage}: {of}{event.message}", markup=False)
                self._last = event.message
        elif isinstance(event, invocation.Log) and event.level in ("warning", "error"):
            self._console.print(f"  {stage}: {event.level}: {event.message}", markup=False)

    def finish(self, result: StepResult) -> None:
        how = "hit " if result.hit else "done"
        self._bar.stop()
        self._console.print(f"✓ {self._stage:9} {how} {result.version:22} {result.seconds:6.1f} s  {result.reason}", markup=False)
