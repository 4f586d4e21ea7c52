"""NumPy meaning: collectives, each evaluated for all its devices at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from shardc.hlo.errors import RunError
from shardc.hlo.evaluate.body import MONOIDS, apply_body
from shardc.hlo.evaluate.interpreter import Interpreter, OpMeaning, lockstep
from shardc.hlo.evaluate.values import COMPUTE, Array, Value, cast, flatten
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.participants import Groups, groups_of_devices, pairs_of_devices
from shardc.hlo.ir.reducers import reducer_opcode
from shardc.hlo.ragged_rows import RaggedGroup
from shardc.hlo.transforms.expand_sliced_permutes import expand_permute, need_equal_offsets, sends_slices

__all__ = ["ROWS", "device_groups"]

Operands = Sequence[Sequence[Value]]
#: (interpreter, instruction, operand arrays of the members in order) -> result arrays per member
GroupRule = Callable[[Interpreter, Instruction, Sequence[Sequence[Array]]], Sequence[Sequence[Array]]]


def device_groups(m: Interpreter, i: Instruction) -> Groups:
    """The groups of a collective as device numbers, members in order of position."""
    found: Groups = m.constant(i, lambda: groups_of_devices(i, m.num_partitions, m.replica_count))
    return found


def _need_all(i: Instruction, members: Sequence[int], devices: Mapping[int, int]) -> None:
    missing = [d for d in members if d not in devices]
    if missing:
        raise RunError(
            f"devices {missing} do not take part in {i.opcode} of devices {list(members)}: the program would hang",
            where=i.place,
            fix="all members of a group must take the same branches and loop trips",
        )


def _by_group(rule: GroupRule) -> OpMeaning:
    def run(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
        position = {d: k for k, d in enumerate(devices)}
        out: list[Value] = [None] * len(devices)
        for members in device_groups(m, i):
            if not any(d in position for d in members):
                continue
            _need_all(i, members, position)
            for d, results in zip(members, rule(m, i, [operands[position[d]] for d in members]), strict=True):
                out[position[d]] = tuple(results) if len(results) > 1 or _result_is_tuple(i) else results[0]
        lost = [d for d, v in zip(devices, out, strict=True) if v is None]
        if lost:
            raise RunError(f"no group of {i.opcode} contains the devices {lost}", where=f"%{i.name}")
        return out

    return lockstep(run)


def _result_is_tuple(i: Instruction) -> bool:
    return i.shape.is_tuple and not i.opcode.endswith("-start")


def _reduce(m: Interpreter, body: Computation, values: Sequence[Array]) -> Array:
    """Members combined in order of position; small floats in f32, rounded once."""
    kind = values[0].dtype
    opcode = reducer_opcode(body)
    if opcode is not None:
        total = values[0].astype(COMPUTE[kind], copy=False)
        for v in values[1:]:
            total = MONOIDS[opcode](total, v.astype(COMPUTE[kind], copy=False))
        return cast(total, kind)
    total = values[0]
    for v in values[1:]:
        total = cast(np.broadcast_to(apply_body(m, body, [total, v])[0], v.shape), kind)
    return total


def _all_reduce(m: Interpreter, i: Instruction, members: Sequence[Sequence[Array]]) -> Sequence[Sequence[Array]]:
    totals = [_reduce(m, i.attrs["to_apply"], column) for column in zip(*members, strict=True)]
    return [totals] * len(members)


def _all_gather(m: Interpreter, i: Instruction, members: Sequence[Sequence[Array]]) -> Sequence[Sequence[Array]]:
    axis = i.attrs["dimensions"][0]
    whole = [np.concatenate(column, axis=axis) for column in zip(*members, strict=True)]
    return [whole] * len(members)


def _reduce_scatter(m: Interpreter, i: Instruction, members: Sequence[Sequence[Array]]) -> Sequence[Sequence[Array]]:
    axis = i.attrs["dimensions"][0]
    totals = [_reduce(m, i.attrs["to_apply"], column) for column in zip(*members, strict=True)]
    return list(zip(*(np.split(t, len(members), axis=axis) for t in totals), strict=True))


def _all_to_all(m: Interpreter, i: Instruction, members: Sequence[Sequence[Array]]) -> Sequence[Sequence[Array]]:
    """Piece j of member k becomes piece k of member j."""
    if not i.attrs.get("dimensions"):
        return list(zip(*members, strict=True))
    axis, count = i.attrs["dimensions"][0], len(members)
    pieces = [[np.split(x, count, axis=axis) for x in operands] for operands in members]
    return [
        [np.concatenate([pieces[k][n][j] for k in range(count)], axis=axis) for n in range(len(members[0]))]
        for j in range(count)
    ]


def _collective_broadcast(
    m: Interpreter, i: Instruction, members: Sequence[Sequence[Array]]
) -> Sequence[Sequence[Array]]:
    """The value of the member at the root, which is the first one unless the last operand names it."""
    if not i.attrs.get("has_dynamic_root"):
        return [members[0]] * len(members)
    *data, roots = members[0]
    return [[members[int(roots[k])][k] for k in range(len(data))]] * len(members)


def _broadcast_row() -> OpMeaning:
    """Devices outside every group receive zeros."""
    grouped = _by_group(_collective_broadcast)

    def run(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
        inside = {d for g in device_groups(m, i) for d in g}
        here = [k for k, d in enumerate(devices) if d in inside]
        count = len(list(i.shape.leaves()))
        out: list[Value] = [_pack(i, [np.zeros_like(x) for x in o[:count]]) for o in operands]
        assert grouped.lockstep is not None
        results = grouped.lockstep(m, i, [devices[k] for k in here], [operands[k] for k in here])
        for k, v in zip(here, results, strict=True):
            out[k] = v
        return out

    return lockstep(run)


def _pack(i: Instruction, results: Sequence[Array]) -> Value:
    return tuple(results) if _result_is_tuple(i) else results[0]


def _ragged_row() -> OpMeaning:
    """Member k writes rows [offset, offset + size) of its input into member j's output at k's output offset."""

    def run(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
        position = {d: k for k, d in enumerate(devices)}
        outs: list[Value] = [o[1].copy() for o in operands]
        for members in device_groups(m, i):
            if not any(d in position for d in members):
                continue
            _need_all(i, members, position)
            places = [position[d] for d in members]
            starts, sizes, targets, received = ([operands[k][n].reshape(-1) for k in places] for n in range(2, 6))
            rows = (operands[places[0]][n].shape[0] for n in range(2))
            fault = RaggedGroup(members, starts, sizes, targets, received, *rows).fault(i.place)
            if fault is not None:
                raise fault
            per_peer = len(sizes[0]) // len(members)
            for sender, k in enumerate(places):
                for u, size in enumerate(sizes[sender].tolist()):
                    begin, target = int(starts[sender][u]), int(targets[sender][u])
                    receiver = places[u // per_peer]
                    outs[receiver][target : target + size] = operands[k][0][begin : begin + size]
        return outs

    return lockstep(run)


def _permute(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
    """The sender's operand; zeros for devices that nobody sends to."""
    if sends_slices(i):
        return _permute_slices(m, i, devices, operands)
    position = {d: k for k, d in enumerate(devices)}
    source: dict[int, int] = {}
    for s, t in m.constant(i, lambda: pairs_of_devices(i, m.num_partitions, m.replica_count)):
        if s in position or t in position:
            _need_all(i, (s, t), position)
            source[t] = s
    out: list[Value] = []
    for d, own in zip(devices, operands, strict=True):
        if d in source:
            out.append(_pack(i, operands[position[source[d]]]))
        else:
            out.append(_pack(i, [np.zeros_like(x) for x in own]))
    return out


