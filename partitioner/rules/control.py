"""Data flow and control flow: values pass on, called computations are partitioned once per signature.

Loop carries keep their propagated layouts; accumulators may be partial. Predicates are whole on every device, so that
all devices take the same branch and meet in the same collectives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shardc.hlo.ir.callbacks import is_callback
from shardc.hlo.ir.custom_calls import (
    DATA_FLOW_EDGE,
    ENTER_MANUAL,
    FUNCTION_EDGE,
    LEAVE_MANUAL,
    PROPAGATION_BARRIER,
    RESHARD,
    SHARDING_GROUP,
)
from shardc.hlo.ir.host_memory.memory_kinds import placed_in
from shardc.hlo.ir.infer.control import branches_of
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import Shape
from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.rewrite.accumulate import choose_branch_layouts, choose_loop_state, widen_loop
from shardc.partitioner.rewrite.body import Body, Handled
from shardc.partitioner.rules.callback import partition_callback
from shardc.partitioner.rules.manual import enter, leave
from shardc.partitioner.rules.matrices.routines import CustomCallRows
from shardc.partitioner.strategy.rule import Local, LocalSite, PartitionRow, Refused
from shardc.partitioner.strategy.values import GlobalValue, Tree, leaves
from shardc.partitioner.unreduced.moved_partials import is_result_moved
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule

__all__ = ["RULES", "want_reduced"]

#: What only propagation heeds, which is over.
_MARKERS = (DATA_FLOW_EDGE, FUNCTION_EDGE, PROPAGATION_BARRIER, SHARDING_GROUP)
_PASSED = frozenset(("ShardBarrierFrom", "ShardBarrierTo", *_MARKERS))
_CONSTRAINTS = frozenset(("Sharding", RESHARD))


def _parameter(body: Body, op: Instruction) -> Tree:
    layouts = body.parameter_layouts[op.attrs["index"]]
    shapes = iter(
        [
            placed_in(s.with_dims(body.context.table.local_dims(x, s.dims)), s)
            for s, x in zip(op.shape.leaves(), layouts, strict=True)
        ]
    )
    local = body.em.append(op.replace(shape=body.local_shape(op.shape, shapes), sharding=None), own=True)
    return _results(body, op, local, layouts, "the caller passes on")


def _tuple(body: Body, op: Instruction) -> Tree:
    return [body.values[o] for o in op.operands]


def _element(body: Body, op: Instruction) -> Tree:
    tree = body.values[op.operands[0]]
    assert isinstance(tree, list)
    index: int = op.attrs["index"]
    return tree[index]


def _pass_on(body: Body, op: Instruction) -> Tree:
    return body.values[op.operands[0]]


def _barrier(body: Body, op: Instruction) -> Tree:
    """The leaves as they lie, partial ones reduced: what is before the barrier stays before it."""
    tree = body.values[op.operands[0]]
    table = body.context.table
    values = list(leaves(tree))
    layouts = [table.reduced(v.layout) for v in values]
    local = _bring(body, tree, op.operands[0], layouts, f"optimization-barrier %{op.name} needs")
    made = body.em.append(op.replace(shape=local.shape, operands=(local,), sharding=None), own=True)
    return body.disassemble(op, op.shape, made, iter(layouts))


def _bring(body: Body, tree: Tree, op: Instruction, layouts: Sequence[AxisLayout], need: str) -> Instruction:
    """A tree's local value with its leaves in ``layouts``."""
    values = leaves(tree)
    return body.assemble(op.shape, tree, iter([body.get(v, x, need) for v, x in zip(values, layouts, strict=True)]))


def _call(body: Body, op: Instruction) -> Tree:
    called: Computation = op.attrs["to_apply" if op.opcode == "call" else "calls"]
    parameters = tuple(body.wanted(p) for p in called.parameters)
    results = body.wanted(called.root)
    need = f"{op.opcode} %{op.name} of {called.name} needs"
    operands = [
        _bring(body, body.values[o], o, layouts, need) for o, layouts in zip(op.operands, parameters, strict=True)
    ]
    local = body.callee(called, parameters, results)
    made = body.em.add("call", local.root.shape, *operands, name=op.name, to_apply=local)
    return body.disassemble(op, op.shape, made, iter(results))


def _while(body: Body, op: Instruction) -> Tree:
    carry = body.context.plan.layouts.get(op) or choose_loop_state(body, op)
    body.context.states[body.signature, op] = carry
    predicate = (body.context.table.replicated(0),)
    run = widen_loop(body, op, carry)
    condition = body.callee(run.attrs["condition"], (carry,), predicate)
    loop = body.callee(run.attrs["body"], (carry,), carry)
    tree, need = body.values[op.operands[0]], f"while %{op.name}{body.planned_why(op)} carries"
    start = [body.get(v, x, need) for v, x in zip(leaves(tree), carry, strict=True)]
    start = [_convert(body, x, s) for x, s in zip(start, run.shape.leaves(), strict=True)]
    local = body.assemble(op.shape, tree, iter(start))
    made = body.em.append(
        op.replace(
            shape=local.shape,
            operands=(local,),
            attrs={**op.attrs, "condition": condition, "body": loop},
            sharding=None,
        ),
        own=True,
    )
    after = _results(body, op, made, carry, f"while %{op.name} sums")
    for value in leaves(after):
        value.forms[value.layout] = _convert(body, value.forms[value.layout], value.shape)
    return after


