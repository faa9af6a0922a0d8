"""Text that is safe to print: model output may hold escape sequences and invisible characters."""

from __future__ import annotations


def printable(text: str, limit: int = 0) -> str:
    """Model output made safe for a terminal: control, bidi and other format characters become visible escapes."""
    shown = "".join(
        c if c.isprintable() or c == " " else c.encode("unicode_escape").decode() for c in text
    )
    return shown if not limit or len(shown) <= limit else shown[: limit - 1] + "…"
