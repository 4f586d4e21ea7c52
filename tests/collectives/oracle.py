"""Independent meaning of each collective, straight from the table in collectives/call/call.py; and random cases."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.call import BufferRef, CollectiveCall, CollectiveOperand, SharedSection
from shardc.collectives.call.memory import aligned_bytes
from shardc.collectives.call.transport import Transport
from shardc.hlo.ir.groups import AxisGroups, AxisPairs, ListGroups, ListPairs
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef
from shardc.hlo.ir.types import DTYPES, DType
from shardc.native.drive.drive_loop import PERFORM_TYPE, WHOLE
from shardc.native.threads.pool import Row, pool, pool_object

AXES = [
    (Mesh({"x": 2, "y": 4}), (AxisRef("x"),)),
    (Mesh({"x": 2, "y": 4}), (AxisRef("y"), AxisRef("x"))),
    (Mesh({"x": 2, "y": 4}), (AxisRef("y", 2, 2),)),
    (Mesh({"x": 2, "y": 4}), (AxisRef("y", 1, 2), AxisRef("x"))),
    (Mesh({"x": 8}, device_ids=(3, 1, 4, 0, 7, 5, 2, 6)), (AxisRef("x"),)),
    (Mesh({"x": 2, "y": 3}), (AxisRef("y"),)),
    (Mesh({"x": 7}), (AxisRef("x"),)),
    (Mesh({"x": 4}), (AxisRef("x"),)),
    (Mesh({"x": 4}), (AxisRef("x", 2, 2),)),
    (Mesh({"x": 4}), ()),
]
OPS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Byte arrays of one device; a `BufferRef` names a range in one of them."""

    arena: NDArray[np.uint8]
    arguments: Sequence[NDArray[np.uint8]]
    results: Sequence[NDArray[np.uint8]]
    constants: NDArray[np.uint8]

    def view(self, ref: BufferRef, dtype: DType) -> NDArray[Any]:
        """The elements that ``ref`` names, without a copy."""
        match ref.space:
            case "arena":
                whole = self.arena
            case "argument":
                whole = self.arguments[ref.index]
            case "result":
                whole = self.results[ref.index]
            case _:
                whole = self.constants
        return whole[ref.offset : ref.offset + ref.nbytes].view(dtype.numpy)


@dataclass
class Case:
    call: CollectiveCall
    num_devices: int
    operands: list[list[np.ndarray]]  # per device, per operand


def sizes(op: str, n: int, g: int) -> tuple[int, int]:
    """(operand elements, result elements)"""
    return {
        "all-gather": (n, n * g),
        "reduce-scatter": (n * g, n),
        "all-to-all": (n * g, n * g),
    }.get(op, (n, n))


