"""All programs of the comparison with XLA's partitioner, in the order of its table."""

from __future__ import annotations

from collections.abc import Sequence

from partitioning_language import LANGUAGE
from partitioning_learning import LEARNING
from partitioning_more import MORE
from partitioning_programs import PROGRAMS, Program
from partitioning_science import SCIENCE
from partitioning_statistics import STATISTICS
from partitioning_vision import VISION

__all__ = ["ALL", "programs_named"]

ALL: tuple[Program, ...] = (*PROGRAMS, *MORE, *LANGUAGE, *VISION, *LEARNING, *SCIENCE, *STATISTICS)


def programs_named(words: Sequence[str]) -> tuple[Program, ...]:
    """The programs whose name contains one of ``words``, all without words; ends the process where a word fits none."""
    unknown = [w for w in words if not any(w in p.name for p in ALL)]
    if unknown:
        names = ", ".join(p.name for p in ALL)
        raise SystemExit(f"no program is called {', '.join(unknown)}; the programs are {names}")
    return tuple(p for p in ALL if not words or any(w in p.name for w in words))
