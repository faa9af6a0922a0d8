"""Text of every tone can be read on every ground, in light and in dark (WCAG 2.2, 1.4.3: a contrast of 4.5)."""

from __future__ import annotations

import re

import pytest

from otel_gym.viewer.templating import static_file

_BLOCKS = re.findall(r":root[^{]*\{([^}]*)\}", static_file("viewer.css").decode())
_COLOURS = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in _BLOCKS]


def _luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("tone", ["ink", "muted", "faint", "accent", "bad", "warn", "good"])
def test_text_stands_out_from_its_ground(scheme: int, tone: str) -> None:
    """Each tone of text has the contrast on the page, a panel, a sunk row and its own soft ground."""
    colours = _COLOURS[scheme]
    for ground in ("bg", "panel", "sunk", f"{tone}-soft"):
        if ground in colours:
            assert _contrast(colours[tone], colours[ground]) >= 4.5, (tone, ground)


def test_dark_by_choice_is_dark_by_preference() -> None:
    """The dark colours are the same whether a person or their system asks for them."""
    assert len(_COLOURS) == 3
    assert _COLOURS[1] == _COLOURS[2]