def random_values(rng: np.random.Generator, dtype: DType, n: int) -> np.ndarray:
    if dtype.kind == "pred":
        return rng.integers(0, 2, n).astype(bool)
    if dtype.is_complex:
        return (rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype(dtype.numpy)
    if dtype.is_float:
        return rng.standard_normal(n).astype(dtype.numpy)
    return rng.integers(0, 1 << min(dtype.bits - 1, 30), n).astype(dtype.numpy)


def make_case(
    seed: int, op: str, axes_index: int, dtypes: tuple[str, ...], n: int, reduction: str = "add", index: int = 0
) -> Case:
    rng = np.random.default_rng(seed)
    mesh, axes = AXES[axes_index]
    g = AxisGroups(mesh, axes).group_size
    if op == "collective-permute":
        targets = rng.permutation(g)
        pairs = tuple((int(s), int(t)) for s, t in enumerate(targets) if rng.random() < 0.8)
        groups = AxisPairs(mesh, axes, pairs) if seed % 2 else ListPairs(AxisPairs(mesh, axes, pairs).expand())
    else:
        groups = AxisGroups(mesh, axes) if seed % 2 else ListGroups(AxisGroups(mesh, axes).expand())
    operands, offset = [], 128
    for name in dtypes:
        dtype = DTYPES[name]
        a, b = sizes(op, n, g)
        first = BufferRef("arena", 0, offset, a * dtype.nbytes)
        offset += -(-first.nbytes // 64) * 64
        second = BufferRef("arena", 0, offset, b * dtype.nbytes)
        offset += -(-second.nbytes // 64) * 64
        operands.append(CollectiveOperand(first, second, dtype, a))
    reducing = op in ("all-reduce", "reduce-scatter")
    call = CollectiveCall(index, op, reduction if reducing else "", groups, tuple(operands), f"{op}.{seed}", "t.py:1")
    values = [[random_values(rng, o.dtype, o.count) for o in operands] for _ in range(mesh.size)]
    return Case(call, mesh.size, values)


def memory_for(case: Case, device: int) -> DeviceMemory:
    end = max((r.offset + r.nbytes for o in case.call.operands for r in (o.operand, o.result)), default=128)
    arena = aligned_bytes(end + 64)
    arena[:] = 0xAB
    memory = DeviceMemory(arena, (), (), aligned_bytes(0))
    for o, value in zip(case.call.operands, case.operands[device], strict=True):
        memory.view(o.operand, o.dtype)[...] = value
    return memory


def perform(
    transport: Transport,
    calls: Sequence[CollectiveCall],
    devices: int,
    memories: Mapping[int, DeviceMemory],
    order: Sequence[tuple[int, int]] | None = None,
    sections: Sequence[SharedSection] = (),
    look: Callable[[], None] = lambda: None,
) -> None:
    """Do ``calls`` by the collective executor of ``transport``; ``memories`` are those of this process.

    ``order`` lists (call, phase); without it the calls are done whole, one after another. ``look`` is called before the
    collective executor is closed and what members share is gone.
    """
    tables = [
        [(ctypes.c_void_p * max(1, len(t)))(*(b.ctypes.data for b in t)) for t in (m.arguments, m.results)]
        for m in memories.values()
    ]
    rows = (Row * len(memories))(
        *(
            Row(m.arena.ctypes.data, *map(ctypes.addressof, t), m.constants.ctypes.data, d, 0)
            for (d, m), t in zip(memories.items(), tables, strict=True)
        )
    )
    more = {"sections": sections} if sections else {}
    executor = transport.connect(calls, transport.ownership(devices), rows, pool(pool_object()), **more)
    function = PERFORM_TYPE(executor.function)
    for number, phase in order or [(n, WHOLE) for n in range(len(calls))]:
        call = calls[number]
        while (answer := function(executor.state, call.index, phase, 50_000_000)) == 1:
            executor.tick()
        if answer:
            raise executor.failure(answer, call.index)
    look()
    executor.close()


def tree(reduction: str, dtype: DType, members: list[np.ndarray]) -> np.ndarray:
    """The fixed tree, written recursively over explicit positions."""
    wide = np.float32 if dtype.is_float and dtype.bits < 32 else dtype.numpy
    table = {
        "add": np.add,
        "multiply": np.multiply,
        # The first of equal ones (zeros may differ in sign), the first NaN.
        "maximum": lambda a, b: np.where((a >= b) | np.not_equal(a, a), a, b),
        "minimum": lambda a, b: np.where((a <= b) | np.not_equal(a, a), a, b),
        "and": np.logical_and if dtype.kind == "pred" else np.bitwise_and,
        "or": np.logical_or if dtype.kind == "pred" else np.bitwise_or,
    }

    def fold(lo: int, hi: int, width: int) -> np.ndarray:
        if width == 1:
            return members[lo].astype(wide)
        middle = lo + width // 2
        if middle >= hi:
            return fold(lo, hi, width // 2)
        return table[reduction](fold(lo, middle, width // 2), fold(middle, hi, width // 2))

    width = 1
    while width < len(members):
        width *= 2
    return fold(0, len(members), width).astype(dtype.numpy)


def expected(case: Case) -> list[list[np.ndarray]]:
    """Results per device and operand."""
    call = case.call
    out: list[list[np.ndarray]] = [[] for _ in range(case.num_devices)]
    for i, o in enumerate(call.operands):
        values = [v[i] for v in case.operands]
        if call.op == "collective-permute":
            results = [np.zeros(o.count, o.dtype.numpy)] * case.num_devices
            for s, t in call.groups.expand():
                results[t] = values[s]
        else:
            results = [np.empty(0)] * case.num_devices
            for group in call.groups.expand():
                members = [values[d] for d in group]
                for q, d in enumerate(group):
                    chunks = [np.split(m, len(group))[q] for m in members] if o.count % len(group) == 0 else []
                    if call.op == "all-reduce":
                        results[d] = tree(call.reduction, o.dtype, members)
                    elif call.op == "all-gather":
                        results[d] = np.concatenate(members)
                    elif call.op == "reduce-scatter":
                        results[d] = tree(call.reduction, o.dtype, chunks)
                    else:
                        results[d] = np.concatenate(chunks)
        for d in range(case.num_devices):
            out[d].append(results[d])
    return out


def assert_same(case: Case, device: int, memory: DeviceMemory, want: list[np.ndarray]) -> None:
    for i, o in enumerate(case.call.operands):
        got = memory.view(o.result, o.dtype)
        assert got.tobytes() == want[i].astype(o.dtype.numpy).tobytes(), (case.call, device, i, got, want[i])
