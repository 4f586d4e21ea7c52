"""Collectives on memory that this process can address, as one native function for all kinds of them.

A collective of a group is a list of strips: elements that lie one after another in some sources, and go, reduced or as
they are, to one place in some destinations. ::

    void shardc_work(ptr call, ptr operands, ptr results, i64 part, i64 parts)

does the ``part``-th of ``parts`` shares of the work of one group. Strips are taken as cache lines and all lines of a
call are numbered; a share is a range of them, so any number of shares gives the same bits. ``call`` is a `WorkCall`;
``operands[k * members + p]`` is where operand k of the member at position p lies, ``results`` likewise. A result that
is null is left out, one that equals the one before it is the same memory; an operand that is null (of a permute) is
zeros. Operands and results do not overlap, but for the result of an all-reduce that is its own operand, and that of a
ragged exchange, which may be its second one. A ragged exchange's lines are those of a member's output.

========================= ====================================================================
``shardc_resolve``        ``void (ptr cells, i64 count, ptr out)``: pointers of `Cell` records
``shardc_copy``           ``void (ptr to, ptr from, i64 bytes, i64 streaming)``
``shardc_rows``           ``i64 (ptr call, ptr operands)``: the bytes of the rows that a ragged exchange moves in a
                          group, -1 where they do not fit
========================= ====================================================================

The functions are of the low-level language; copies of bytes are another object's (`shardc.native.memory.copying`).
"""

from __future__ import annotations

from collections.abc import Callable

from shardc.native.collectives.ragged import (
    RaggedRows,
    RaggedTables,
    copy_rows,
    keep_output,
    row_bytes_received,
    rows_fit,
)
from shardc.native.llvm.target import Target
from shardc.native.lowlevel.builtins import copy_memory, exported, external, fence, fill_memory, inline, local
from shardc.native.lowlevel.kinds import Pointer, address, i64
from shardc.native.lowlevel.module import compile_functions
from shardc.native.lowlevel.records import SEQ_CST, Record, Span
from shardc.native.memory.copying import COPY_BYTES, LINE, ZERO_BYTES

__all__ = [
    "COPY", "OPS", "RAGGED", "RESOLVE", "ROWS", "WORK", "WORK_SYMBOLS", "WRONG_ROWS", "Cell", "ReduceElements",
    "WorkCall", "WorkOperand", "check_rows", "copy_memory_of", "do_work", "place_of_cell", "resolve", "work_ir",
]  # fmt: skip

WORK, RESOLVE, COPY, ROWS = "shardc_work", "shardc_resolve", "shardc_copy", "shardc_rows"
WORK_SYMBOLS = (WORK, RESOLVE, COPY, ROWS)

#: Collectives by number.
OPS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all")
_ALL_REDUCE, _ALL_GATHER, _REDUCE_SCATTER, _ALL_TO_ALL, _PERMUTE, RAGGED = range(6)
#: The answer of an executor where the rows of a ragged exchange do not fit.
WRONG_ROWS = -16
#: Operands of a ragged exchange; its result is that of the output.
_DATA, _OUTPUT, _STARTS, _SIZES, _TARGETS, _RECEIVED = range(6)

#: Bytes that are read once and written to several places: less than the first-level cache holds.
_BLOCK = 8192

#: `shardc.native.collectives.reducing`: sources, how many, from which byte, targets, how many, from which byte,
#: elements, whether past the caches.
ReduceElements = Callable[[Span[address], i64, i64, Span[address], i64, i64, i64, bool], None]


class WorkOperand(Record):
    """An operand: its elements, the bytes of one, and the function that reduces them (null where nothing is)."""

    count: i64
    nbytes: i64
    reduce: ReduceElements


class WorkCall(Record):
    """A collective over groups of ``members``: ``op`` counts in `OPS`, ``table`` has a `WorkOperand` per operand.

    ``lines`` are the cache lines of a group's work, ``bytes`` what it reads and writes; ``streaming`` is 1 where
    results are written past the caches. A permute has one member: its pairs are groups of their own. ``rows`` are those
    of a ragged exchange.
    """

    op: i64
    members: i64
    operands: i64
    table: Span[WorkOperand]
    lines: i64
    bytes: i64
    streaming: i64
    rows: RaggedRows


class Cell(Record):
    """A pointer that is found when it is needed: ``offset`` bytes behind what the word at ``base`` points to.

    Null where ``base`` is.
    """

    base: address
    offset: i64


class _PointerWord(Record):
    value: address


class _Strip(Record):
    """Strip ``index`` of an operand: bytes ``low`` to ``high`` of the ``length`` that it has."""

    operand: Pointer[WorkOperand]
    sources: Span[address]
    targets: Span[address]
    members: i64
    streaming: i64
    index: i64
    length: i64
    low: i64
    high: i64


@external(COPY_BYTES)
def _copy_bytes(to: address, source: address, nbytes: i64, streaming: bool) -> None:
    copy_memory(to, source, nbytes)


@external(ZERO_BYTES)
def _zero_bytes(to: address, nbytes: i64) -> None:
    fill_memory(to, 0, nbytes)


@inline
def place_of_cell(cell: Cell) -> address:
    """What a cell whose base is not null points to."""
    return _PointerWord.at(cell.base).value + cell.offset


@exported(RESOLVE)
def resolve(cells: Span[Cell], count: i64, out: Span[address]) -> None:
    """The pointers of cells."""
    for k in range(count):
        out[k] = 0 if cells[k].base == 0 else place_of_cell(cells[k])


@exported(COPY)
def copy_memory_of(to: address, source: address, nbytes: i64, streaming: i64) -> None:
    """Copy bytes; ``streaming``: past the caches."""
    _copy_bytes(to, source, nbytes, streaming != 0)
    if streaming != 0:
        fence(SEQ_CST)


