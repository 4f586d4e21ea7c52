"""Orders in pieces: how the task of an order asks several workers for help, and gets their results.

Such a task answers with `WantedPieces` in place of files. Each piece is done by itself, by the same task in whatever
worker is free; then the order's task is asked again, with all that came of them, until it answers with files, or fails.
What a piece says concerns nobody else, and neither does what is found: both are text of the task's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shardc.hlo.codec import plain
from shardc.hlo.errors import InputError, RunError

__all__ = ["PART_FILE", "PIECES_FILE", "PIECE_FILE", "OrderPart", "OrderPiece", "PieceResult", "Spent", "WantedPieces"]

#: What files are called in packages: a `OrderPart`, `WantedPieces`, and what the task makes of a piece.
PART_FILE, PIECES_FILE, PIECE_FILE = "part.json", "pieces.json", "piece.json"


@dataclass(frozen=True, slots=True)
class Spent:
    """What making something took and said: seconds by stage, and warnings."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @staticmethod
    def together(several: Iterable[Spent]) -> Spent:
        """Seconds of all, and warnings each once."""
        seconds, warnings = Counter[str](), dict[str, None]()
        for one in several:
            seconds.update(one.seconds)
            warnings.update(dict.fromkeys(one.warnings))
        return Spent(dict(seconds), tuple(warnings))


@dataclass(frozen=True, slots=True)
class OrderPiece:
    """A part of an order that one worker does by itself; it needs one ``program`` of the order's, by digest."""

    program: str
    text: str


@dataclass(frozen=True, slots=True)
class PieceResult:
    """What came of a piece: ``text``, or the ``problem`` that its worker had."""

    text: str = ""
    problem: Mapping[str, Any] | None = None
    spent: Spent = field(default_factory=Spent)


@dataclass(frozen=True, slots=True)
class WantedPieces:
    """What an order's task wants done before it goes on: ``done`` of the ``of`` in its ``stage`` are done. ``notes``
    are what it wants to be told again beside what was found, in place of programs; ``spent`` is up to now, without the
    pieces."""

    pieces: tuple[OrderPiece, ...]
    notes: str
    stage: str
    done: int
    of: int
    spent: Spent = field(default_factory=Spent)

    @staticmethod
    def read_from(files: Mapping[str, bytes]) -> WantedPieces | None:
        """Those that a task which answers with ``files`` wants; None when it is through. Raises `RunError` for what is
        damaged."""
        if PIECES_FILE not in files:
            return None
        try:
            return plain.from_json(WantedPieces, files[PIECES_FILE], "pieces")
        except InputError as e:
            raise RunError(f"a worker's message is damaged: {e.what}", where=e.where) from None


@dataclass(frozen=True, slots=True)
class OrderPart:
    """What of its order a task does: the ``piece``, or (empty) the order, with the help of ``workers`` if there are
    several. ``found`` is what came of pieces, by their text; with ``notes`` come no programs."""

    workers: int = 1
    piece: str = ""
    notes: str = ""
    found: Mapping[str, PieceResult] = field(default_factory=dict)
    spent: Spent = field(default_factory=Spent)
