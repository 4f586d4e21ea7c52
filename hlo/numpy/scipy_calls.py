"""Calls of SciPy's functions with traced values: which function it was, and what does the same with them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType

from shardc.hlo.numpy.recorder import SCIPY_FOLDER, is_users

__all__ = ["called_scipy", "way_out_of"]

#: What to write in place of functions that are computed in C, or that look at elements.
_INSTEAD: Mapping[str, str] = {
    "convolve": "np.convolve(x, kernel, mode) is the same along one dimension",
    "correlate": "np.correlate(x, kernel, mode) is the same along one dimension",
    "lfilter": "np.convolve(x, b)[:len(x)] is the same where a is [1]; else write the loop "
    "y[n] = b[0] * x[n] - a[1] * y[n - 1]",
}
_ELSE = (
    "SciPy functions that take any kind of array trace where SCIPY_ARRAY_API=1 is set; write others with NumPy's, or "
    "call them outside of the function"
)


def called_scipy() -> str:
    """The name of the SciPy function that the user's line is calling; empty where it calls none."""
    found = ""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        name = frame.f_code.co_name
        if SCIPY_FOLDER in frame.f_code.co_filename and not name.startswith(("_", "<")) and name != "wrapper":
            found = name
        frame = frame.f_back
    return found


def way_out_of(function: str) -> str:
    """What to do in place of a call of this SciPy function."""
    return _INSTEAD.get(function, _ELSE)
