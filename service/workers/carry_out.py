"""Carry out an order: programs in, files out. This runs in a worker's process, under its limits.

Equal orders make equal files, but for searches that end by the clock (remedies); seconds that were measured are facts
beside them. The order is data that somebody else wrote: `shardc.service.workers.workbench` says what it does
not reach. Compiling makes native code and runs none of it.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shardc.hlo.codec import plain
from shardc.hlo.errors import ShardcError
from shardc.hlo.version import VERSION
from shardc.launcher.executors.tasks import Progress
from shardc.service.orders import (
    AutoOrder,
    CompileOrder,
    ExplainOrder,
    InspectOrder,
    Order,
    PartitionOrder,
    ReportOrder,
    SimulateOrder,
    SweepOrder,
    from_json,
)
from shardc.service.workers.compile_program import compile_program, partition_program
from shardc.service.workers.explain_program import explain_program
from shardc.service.workers.find_annotations import find_annotations
from shardc.service.workers.inspect_program import inspect_program
from shardc.service.workers.package import ORDER_FILE, pack, program_file, unpack
from shardc.service.workers.pieces import PART_FILE, PIECES_FILE, OrderPart, Spent, WantedPieces
from shardc.service.workers.simulate_program import report_program, simulate_program
from shardc.service.workers.workbench import Workbench

__all__ = ["carry_out", "carry_out_task"]


#: All of an order, by one worker.
_ALL = OrderPart()


def _sweep_program(bench: Workbench, order: SweepOrder) -> dict[str, bytes] | WantedPieces:
    """Loads the compiler, which a child that waits for its first order need not have in memory."""
    from shardc.service.workers.sweep_program import sweep_program

    return sweep_program(bench, order)


_WAYS: Mapping[type[Order], Callable[[Workbench, Any], dict[str, bytes] | WantedPieces]] = MappingProxyType(
    {
        InspectOrder: inspect_program,
        PartitionOrder: partition_program,
        CompileOrder: compile_program,
        SimulateOrder: simulate_program,
        ReportOrder: report_program,
        ExplainOrder: explain_program,
        AutoOrder: find_annotations,
        SweepOrder: _sweep_program,
    }
)


def carry_out_task(payload: bytes, progress: Progress) -> bytes:
    """The task ``order``: a package of the order and its programs comes in, one of files and facts goes out."""
    files, _ = unpack(payload)
    order, part = from_json(files.pop(ORDER_FILE, b"")), plain.from_json(OrderPart, files.pop(PART_FILE, b"{}"), "part")
    programs = {name.removeprefix(program_file("")): data for name, data in files.items()}
    return pack(*carry_out(order, programs, progress, part))


def carry_out(
    order: Order, programs: Mapping[str, bytes], progress: Progress, part: OrderPart = _ALL
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files that ``order`` asks for, by name, and facts about making them: ``kind``, ``name`` (the order's),
    ``version`` of shardc, ``seconds`` by stage, ``warnings`` that were said on the way.

    ``programs`` are the uploaded bytes by digest; ``progress`` hears of stages. Raises what the local stages raise.
    Where other workers could help, there may be one file that says with what (`WantedPieces`).
    """
    with tempfile.TemporaryDirectory(prefix="shardc-order-") as folder, _record_warnings(folder) as said:
        bench = Workbench(order, programs, Path(folder), progress, part)
        try:
            made = _WAYS[type(order)](bench, order)
        except ShardcError as e:
            raise _without(folder, e) from None
    spent = Spent.together([part.spent, Spent(bench.seconds, tuple(said))])
    if isinstance(made, WantedPieces):
        return {PIECES_FILE: plain.to_json(replace(made, spent=spent)).encode()}, {}
    spent = Spent.together([spent, *(found.spent for found in part.found.values())])
    facts: dict[str, Any] = {"kind": getattr(order, "kind", ""), "name": order.name, "version": VERSION}
    return made, {**facts, "seconds": dict(spent.seconds), "warnings": list(spent.warnings)}


def _without(folder: str, error: ShardcError) -> ShardcError:
    """The error without the place of the order's folder, which is nobody's business."""

    def told(text: object) -> str | None:
        return None if text is None else str(text).replace(f"{folder}/", "")

    where = told(error.where) if folder in str(error.where) else error.where
    kind: type[ShardcError] = type(error)
    return kind(str(told(error.what)), where=where, fix=told(error.fix))


class _Listener(logging.Handler):
    """Keeps what it hears, in order, each text once."""

    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        if (text := record.getMessage()) not in self._said:
            self._said.append(text)


@contextmanager
def _record_warnings(folder: str) -> Iterator[list[str]]:
    """What shardc logs from warnings on, then what Python warns of; there when the block has ended."""
    logged: list[str] = []
    said: list[str] = []
    listener, log = _Listener(logged), logging.getLogger("shardc")
    log.addHandler(listener)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield said
    finally:
        log.removeHandler(listener)
    said += [text.replace(f"{folder}/", "") for text in (*logged, *(str(w.message) for w in warned))]
