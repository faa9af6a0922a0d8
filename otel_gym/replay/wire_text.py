"""numpy array -> compact JSON text, without a Python object a number.

Arrays of small non-negative integers (routed experts) are laid out as four bytes a number, its separator
included, from a table; unused bytes are zero and leave in one pass at the end. Others go through orjson.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

_TABLE_SIZE: Final = 1000  # three digits and one separator fill four bytes
_PIECE_VALUES: Final = 1 << 18  # bounds the layout's memory to about 1.5 MiB


def _words(texts: list[str]) -> npt.NDArray[np.uint32]:
    return np.frombuffer("".join(t.ljust(4, "\0") for t in texts).encode(), dtype=np.uint32)


@cache
def _numbers(separator: str) -> npt.NDArray[np.uint32]:
    return _words([f"{number}{separator}" for number in range(_TABLE_SIZE)])


def json_text(array: npt.NDArray[Any]) -> bytes:
    """The compact JSON text of an integer or float64 array of one to three dimensions."""
    if (
        array.dtype.kind in "iu"
        and array.size >= 256
        and array.ndim <= 3
        and int(array.max()) < _TABLE_SIZE
        and int(array.min()) >= 0
    ):
        return b"".join(_table_pieces(array))
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return orjson.dumps(np.ascontiguousarray(array), option=orjson.OPT_SERIALIZE_NUMPY)


def _table_pieces(array: npt.NDArray[Any]) -> list[bytes]:
    columns = array.shape[-1]
    rows = array.reshape(-1, columns)
    group = array.shape[-2] if array.ndim > 1 else 1
    step = max(1, _PIECE_VALUES // columns)
    # A row's last number closes the row, so what follows it takes one more word.
    next_row, next_group, *end = _words([",[", "],[[", "", "]", "]]"])
    pieces = [b"[" * array.ndim]
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        layout = np.empty((len(part), columns + 1), dtype=np.uint32)
        layout[:, :-1] = _numbers(",").take(part)
        layout[:, -2] = _numbers("]").take(part[:, -1])
        layout[:, -1] = next_row
        if array.ndim == 3:
            layout[(group - 1 - start) % group :: group, -1] = next_group
        if start + step >= len(rows):
            layout[-1, -1] = end[array.ndim - 1]
        pieces.append(layout.tobytes().translate(None, b"\0"))
    return pieces
