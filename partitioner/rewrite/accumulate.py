"""Accumulators: what a loop or a branch only adds up stays partial, and is reduced once behind it.

An element of a loop's state may be partial while all that the loop makes of it is linear, and leads back to the state.
Whether it pays is found by trying: the body is partitioned with the element whole and with the element partial, and
what both send over all iterations is compared. Readers may prefer partial values in turn, an outer loop's
accumulator above all, so that gradients of layers within microbatches travel once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardc.costs.kernels.trips import trip_count
from shardc.hlo.ir.infer.control import branches_of
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.reshard.moves import Cost, total_cost
from shardc.partitioner.reshard.price import Seconds
from shardc.partitioner.rewrite.body import Body
from shardc.partitioner.rewrite.local_cost import SOME_TRIPS, collectives_cost
from shardc.partitioner.rewrite.preferred_partials import partial_of, with_partial
from shardc.partitioner.strategy.pieces import LoopPieces, find_pieces_written
from shardc.partitioner.strategy.values import GlobalValue, PartialAxes, leaves
from shardc.partitioner.unreduced.accumulators import find_accumulators
from shardc.partitioner.unreduced.linear import Spread, merge_partials
from shardc.partitioner.unreduced.widen_sums import widen_sums

__all__ = ["choose_branch_layouts", "choose_loop_state", "widen_loop"]

Layouts = tuple[AxisLayout, ...]

#: The part of a device's memory that a state may fill for partial sums' sake.
_MEMORY = 0.5
#: What is less by rounding is not less.
_LESS = 1 - 1e-9


# -- loops -------------------------------------------------------------------------------------------------------


def choose_loop_state(body: Body, op: Instruction) -> Layouts:
    """The layouts of a loop's state: the propagated ones, accumulators partial where that sends less.

    Partial sums that were split before take more memory: at most as much as the whole state does, on a machine none
    beyond half of its memory, and none at all where only the number of collectives falls. What an iteration writes a
    piece of is reduced piece by piece: once behind the loop that takes as much, and on a machine nothing hides it
    there.
    """
    whole = body.wanted(op)
    if not op.shape.is_tuple or len(op.shape.elements) != len(whole):
        return whole
    body.callee(op.attrs["body"], (whole,), whole)
    trips = trip_count(op)
    options = find_accumulators(body.spread(), op) if trips is None or trips > 0 else {}
    if not options:
        return whole
    runs = SOME_TRIPS if trips is None else trips
    best, least = whole, _loop_cost(body, op, whole, runs)
    room = _MEMORY * body.context.resharder.price.memory()
    for chosen in (options, *({k: options[k]} for k in options if len(options) > 1)):
        state = _with_partial(body, op, best, chosen)
        growth = _bytes(body, op, state) - _bytes(body, op, whole)
        if state == best or growth > _bytes(body, op, whole) or (0 < room < _bytes(body, op, state) and growth > 0):
            continue
        cost = _loop_cost(body, op, state, runs)
        if cost[0] < least[0] * _LESS or (cost < least and growth <= 0):
            best, least = state, cost
            if chosen is options:
                break
    return best


def widen_loop(body: Body, op: Instruction, state: Layouts) -> Instruction:
    """The loop as it runs with its state in these layouts: partial sums of narrow floats are kept in f32."""
    context = body.context
    known = context.loops.get((op, state))
    if known is None:
        known = context.loops[op, state] = widen_sums(op, state)
        if known is not op:
            context.repetitions = {**context.repetitions, **_carry_repetitions(context.repetitions, op, known)}
            whole = body.wanted(op)
            body.callee(known.attrs["body"], (whole,), whole)
    return known


def _carry_repetitions(known: Mapping[Instruction, int], old: Instruction, new: Instruction) -> dict[Instruction, int]:
    """`invariants.repetitions` of a rewritten loop's elements."""
    by_index = {i.attrs["index"]: known[i] for i in old.attrs["body"] if i in known}
    parameter = new.attrs["body"].parameters[0]
    return {
        i: by_index[i.attrs["index"]]
        for i in new.attrs["body"]
        if i.opcode == "get-tuple-element" and i.operands[0] is parameter and i.attrs["index"] in by_index
    }


def _with_partial(body: Body, op: Instruction, state: Layouts, chosen: Mapping[int, PartialAxes]) -> Layouts:
    table = body.context.table
    return tuple(with_partial(table, x, chosen[k]) if k in chosen else x for k, x in enumerate(state))


def _bytes(body: Body, op: Instruction, state: Layouts) -> int:
    table = body.context.table
    shapes = zip(widen_loop(body, op, state).shape.elements, state, strict=True)
    return sum(s.with_dims(table.local_dims(x, s.dims)).nbytes for s, x in shapes)


def _loop_cost(body: Body, op: Instruction, state: Layouts, trips: int) -> Cost:
    """What a loop sends with its state in these layouts: on the way in, in all iterations, and for its readers."""
    local = body.callee(widen_loop(body, op, state).attrs["body"], (state,), state)
    wire, count = collectives_cost(body.context, local)
    costs = [(trips * wire, trips * count)]
    costs += [_entry_cost(body, v, x) for v, x in zip(leaves(body.values[op.operands[0]]), state, strict=True)]
    costs += [_exit_cost(body, op, k, x, find_pieces_written(op.attrs["body"], k, trips)) for k, x in enumerate(state)]
    return total_cost(costs)


