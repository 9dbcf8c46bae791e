"""What a long command does, step by step: a live display with a bar on a terminal, plain lines elsewhere."""

import sys
from types import TracebackType

from rich import progress
from rich.console import Console


class Progress:
    """Shows one line per step on stderr. The bytes of a step are shown on a terminal only."""

    def __init__(self, console: Console | None = None) -> None:
        # bound to stderr as it is now: the conversion sends other libraries' bars elsewhere
        self._console = console or Console(file=sys.stderr)
        self._step: progress.TaskID | None = None
        self._live = progress.Progress(
            progress.SpinnerColumn(finished_text="✓"),
            progress.TextColumn("{task.description}", markup=False),
            progress.TextColumn("{task.fields[size]}", style="dim"),
            progress.TimeElapsedColumn(),
            console=self._console,
            redirect_stderr=False,
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> "Progress":
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._end_step()
        self._live.stop()

    def tell(self, sentence: str) -> None:
        """End the step before and begin the one that `sentence` names."""
        if not self._console.is_terminal:
            self._console.print(sentence, highlight=False, markup=False, soft_wrap=True)
            return
        self._end_step()
        self._step = self._live.add_task(sentence, total=None, size="")

    def watch(self, n_done: int, n_all: int) -> None:
        """Show the bytes of the step so far."""
        if self._step is not None:
            size = f"{n_done / 1e6:.0f} of {n_all / 1e6:.0f} MB"
            self._live.update(self._step, completed=n_done, total=n_all, size=size)

    def _end_step(self) -> None:
        if self._step is not None:
            self._live.update(self._step, completed=1, total=1)
            self._step = None
