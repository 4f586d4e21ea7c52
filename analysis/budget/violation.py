"""What of a budget is exceeded, as data, as text, and as the annotations that GitHub shows beside lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Checked", "Violation"]

_LINE = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?::\d+)?")


@dataclass(frozen=True, slots=True)
class Violation:
    """``rule`` of the budget is broken by ``what``. ``line`` is of the source, ``reason`` says why it is there,
    ``remedy`` how to change it, and ``collective`` is a name in the per-device program. Unknown ones are empty.
    """

    rule: str
    what: str
    line: str = ""
    reason: str = ""
    remedy: str = ""
    collective: str = ""

    def as_text(self) -> str:
        """Some lines for a terminal."""
        lines = [f"{self.line or '(no line)'}: {self.what}", f"  rule: {self.rule}"]
        lines += [f"  because {self.reason}"] if self.reason else []
        return "\n".join([*lines, *([f"  remedy: {self.remedy}"] if self.remedy else [])])

    def as_github(self) -> str:
        """A workflow command of GitHub Actions, which shows the violation beside its line."""
        match = _LINE.fullmatch(self.line)
        place = {"file": match["file"], "line": match["line"]} if match else {}
        given = ",".join(f"{k}={_property(v)}" for k, v in {**place, "title": f"shardc: {self.rule}"}.items())
        more = [f"because {self.reason}"] * bool(self.reason) + [f"remedy: {self.remedy}"] * bool(self.remedy)
        return f"::error {given}::{_message(chr(10).join([self.what, *more]))}"


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome: ``totals`` of the program by name, and what exceeds its budget."""

    program: str
    totals: Mapping[str, float]
    violations: tuple[Violation, ...]

    @property
    def within(self) -> bool:
        """Whether nothing exceeds the budget."""
        return not self.violations

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data for JSON."""
        return {"version": 1, "within": self.within, **asdict(self)}

    def as_text(self) -> str:
        """What the terminal shows."""
        if self.within:
            return f"{self.program} is within its budget"
        count = len(self.violations)
        told = f"{self.program} exceeds its budget in {count} place{'s' * (count > 1)}"
        return "\n\n".join([told, *(v.as_text() for v in self.violations)])


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