def _convert(body: Body, x: Instruction, shape: Shape) -> Instruction:
    """``x`` in the element type of ``shape``."""
    if x.shape.dtype is shape.dtype:
        return x
    return body.em.add("convert", x.shape.with_dtype(shape.dtype), x)


def _results(body: Body, op: Instruction, made: Instruction, layouts: Sequence[AxisLayout], what: str) -> Tree:
    """The value tree of a parameter, loop or conditional."""
    tree = body.disassemble(op, op.shape, made, iter(layouts))
    want_reduced(body, op, tree, layouts, what)
    return tree


def want_reduced(body: Body, op: Instruction, tree: Tree, layouts: Sequence[AxisLayout], what: str) -> None:
    """Let the partial leaves of a parameter, loop or conditional be wanted reduced."""
    uses: dict[int, int] = {}
    if any(x.unreduced for x in layouts):
        for i in body.uses:
            if i.opcode == "get-tuple-element" and i.operands[0] is op:
                uses[i.attrs["index"]] = uses.get(i.attrs["index"], 0) + body.readers(i)
    for k, (value, wanted) in enumerate(zip(leaves(tree), body.wanted(op), strict=True)):
        if value.layout.unreduced:
            value.wanted = wanted
            value.why = dict.fromkeys(value.layout.unreduced, f"{what} partial values, reduced once afterwards")
            value.uses = uses.get(k, value.uses)
            value.moved = is_result_moved(body.rules, body.values, op, k if op.shape.is_tuple else None)


def _branch_layouts(body: Body, op: Instruction) -> tuple[Sequence[tuple[AxisLayout, ...]], tuple[AxisLayout, ...]]:
    """The layouts of each branch's operand and of the results, as planned or as they are found to be best."""
    inner = [b.parameters[0] for b in branches_of(op.attrs)]
    planned, states = body.context.plan.layouts, body.context.states
    if op in planned and all(p in planned for p in inner):
        parameters, results = [planned[p] for p in inner], planned[op]
    else:
        parameters, results = choose_branch_layouts(body, op)
    states.update(
        ((body.signature, p), layouts) for p, layouts in zip((op, *inner), (results, *parameters), strict=True)
    )
    return parameters, results


def _conditional(body: Body, op: Instruction) -> Tree:
    branches = branches_of(op.attrs)
    parameters, results = _branch_layouts(body, op)
    selector = body.value(op.operands[0])
    chosen = body.get(selector, body.context.table.replicated(0), f"conditional %{op.name} needs")
    operands, local = [chosen], []
    for branch, operand, layouts in zip(branches, op.operands[1:], parameters, strict=True):
        need = f"branch {branch.name} of %{op.name} needs"
        operands.append(_bring(body, body.values[operand], operand, layouts, need))
        local.append(body.callee(branch, (layouts,), results))
    attrs = dict(op.attrs)
    named = [k for k in ("true_computation", "false_computation") if k in attrs]
    attrs.update(zip(named, local, strict=True) if named else (("branch_computations", tuple(local)),))
    made = body.em.append(
        op.replace(shape=local[0].root.shape, operands=tuple(operands), attrs=attrs, sharding=None), own=True
    )
    return _results(body, op, made, results, f"conditional %{op.name} gives")


def _custom_call(body: Body, op: Instruction) -> Tree:
    target = op.attrs["custom_call_target"]
    if target in _CONSTRAINTS:
        return _constraint(body, op)
    if target in _PASSED:
        return body.values[op.operands[0]]
    if target in ENTER_MANUAL:
        return enter(body, op)
    if target in LEAVE_MANUAL:
        return leave(body, op)
    if is_callback(op):
        return partition_callback(body, op)
    if any(o.shape.is_tuple for o in op.operands):
        return _whole_call(body, op)
    return body.partition_locally(op, _CALLS.of(op))


def _whole_call(body: Body, op: Instruction) -> Tree:
    """A call that takes tuples gets all of them whole, and gives whole results."""
    whole, need = body.context.table.replicated, f"{op.opcode} %{op.name} needs"
    operands = tuple(
        _bring(body, body.values[o], o, [whole(s.rank) for s in o.shape.leaves()], need) for o in op.operands
    )
    made = body.em.append(op.replace(operands=operands, sharding=None), own=True)
    return body.disassemble(op, op.shape, made, iter([whole(s.rank) for s in op.shape.leaves()]))