def _entry_cost(body: Body, value: GlobalValue, layout: AxisLayout) -> Cost:
    if value.remake is not None:
        return (0.0, 0)
    resharder, dims, nbytes = body.context.resharder, value.shape.dims, value.shape.dtype.nbytes
    return min(resharder.cost(dims, nbytes, form, layout) for form in value.forms)


def _exit_cost(body: Body, op: Instruction, index: int, layout: AxisLayout, pieces: LoopPieces | None = None) -> Cost:
    """To what the readers of element ``index`` want; nothing where nobody reads it."""
    shape = op.shape.elements[index]
    readers = [
        i
        for i in body.computation
        if i.opcode == "get-tuple-element" and i.operands[0] is op and i.attrs["index"] == index and i in body.uses
    ]
    if not readers and op is not body.computation.root:
        return (0.0, 0)
    wanted = {body.required.get(r) or body.wanted(op)[index] for r in readers} or {body.wanted(op)[index]}
    if pieces is None or not pieces.moves(layout, *wanted):
        pieces = LoopPieces(shape.dims, shape.dims, 1)
    costs = [body.context.resharder.cost(pieces.dims, shape.dtype.nbytes, layout, w) for w in wanted]
    timed = pieces.count if isinstance(body.context.resharder.price, Seconds) else 1
    costs = [(pieces.count * wire, timed * count) for wire, count in costs]
    return total_cost(costs)


# -- branches ----------------------------------------------------------------------------------------------------


def choose_branch_layouts(body: Body, op: Instruction) -> tuple[list[Layouts], Layouts]:
    """The layouts of each branch's operand and of a conditional's results, partial where that sends less."""
    branches = branches_of(op.attrs)
    operands = [body.wanted(b.parameters[0]) for b in branches]
    results = body.wanted(op)
    base = _branches_cost(body, op, operands, results)
    spread = body.spread()
    given = [_passed_partial(body, o, b, spread) for o, b in zip(op.operands[1:], branches, strict=True)]
    partial = _partial_results(body, op, spread, given)
    if not partial:
        return operands, results
    table = body.context.table
    after = tuple(with_partial(table, x, partial[k]) if k in partial else x for k, x in enumerate(results))
    before = [
        tuple(
            with_partial(table, x, mine[k][0]) if k in mine and mine[k][1] <= partial.keys() else x
            for k, x in enumerate(layouts)
        )
        for layouts, mine in zip(operands, given, strict=True)
    ]
    cost = _branches_cost(body, op, before, after)
    return (before, after) if cost < base else (operands, results)


#: Element of a branch's operand -> how it is partial, and the elements of the result that it leads to.
_Passed = dict[int, tuple[PartialAxes, frozenset[int]]]


def _passed_partial(body: Body, operand: Instruction, branch: Computation, spread: Spread) -> _Passed:
    """Elements of a branch's operand that come partial and that the branch treats linearly."""
    out: _Passed = {}
    shape = operand.shape
    flat = shape.is_array or (shape.is_tuple and all(s.is_array for s in shape.elements))
    for k, value in enumerate(leaves(body.values[operand])) if flat else ():
        partial = partial_of(value.layout)
        if partial is not None:
            after = spread.through_branch(branch, frozenset((k,)) if shape.is_tuple else None, partial.reduction)
            if after is not None:
                out[k] = (partial, after)
    return out


def _partial_results(body: Body, op: Instruction, spread: Spread, given: Sequence[_Passed]) -> dict[int, PartialAxes]:
    """How each element of a conditional's result may be partial."""
    if not (op.shape.is_array or all(s.is_array for s in op.shape.elements)):
        return {}
    shapes = list(op.shape.leaves())
    found: dict[int, PartialAxes] = {}
    for k in range(len(shapes)):
        own = spread.of_element(op, None if op.shape.is_array else k)
        partial = merge_partials([own, *(p for mine in given for p, after in mine.values() if k in after)])
        if partial is not None:
            found[k] = partial
    return found


def _branches_cost(body: Body, op: Instruction, operands: Sequence[Layouts], results: Layouts) -> Cost:
    costs: list[Cost] = []
    for branch, operand, layouts in zip(branches_of(op.attrs), op.operands[1:], operands, strict=True):
        local = body.callee(branch, (layouts,), results)
        costs.append(collectives_cost(body.context, local))
        costs += [_entry_cost(body, v, x) for v, x in zip(leaves(body.values[operand]), layouts, strict=True)]
    if op.shape.is_array:
        shape, resharder = op.shape, body.context.resharder
        wanted = body.required.get(op) or body.wanted(op)[0]
        costs.append(resharder.cost(shape.dims, shape.dtype.nbytes, results[0], wanted))
    elif all(s.is_array for s in op.shape.elements):
        costs += [_exit_cost(body, op, k, x) for k, x in enumerate(results)]
    return total_cost(costs)
