"""What a GPU's code may call: LLVM ends the whole process on an intrinsic that a target cannot lower."""

from __future__ import annotations

import re

__all__ = ["check_externals"]

_DECLARED = re.compile(r'^declare [^@]*@"?([^"(]+)"?\(', re.MULTILINE)


def check_externals(text: str, target: str) -> None:
    """ValueError when a module's text declares what ``target`` (``nvptx`` or ``amdgpu``) does not have."""
    bad = sorted({n for n in _DECLARED.findall(text) if not n.startswith("llvm.")})
    if bad:
        raise ValueError(f"code for {target} may not call {', '.join(bad)}")
