"""Random ragged exchanges for transports, and what NumPy says of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardc.collectives.call.call import BufferRef, CollectiveCall, CollectiveOperand, RaggedShape
from shardc.collectives.call.memory import aligned_bytes
from shardc.hlo.ir.groups import ListGroups
from shardc.hlo.ir.types import DTYPES
from tests.collectives.oracle import DeviceMemory, random_values

S64 = DTYPES["s64"]


@dataclass
class RaggedCase:
    """Values by device: data, output, starts, sizes, targets, received."""

    call: CollectiveCall
    values: list[list[np.ndarray]]

    @property
    def num_devices(self) -> int:
        return len(self.values)


def ragged_tables(
    rng: np.random.Generator, g: int, per_peer: int, data_rows: int, output_rows: int, *, once: bool = False
) -> list[np.ndarray]:
    """[starts, sizes, targets, received] of a group, each (members, g * per_peer), in random order at the receiver.

    ``once``: a row is sent at most once, and updates without rows have their target behind the output.
    """
    u = g * per_peer
    sizes = np.zeros((g, u), np.int64)
    targets = np.full((g, u), output_rows if once else 0, np.int64)
    received = np.zeros((g, u), np.int64)
    for q in range(g):
        ends = np.sort(rng.integers(0, output_rows + 1, 2 * u)).reshape(u, 2)
        for k, (begin, end) in zip(rng.permutation(u), ends, strict=True):
            p, n = divmod(int(k), per_peer)
            room = data_rows - sizes[p].sum() * once
            size = min(end - begin, room) * (rng.random() < 0.8)
            sizes[p, q * per_peer + n], received[q, k] = size, size
            if size or not once:
                targets[p, q * per_peer + n] = begin
    starts = np.cumsum(sizes, 1) - sizes if once else rng.integers(0, data_rows - sizes + 1)
    return [starts, sizes, targets, received]


def ragged_case(
    seed: int, groups: tuple[tuple[int, ...], ...], dtype: str, row: int, *, per_peer: int = 1, rows: int = 9,
    index: int = 0, in_place: bool = False, asynchronous: bool = False,
) -> RaggedCase:  # fmt: skip
    """``groups`` of devices; ``row`` elements of ``dtype`` in each of about ``rows`` rows."""
    rng = np.random.default_rng(seed)
    kind = DTYPES[dtype]
    data_rows, output_rows = rows, rows + 3
    g = len(groups[0])
    sizes = [data_rows * row, output_rows * row, *[g * per_peer] * 4]
    operands, offset = [], 128
    for k, count in enumerate(sizes):
        item = kind if k < 2 else S64
        refs = []
        for nbytes in (count * item.nbytes, count * item.nbytes * (k == 1)):
            refs.append(BufferRef("arena", 0, offset, nbytes))
            offset += -(-nbytes // 64) * 64
        if k == 1 and in_place:
            refs[1] = refs[0]
        operands.append(CollectiveOperand(refs[0], refs[1] if k == 1 else BufferRef("arena", 0, 0, 0), item, count))
    shape = RaggedShape(data_rows, output_rows, row * kind.nbytes)
    call = CollectiveCall(
        index, "ragged-all-to-all", "", ListGroups(groups), tuple(operands), f"r.{seed}", "t.py:1",
        asynchronous=asynchronous, ragged=shape,
    )  # fmt: skip
    values: list[list[np.ndarray]] = [[] for _ in range(sum(map(len, groups)))]
    for group in groups:
        tables = ragged_tables(rng, g, per_peer, data_rows, output_rows)
        for p, d in enumerate(group):
            values[d] = [random_values(rng, kind, n) for n in sizes[:2]] + [t[p] for t in tables]
    return RaggedCase(call, values)


def ragged_memory(case: RaggedCase, device: int) -> DeviceMemory:
    """A device's memory with its operands."""
    end = max(r.offset + r.nbytes for o in case.call.operands for r in (o.operand, o.result))
    memory = DeviceMemory(aligned_bytes(end + 64), (), (), aligned_bytes(0))
    memory.arena[:] = 0xAB
    for o, value in zip(case.call.operands, case.values[device], strict=True):
        memory.view(o.operand, o.dtype)[...] = value
    return memory


def ragged_result(case: RaggedCase, device: int) -> np.ndarray:
    """The rows of one device afterwards, as JAX's documentation says it for the receiver."""
    shape = case.call.ragged
    assert shape is not None
    (group,) = (g for g in case.call.groups.expand() if device in g)
    position, per_peer = group.index(device), case.call.operands[2].count // len(group)
    result = case.values[device][1].reshape(shape.output_rows, -1).copy()
    for sender in group:
        data, _, starts, sizes, targets, _ = case.values[sender]
        for u in range(position * per_peer, (position + 1) * per_peer):
            rows = data.reshape(shape.data_rows, -1)[starts[u] : starts[u] + sizes[u]]
            result[targets[u] : targets[u] + sizes[u]] = rows
    return result.reshape(-1)


def sent_bytes(case: RaggedCase) -> float:
    """Bytes of rows that a device sends, on average."""
    assert case.call.ragged is not None
    return sum(int(v[3].sum()) for v in case.values) * case.call.ragged.row_bytes / case.num_devices


def assert_ragged(case: RaggedCase, device: int, memory: DeviceMemory) -> None:
    """The result and its neighbourhood are right."""
    o = case.call.operands[1]
    assert memory.view(o.result, o.dtype).tobytes() == ragged_result(case, device).tobytes(), (device, case.call.name)
