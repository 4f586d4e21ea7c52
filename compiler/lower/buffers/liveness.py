"""When each buffer holds a value that somebody will read, as bit masks over positions.

Leaf steps are numbered in program order; step p owns two bits: 2p while it runs, 2p+1 after it. A loop's test and a
branch's selection are positions too. A mask holds a bit where the buffer's value is needed; writes are kept apart, and
so are the bits at which a transfer that is under way holds an operand that nobody else needs any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shardc.compiler.lower.lowered import (
    AwaitStep,
    BranchStep,
    Buffer,
    BufferCopy,
    Collective,
    KernelStep,
    PredicateCheck,
    Step,
    WhileStep,
)

__all__ = ["Liveness", "first_position", "live_ranges", "reads_of", "runs_of", "writes_of"]


def reads_of(step: Step) -> tuple[Buffer, ...]:
    """Buffers that a leaf step reads."""
    assert not isinstance(step, WhileStep | BranchStep)
    if isinstance(step, PredicateCheck):
        return (step.predicate,)
    if isinstance(step, AwaitStep):
        return step.started.results
    return (step.source,) if isinstance(step, BufferCopy) else step.operands


def writes_of(step: Step) -> tuple[Buffer, ...]:
    """Buffers that a leaf step writes, each completely."""
    assert not isinstance(step, WhileStep | BranchStep)
    if isinstance(step, PredicateCheck | AwaitStep):
        return ()
    return (step.target,) if isinstance(step, BufferCopy) else step.results


def runs_of(mask: int) -> Iterator[tuple[int, int]]:
    """(first bit, bit after the last) of every run of set bits in a mask. Example: 0b1101 gives (0, 1), (2, 4)."""
    start = 0
    while mask:
        zeros = (mask & -mask).bit_length() - 1
        mask >>= zeros
        ones = (~mask & (mask + 1)).bit_length() - 1
        mask >>= ones
        yield start + zeros, start + zeros + ones
        start += zeros + ones


#: What a block reads before it writes it, and what it writes whichever way it goes.
_Effect = tuple[frozenset[Buffer], frozenset[Buffer]]


@dataclass(slots=True)
class Liveness:
    """Masks per buffer (absent: 0), and the position of every step (for loops and branches: of the test).

    ``held`` are the masks of operands of what is asynchronous behind its start, by that step. ``effects`` are
    those of loops and branches.
    """

    positions: dict[Step, int] = field(default_factory=dict)
    live: dict[Buffer, int] = field(default_factory=dict)
    written: dict[Buffer, int] = field(default_factory=dict)
    held: dict[Buffer, dict[Collective | KernelStep, int]] = field(default_factory=dict)
    end: int = 0
    effects: dict[Step, _Effect] = field(default_factory=dict)

    def in_use(self, buffer: Buffer) -> int:
        """All bits at which the memory of ``buffer`` is not free."""
        mask = self.live.get(buffer, 0) | self.written.get(buffer, 0)
        for held in self.held.get(buffer, {}).values():
            mask |= held
        return mask


def _effect(steps: Sequence[Step], found: Liveness) -> _Effect:
    reads: set[Buffer] = set()
    writes: set[Buffer] = set()
    for step in reversed(steps):
        first, last = _effect_of(step, found)
        reads -= last
        reads |= first
        writes |= last
    return frozenset(reads), frozenset(writes)


def _effect_of(step: Step, found: Liveness) -> _Effect:
    """Of loops and branches it is kept, so that nesting them costs no more than writing them one after another."""
    if not isinstance(step, WhileStep | BranchStep):
        return frozenset(r for r in reads_of(step) if r.space != "constant"), frozenset(writes_of(step))
    if step not in found.effects:
        if isinstance(step, WhileStep):
            reads, writes = _effect(step.condition, found)
            body, _ = _effect(step.body, found)
            found.effects[step] = reads | ((body | _asked(step.predicate)) - writes), writes
        else:
            parts = [_effect(b, found) for b in step.branches]
            reads = _asked(step.selector).union(*(p[0] for p in parts))
            found.effects[step] = reads, frozenset.intersection(*(p[1] for p in parts))
    return found.effects[step]


def _asked(selector: Buffer) -> frozenset[Buffer]:
    return frozenset() if selector.space == "constant" else frozenset((selector,))


#: Buffers that are live now, each with the bit (exclusive) up to which that was not yet written to its mask.
_State = dict[Buffer, int]


def live_ranges(steps: Sequence[Step], outputs: Sequence[Buffer]) -> Liveness:
    """Liveness of all buffers but constants; ``outputs`` are read after the last step."""
    found = Liveness()
    found.end = _number(steps, found, 0)
    state: _State = dict.fromkeys(outputs, 2 * found.end + 1)
    _walk(steps, state, found)
    _flush(state, 0, found)
    return found


def _number(steps: Sequence[Step], found: Liveness, position: int) -> int:
    for step in steps:
        if isinstance(step, WhileStep):
            position = _number(step.condition, found, position)
            found.positions[step] = position
            position = _number(step.body, found, position + 1)
        elif isinstance(step, BranchStep):
            found.positions[step] = position
            position += 1
            for branch in step.branches:
                position = _number(branch, found, position)
        else:
            found.positions[step] = position
            position += 1
    return position


def _flush(state: _State, low: int, found: Liveness) -> None:
    """Write the ranges from ``low`` upwards into the masks; what is live goes on from there."""
    for buffer, high in state.items():
        if high > low:
            found.live[buffer] = found.live.get(buffer, 0) | ((1 << high) - (1 << low))
        state[buffer] = low


def _walk(steps: Sequence[Step], state: _State, found: Liveness) -> None:
    """Backwards over ``steps``: ``state`` is what is live after them, then before them."""
    for step in reversed(steps):
        if isinstance(step, WhileStep):
            _walk_loop(step, state, found)
        elif isinstance(step, BranchStep):
            _walk_branch(step, state, found)
        else:
            bit = 2 * found.positions[step]
            if isinstance(step, AwaitStep):
                _hold(step.started, bit, found)
            for w in writes_of(step):
                found.written[w] = found.written.get(w, 0) | (1 << bit)
                high = state.pop(w, None)
                if high is not None and high > bit + 1:
                    found.live[w] = found.live.get(w, 0) | ((1 << high) - (1 << (bit + 1)))
            for r in reads_of(step):
                if r.space != "constant":
                    state.setdefault(r, bit + 1)


def _hold(step: Collective | KernelStep, awaited: int, found: Liveness) -> None:
    """The operands are read until the bit ``awaited``."""
    started = 2 * found.positions[step] + 1
    for o in step.operands:
        if o.space != "constant":
            found.held.setdefault(o, {})[step] = (1 << (awaited + 1)) - (1 << started)


def _span(steps: Sequence[Step], found: Liveness, default: int) -> tuple[int, int]:
    """First position and the one after the last of a block."""
    if not steps:
        return default, default
    return first_position(steps[0], found), _after(steps[-1], found)


def first_position(step: Step, found: Liveness) -> int:
    """The position of the first thing that a step does."""
    if isinstance(step, WhileStep):
        return _span(step.condition, found, found.positions[step])[0]
    return found.positions[step]


def _after(step: Step, found: Liveness) -> int:
    if isinstance(step, WhileStep):
        return _span(step.body, found, found.positions[step] + 1)[1]
    if isinstance(step, BranchStep):
        end = found.positions[step] + 1
        for branch in step.branches:
            end = _span(branch, found, end)[1]
        return end
    return found.positions[step] + 1


def _walk_loop(step: WhileStep, state: _State, found: Liveness) -> None:
    """What the next iteration reads is live at the end of the body."""
    test = found.positions[step]
    start, end = first_position(step, found), _after(step, found)
    _flush(state, 2 * end, found)
    reads, writes = _effect(step.body, found)
    again, _ = _effect(step.condition, found)
    needed = (*state, *reads, *_asked(step.predicate), *(again - writes))
    header: _State = dict.fromkeys(needed, 2 * (test + 1))
    _walk(step.condition, header, found)
    _flush(header, 2 * start, found)
    body: _State = dict.fromkeys(header, 2 * end)
    _walk(step.body, body, found)
    _flush(body, 2 * (test + 1), found)
    state.clear()
    state.update(header)


def _walk_branch(step: BranchStep, state: _State, found: Liveness) -> None:
    position = found.positions[step]
    end = _after(step, found)
    _flush(state, 2 * end, found)
    before: set[Buffer] = set()
    start = position + 1
    for branch in step.branches:
        low, high = _span(branch, found, start)
        inner: _State = dict.fromkeys(state, 2 * high)
        _walk(branch, inner, found)
        _flush(inner, 2 * low, found)
        before |= set(inner)
        start = high
    state.clear()
    state.update(dict.fromkeys(before, 2 * (position + 1)))
    if step.selector.space != "constant":
        state[step.selector] = 2 * (position + 1)
