"""Templates and what they may do with a value. Everything is escaped; what a reader could not see is made visible."""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from otel_gym.viewer.shapes import gap_line, lanes, track

HERE: Final = Path(__file__).parent
STATIC: Final = {
    "viewer.css": "text/css",
    "viewer.js": "text/javascript",
    "theme.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}

DASH: Final = "\u2013"
"""Stands for what is not known."""

_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Control, bidirectional, zero-width and tag characters: they could hide, reorder or steer what is read."""


@cache
def environment() -> Environment:
    """The one environment of the viewer."""
    found = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
        # Also where a template names no filter, nothing unseen gets onto a page.
        finalize=lambda value: (
            plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value
        ),
    )
    for function in (
        visible,
        plain,
        num,
        compact,
        ms,
        secs,
        pct,
        size,
        when,
        clock,
        pretty,
        signed,
        exact,
    ):
        found.filters[function.__name__] = function
    found.globals.update(asset=asset, track=track, gap_line=gap_line, lanes_of=lanes)
    return found


def warm_up() -> None:
    """Compile every template, which the first visitor would else wait for."""
    for name in environment().list_templates():
        environment().get_template(name)


@cache
def static_file(name: str) -> bytes:
    """A file of `STATIC`."""
    return (HERE / "static" / name).read_bytes()


def asset(name: str) -> str:
    """The address of a file of `STATIC`, another one for other content."""
    return f"/static/{name}?{hashlib.sha256(static_file(name)).hexdigest()[:10]}"


def render(template: str, **values: Any) -> str:
    """A page; what can't be written as UTF-8 is escaped."""
    return environment().get_template(template).render(**values)


def visible(value: Any) -> Markup:
    """Text for a page: escaped, and unseen characters as marked escapes."""
    text = str(escape("" if value is None else str(value)))
    return Markup(_UNSEEN.sub(lambda m: f'<span class="esc">{_escape(m[0])}</span>', text))


def exact(value: str) -> Markup:
    """What a form sends back, which must stay as it is: escaped, nothing else."""
    return escape(value)


def plain(value: Any, limit: int = 0) -> str:
    """Text for an attribute or tooltip: unseen characters as escapes, at most `limit` characters."""
    text = _UNSEEN.sub(lambda m: _escape(m[0]), "" if value is None else str(value))
    return text if not limit or len(text) <= limit else text[: limit - 1] + "…"


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def num(value: float | int | None, digits: int = 0) -> str:
    """A whole figure; a dash where it is not known."""
    return DASH if value is None else f"{value:,.{digits}f}"


def compact(value: float | int | None) -> str:
    """A figure in at most five characters."""
    if value is None:
        return DASH
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scaled = value / (1e3 if unit == "k" else limit)
            return f"{scaled:.{1 if scaled < 100 else 0}f}{unit}"
    return f"{value:,.0f}"


def ms(value: float | int | None) -> str:
    """Milliseconds as people say a time."""
    if value is None:
        return DASH
    if value < 10:
        return f"{value:.1f} ms"
    if value < 1000:
        return f"{value:.0f} ms"
    return secs(value / 1000)


def secs(value: float | int | None) -> str:
    """Seconds as people say a time."""
    if value is None:
        return DASH
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} m {seconds:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} m" if hours < 48 else f"{hours / 24:.1f} d"


def pct(value: float | None) -> str:
    """A share."""
    return DASH if value is None else f"{value * 100:.0f}%"


def signed(value: float | int | None, digits: int = 0) -> str:
    """A difference."""
    if value is None:
        return DASH
    return "\u00b10" if not round(value, digits) else f"{value:+,.{digits}f}".replace("-", "\u2212")


def size(value: int | None) -> str:
    """Bytes."""
    if value is None:
        return DASH
    amount = float(value)
    for unit in ("B", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def when(value: float | None) -> str:
    """A point in time, UTC."""
    return _moment(value, "%Y-%m-%d %H:%M:%S")


def clock(value: float | None) -> str:
    """The time of a day, UTC."""
    return _moment(value, "%H:%M:%S")


def _moment(value: float | None, form: str) -> str:
    if value is None:
        return DASH
    try:
        return datetime.datetime.fromtimestamp(value, datetime.UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        return f"{value:g}"


def pretty(value: Any) -> str:
    """JSON laid out for reading; a bare value as it is written in JSON."""
    if not isinstance(value, (Mapping, Sequence)) or isinstance(value, str):
        return value if isinstance(value, str) else json.dumps(value)
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except (TypeError, ValueError):
        return json.dumps(value, indent=2)
