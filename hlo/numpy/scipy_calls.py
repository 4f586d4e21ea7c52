"""Calls of SciPy's functions with traced values: which function it was, and what does the same with them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType

from shardc.hlo.numpy.recorder import SCIPY_FOLDER, is_users

__all__ = ["called_scipy", "failed_scipy", "way_out_of"]

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
        found = _public_name(frame) or found
        frame = frame.f_back
    return found


def failed_scipy(error: BaseException) -> str:
    """The name of the SciPy function, called by the user's last line, that an error comes from; empty for others."""
    found, at = "", error.__traceback__
    while at is not None:
        users = is_users(at.tb_frame.f_code.co_filename)
        found = "" if users else found or _public_name(at.tb_frame)
        at = at.tb_next
    return found


def _public_name(frame: FrameType) -> str:
    """The name of the public function of SciPy's that a frame runs; empty for others, helpers and decorators among
    them. What looks for a function's backend has the name of another one."""
    code, name = frame.f_code, frame.f_code.co_name
    public = SCIPY_FOLDER in code.co_filename and "/_lib/" not in code.co_filename and name in frame.f_globals
    return name if public and not name.startswith("_") and not name.endswith("_signature") else ""


def way_out_of(function: str) -> str:
    """What to do in place of a call of this SciPy function."""
    return _INSTEAD.get(function, _ELSE)
