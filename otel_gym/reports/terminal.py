"""Text that is safe to print: model output may hold escape sequences and invisible characters."""

from __future__ import annotations

from rich.table import Table


def printable(text: str, limit: int = 0) -> str:
    """Model output made safe for a terminal: control, bidi and other format characters become visible escapes."""
    shown = "".join(
        c if c.isprintable() or c == " " else c.encode("unicode_escape").decode() for c in text
    )
    return shown if not limit or len(shown) <= limit else shown[: limit - 1] + "…"


def plain_table(*, title: str | None = None) -> Table:
    """A table without a frame: what is in it can be cut by column and pasted anywhere."""
    return Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1))