def _permute_slices(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
    first, *others = (np.array(list(flatten((o[2], o[3])))) for o in operands)
    need_equal_offsets(i, all(np.array_equal(first, o) for o in others))
    expanded = m.constant(i, lambda: expand_permute(i, m.num_partitions, m.replica_count))
    return m.run(expanded, devices, operands)


def _start(row: OpMeaning) -> OpMeaning:
    """(operands, results) as the asynchronous start gives them."""
    inner = row.lockstep
    assert inner is not None

    def run(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
        results = inner(m, i, devices, operands)
        return [(o[0] if len(o) == 1 else tuple(o), r) for o, r in zip(operands, results, strict=True)]

    return lockstep(run)


def _evaluate_done(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    return operands[0][1]


def _same(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    return operands[0]


def _partition_id(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
    return [np.asarray(d % m.num_partitions, np.uint32) for d in devices]


def _replica_id(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
    return [np.asarray(d // m.num_partitions, np.uint32) for d in devices]


ROWS: Mapping[str, OpMeaning] = {
    "all-reduce": _by_group(_all_reduce),
    "all-reduce-start": _by_group(_all_reduce),
    "all-reduce-done": OpMeaning(_same),
    "all-gather": _by_group(_all_gather),
    "all-gather-start": _start(_by_group(_all_gather)),
    "all-gather-done": OpMeaning(_evaluate_done),
    "reduce-scatter": _by_group(_reduce_scatter),
    "all-to-all": _by_group(_all_to_all),
    "ragged-all-to-all": _ragged_row(),
    "collective-broadcast": _broadcast_row(),
    "collective-permute": lockstep(_permute),
    "collective-permute-start": _start(lockstep(_permute)),
    "collective-permute-done": OpMeaning(_evaluate_done),
    "partition-id": lockstep(_partition_id),
    "replica-id": lockstep(_replica_id),
}