@exported(WORK)
def do_work(call: WorkCall, operands: Span[address], results: Span[address], part: i64, parts: i64) -> None:
    """A share of the lines of a group's work."""
    if call.op == RAGGED:
        _exchange_rows(call, operands, results, part, parts)
        return
    begin = call.lines * part // parts
    end = call.lines * (part + 1) // parts
    strip = local(_Strip)
    strip.members = call.members
    strip.streaming = call.streaming
    passed = 0
    for k in range(call.operands):
        operand = call.table[k]
        strip.operand = operand
        strip.sources = operands.behind(k * call.members)
        strip.targets = results.behind(k * call.members)
        strip.length = operand.count * operand.nbytes
        if call.op in (_REDUCE_SCATTER, _ALL_TO_ALL):
            strip.length //= call.members
        strips = _strips(call)
        lines = (strip.length + LINE - 1) // LINE
        first = max(begin - passed, 0)
        last = max(end - passed, 0)
        passed += strips * lines
        if lines == 0:
            continue
        for n in range(first // lines, min(strips, (last + lines - 1) // lines)):
            strip.index = n
            strip.low = max(first - n * lines, 0) * LINE
            strip.high = min((last - n * lines) * LINE, strip.length)
            _do_strip(call.op, strip)
    if call.streaming != 0:
        fence(SEQ_CST)


@inline
def _strips(call: WorkCall) -> i64:
    """How many strips an operand has."""
    if call.op in (_ALL_GATHER, _REDUCE_SCATTER):
        return call.members
    return call.members * call.members if call.op == _ALL_TO_ALL else 1


def _do_strip(op: i64, strip: _Strip) -> None:
    if op == _ALL_REDUCE:
        _reduce(strip, strip.low, strip.targets, strip.members)
    elif op == _REDUCE_SCATTER:
        if strip.targets[strip.index] != 0:
            _reduce(strip, strip.index * strip.length + strip.low, strip.targets.behind(strip.index), 1)
    elif op == _ALL_GATHER:
        _gather(strip)
    elif op == _ALL_TO_ALL:
        _exchange(strip)
    else:
        _permute(strip)


@inline
def _reduce(strip: _Strip, begin: i64, targets: Span[address], copies: i64) -> None:
    count = (strip.high - strip.low) // strip.operand.nbytes
    streaming = strip.streaming != 0
    strip.operand.reduce(strip.sources, strip.members, begin, targets, copies, strip.low, count, streaming)


def _gather(strip: _Strip) -> None:
    """To all members, a block at a time; the same memory once."""
    source = strip.sources[strip.index] + strip.low
    behind = strip.index * strip.length + strip.low
    nbytes = strip.high - strip.low
    targets = strip.targets
    for at in range(0, nbytes, _BLOCK):
        count = min(_BLOCK, nbytes - at)
        for k in range(strip.members):
            target = targets[k]
            if target != 0 and (k == 0 or target != targets[k - 1]):
                _copy_bytes(target + behind + at, source + at, count, strip.streaming != 0)


@inline
def _exchange(strip: _Strip) -> None:
    """From one member to another."""
    sender = strip.index // strip.members
    receiver = strip.index - sender * strip.members
    target = strip.targets[receiver]
    if target != 0:
        source = strip.sources[sender] + receiver * strip.length + strip.low
        nbytes = strip.high - strip.low
        _copy_bytes(target + sender * strip.length + strip.low, source, nbytes, strip.streaming != 0)


@inline
def _permute(strip: _Strip) -> None:
    target = strip.targets[0]
    source = strip.sources[0]
    nbytes = strip.high - strip.low
    if target != 0 and source == 0:
        _zero_bytes(target + strip.low, nbytes)
    elif target != 0:
        _copy_bytes(target + strip.low, source + strip.low, nbytes, strip.streaming != 0)


def _exchange_rows(call: WorkCall, operands: Span[address], results: Span[address], part: i64, parts: i64) -> None:
    """A range of every member's output, sender by sender."""
    tables = local(RaggedTables)
    nbytes = call.rows.output_rows * call.rows.row_bytes
    low = call.lines * part // parts * LINE
    high = min(call.lines * (part + 1) // parts * LINE, nbytes)
    for receiver in range(call.members):
        result = results[_OUTPUT * call.members + receiver]
        if result != 0:
            _point_to(tables, call, operands, receiver)
            keep_output(operands[_OUTPUT * call.members + receiver], result, low, high)
            for sender in range(call.members):
                copy_rows(tables, sender, operands[_DATA * call.members + sender], result, low, high)


@inline
def _point_to(tables: RaggedTables, call: WorkCall, operands: Span[address], receiver: i64) -> None:
    """The tables of one receiver."""
    tables.rows = call.rows
    tables.starts = operands.behind(_STARTS * call.members)
    tables.sizes = operands.behind(_SIZES * call.members)
    tables.targets = operands.behind(_TARGETS * call.members)
    tables.received = operands[_RECEIVED * call.members + receiver]
    tables.first = receiver * call.rows.per_peer
    tables.members = call.members


@exported(ROWS)
def check_rows(call: WorkCall, operands: Span[address]) -> i64:
    """The bytes of all rows that are moved in a group; -1 where they do not fit."""
    tables = local(RaggedTables)
    total = 0
    for receiver in range(call.members):
        _point_to(tables, call, operands, receiver)
        if not rows_fit(tables):
            return -1
        total += row_bytes_received(tables)
    return total


def work_ir(target: Target | None = None) -> str:
    """The IR text of `WORK_SYMBOLS`, which need `shardc.native.memory.copying.copying_module`."""
    return compile_functions((do_work, resolve, copy_memory_of, check_rows), target)
