"""All programs of the comparison with XLA's partitioner, in the order of its table."""

from __future__ import annotations

from partitioning_language import LANGUAGE
from partitioning_learning import LEARNING
from partitioning_more import MORE
from partitioning_programs import PROGRAMS, Program
from partitioning_science import SCIENCE
from partitioning_statistics import STATISTICS
from partitioning_vision import VISION

__all__ = ["ALL"]

ALL: tuple[Program, ...] = (*PROGRAMS, *MORE, *LANGUAGE, *VISION, *LEARNING, *SCIENCE, *STATISTICS)
