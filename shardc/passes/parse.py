"""The text that asks for passes: ``a,b{option=1,other={x=2}},c``.

A list of names, each with options in braces. A value is a text up to the next comma or brace, or options in braces
again. White space around names and values is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from shardc.hlo.errors import InputError

__all__ = ["WHERE", "Asked", "Value", "parse_passes"]

#: Where errors say that they are.
WHERE = "--passes"
_NAME = re.compile(r"\s*([A-Za-z][\w-]*)\s*")
_TEXT = re.compile(r"\s*([^{},=]*?)\s*(?=[{},=]|\Z)")
_FIX = "write passes as a,b{option=1}, in quotes"


@dataclass(frozen=True, slots=True)
class Asked:
    """A name and the options in the braces behind it."""

    name: str
    options: Mapping[str, Value] = field(default_factory=dict)


#: What an option is given: a text, or options of its own.
Value = str | Mapping[str, "Value"]


def parse_passes(text: str) -> tuple[Asked, ...]:
    """What ``text`` asks for, in order. Raises `InputError` for text of another form.

    >>> [a.name for a in parse_passes("fuse{limit=8},schedule")]
    ['fuse', 'schedule']
    """
    return _Reader(text).passes()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def passes(self) -> tuple[Asked, ...]:
        asked = [self.asked()]
        while self.accept(","):
            asked.append(self.asked())
        if self.at < len(self.text):
            raise self.error(f"unexpected {self.text[self.at]!r}")
        return tuple(asked)

    def asked(self) -> Asked:
        name = self.name("a pass")
        return Asked(name, self.options() if self.accept("{") else {})

    def options(self) -> Mapping[str, Value]:
        """Those behind an opening brace, up to the closing one."""
        found: dict[str, Value] = {}
        while not self.accept("}"):
            if found and not self.accept(","):
                raise self.error("a comma or a closing brace is missing")
            name = self.name("an option")
            if name in found:
                raise self.error(f"option {name!r} is given twice")
            if not self.accept("="):
                raise self.error(f"option {name!r} has no value")
            found[name] = self.value()
        return found

    def value(self) -> Value:
        if self.accept("{"):
            return self.options()
        match = _TEXT.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return match.group(1)

    def name(self, what: str) -> str:
        match = _NAME.match(self.text, self.at)
        if match is None:
            raise self.error(f"the name of {what} is missing")
        self.at = match.end()
        return match.group(1)

    def accept(self, mark: str) -> bool:
        found = re.compile(r"\s*" + re.escape(mark) + r"\s*").match(self.text, self.at)
        self.at = found.end() if found is not None else self.at
        return found is not None

    def error(self, what: str) -> InputError:
        return InputError(what, where=f"{WHERE}, column {self.at + 1} of {self.text!r}", fix=_FIX)
