"""Blocks of code that are files show the name of the file above them.

A page marks such a block by a comment in front, ``<!-- file: train.py -->``, which GitHub does not show. On the site it
becomes the block's caption.
"""

from __future__ import annotations

import re
from typing import Any

_FILE = re.compile(r"<!-- file: (?P<name>\S+) -->\n```(?P<language>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def with_captions(text: str) -> str:
    """``text`` with a captioned block in place of each marked one."""
    return _FILE.sub(r"```{code-block} \g<language>\n:caption: \g<name>\n\n\g<code>```", text)


def setup(app: Any) -> dict[str, bool]:
    """Change each page as it is read."""

    def read(_app: Any, _name: str, source: list[str]) -> None:
        source[0] = with_captions(source[0])

    app.connect("source-read", read)
    return {"parallel_read_safe": True}