def _constraint(body: Body, op: Instruction) -> Tree:
    """The value, or every leaf of a tuple, in exactly the layout that was asked for.

    What a loop adds up may be partial there, over axes that the constraint leaves alone.
    """
    wanted = iter(body.wanted(op))

    def bring(tree: Tree) -> Tree:
        if not isinstance(tree, GlobalValue):
            return [bring(t) for t in tree]
        layout = next(wanted)
        aim = body.required.get(op, layout)
        layout = aim if aim.unreduced else layout
        local = body.get(tree, layout, f"the sharding constraint %{op.name} requires")
        uses, moved = body.uses.get(op, 1), tree.moved
        return GlobalValue(op.name, tree.shape, layout, local, uses=uses, metadata=op.metadata, moved=moved)

    return bring(body.values[op.operands[0]])


def _token(body: Body, op: Instruction) -> Tree:
    """A token is a value without dimensions."""
    whole = body.context.table.replicated(0)
    operands = tuple(body.get(body.value(o), whole, f"{op.opcode} %{op.name} needs") for o in op.operands)
    local = body.em.append(op.replace(operands=operands, sharding=None), own=True)
    return GlobalValue(op.name, op.shape, whole, local)


def _infeed(body: Body, op: Instruction) -> Tree:
    """Every device is fed its part of the data."""
    layouts = body.wanted(op)
    token = body.value(op.operands[0])
    operand = body.get(token, body.context.table.replicated(0), f"infeed %{op.name} needs")
    local = iter(_local_shapes(body, op, layouts))
    made = body.em.append(
        op.replace(shape=body.local_shape(op.shape, local), operands=(operand,), sharding=None), own=True
    )
    return body.disassemble(op, op.shape, made, iter(layouts))


def _outfeed(body: Body, op: Instruction) -> Tree:
    """Every device gives its part of the data, as it lies."""
    table = body.context.table
    data, token = op.operands
    layouts = [table.reduced(v.layout) for v in leaves(body.values[data])]
    need = f"outfeed %{op.name} needs"
    local = _bring(body, body.values[data], data, layouts, need)
    operand = body.get(body.value(token), table.replicated(0), need)
    attrs = {**op.attrs, "outfeed_shape": local.shape} if "outfeed_shape" in op.attrs else op.attrs
    made = body.em.append(op.replace(operands=(local, operand), attrs=attrs, sharding=None), own=True)
    return GlobalValue(op.name, op.shape, table.replicated(0), made)


def _local_shapes(body: Body, op: Instruction, layouts: Sequence[AxisLayout]) -> list[Shape]:
    dims = body.context.table.local_dims
    return [s.with_dims(dims(x, s.dims)) if s.is_array else s for s, x in zip(op.shape.leaves(), layouts, strict=True)]


def _in_its_layouts(site: LocalSite) -> list[Instruction]:
    """Layout constraints name shapes, which are local ones now; the order of dimensions in memory stays."""
    constraints = site.op.attrs.get("operand_layout_constraints")
    if constraints is None:
        return site.emit(keep_layouts=True)
    local = (replace(o.shape, layout=s.layout) for o, s in zip(site.operands, constraints, strict=True))
    return site.emit(keep_layouts=True, operand_layout_constraints=tuple(local))


def _independent(op: Instruction, rule: FactorRule) -> frozenset[int]:
    """Factors of an operand and of every result: a user's rule may name others only to keep them apart."""
    n = len(rule.operands)
    results = set(range(n, n + len(rule.results)))

    def fits(factor: int) -> bool:
        tensors = {t for t, _ in rule.places(factor)}
        return results <= tensors and tensors != results

    return frozenset(f for f in rule.of_kind(FactorKind.PASS_THROUGH) if fits(f))


_CALLS = CustomCallRows(
    Local("on shards of the dimensions known to be independent", _in_its_layouts, _independent),
)
_ASYNC = "asynchronous operations appear after partitioning"

RULES: Mapping[str, PartitionRow] = {
    "parameter": Handled("in the caller's layout", _parameter),
    "tuple": Handled("leaf by leaf", _tuple),
    "get-tuple-element": Handled("leaf by leaf", _element),
    "call": Handled("callee partitioned once per signature", _call),
    "fusion": Handled("callee partitioned once per signature", _call),
    "while": Handled("one layout per carried leaf", _while),
    "conditional": Handled("predicate whole, one layout per result leaf", _conditional),
    "custom-call": Handled("by target; unknown ones on whole operands", _custom_call),
    "optimization-barrier": Handled("leaf by leaf", _barrier),
    "domain": Handled("passed on", _pass_on),
    "add-dependency": Handled("passed on", _pass_on),
    "after-all": Handled("a token on every device", _token),
    **dict.fromkeys(("copy-start", "copy-done", "async-start", "async-update", "async-done"), Refused(_ASYNC)),
    "infeed": Handled("every device is fed its part", _infeed),
    "outfeed": Handled("every device gives its part", _outfeed),
}
