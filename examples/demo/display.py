"""Progress of the demo: which step runs, and how long each took."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

console = Console(highlight=False)
_QUIET_S = 15.0
"""Off a terminal, a running step says a line this often."""


@contextmanager
def phase(title: str) -> Iterator[Callable[[str], None]]:
    """Show a step while it runs; yields a function that says how far it is."""
    started = last = time.monotonic()
    with console.status(title) as status:

        def tell(detail: str) -> None:
            nonlocal last
            status.update(f"{title} · {detail}")
            if not console.is_terminal and time.monotonic() - last > _QUIET_S:
                last = time.monotonic()
                console.print(f"  … {title} · {detail}", soft_wrap=True)

        if not console.is_terminal:
            console.print(f"▸ {title}", soft_wrap=True)
        try:
            yield tell
        except BaseException:
            console.print(f"[red]✗[/] {title}  ({time.monotonic() - started:.0f} s)", soft_wrap=True)
            raise
    console.print(f"[green]✓[/] {title}  ({time.monotonic() - started:.0f} s)", soft_wrap=True)
