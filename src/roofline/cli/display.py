"""What commands show beside their results: progress bars and notes, on the error stream, so that a pipe gets answers only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TaskID, TextColumn, TransferSpeedColumn

from roofline.core.errors import RooflineError
from roofline.weights.hub import Progress as Report


def notes() -> Console:
    """The console for everything that isn't a result."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_error(error: RooflineError) -> None:
    """The message and the way out. Both may quote input, so they are no markup."""
    console = notes()
    console.print("[red]error:[/red]", end=" ")
    console.print(error.message, markup=False)
    if error.hint:
        console.print(f"hint: {error.hint}", markup=False)


@contextmanager
def progress_bars() -> Iterator[Report]:
    """One bar a job, gone when all is done; nothing where the error stream is no terminal."""
    console = notes()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total or None)
            bars.update(tasks[what], completed=done, total=total or None)

        yield report
