"""Lower what somebody else has scheduled, as it is: its order, its fusions, its asynchronous pairs.

XLA prints such programs behind all its passes (``is_scheduled=true``). None of our passes runs: every instruction
becomes the step that it is, library calls by what they compute, calls in place. The result can be simulated and its
memory planned; it is not meant to be emitted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from types import MappingProxyType

from shardc.compiler.lower.buffers.assign_buffers import assign_buffers
from shardc.compiler.lower.buffers.linearise import Leaves, Linearisation, Rule, array_leaves, linearise_with
from shardc.compiler.lower.expand.library_calls import equivalent_call
from shardc.compiler.lower.lowered import Constants, Lowered, Step
from shardc.hlo.errors import InputError, UnsupportedError
from shardc.hlo.ir.asynchronous import is_done, is_start, join_pair
from shardc.hlo.ir.groups import AxisGroups, AxisPairs, IotaGroups, ListGroups, ListPairs
from shardc.hlo.ir.host_memory.host_moves import is_host_move
from shardc.hlo.ir.host_memory.memory_kinds import placed_in
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.participants import groups_of_devices, pairs_of_devices, transfer_pairs
from shardc.hlo.units import count_text
from shardc.partitioner.prepare.name_axes import name_axes

__all__ = ["is_scheduled", "lower_as_scheduled"]

#: Custom calls that say something about values, and compute nothing.
_MARKERS = frozenset(
    {
        *("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint", "AllocateBuffer"),
        *("annotate_device_placement", "MoveToHost", "MoveToDevice", "ShardBarrierFrom", "ShardBarrierTo"),
    }
)
#: Buffers of a program in which calls are still written out.
_MOST = 2_000_000
#: What goes to or comes from the host while the program runs.
_FEEDS = ("infeed", "outfeed")


def is_scheduled(module: Module) -> bool:
    """Whether the module's text declares that its order is a schedule."""
    return bool(module.attrs.get("is_scheduled"))


def lower_as_scheduled(module: Module, mesh: Mesh | None = None) -> Lowered:
    """The steps of a scheduled per-device ``module``. `Lowered.notes` say what could only be guessed.

    On a ``mesh``, groups of devices are named by its axes where they follow them. Raises `InputError` for a mesh of
    another number of devices, `UnsupportedError` for what is no step at all.

    Example: a fusion is one kernel, whatever is in it, and between ``all-gather-start`` and ``all-gather-done`` goes on
    what stands between them.
    """
    module = _counted(module)
    devices = module.num_partitions * module.replica_count
    if mesh is not None and mesh.size != devices:
        raise InputError(
            f"mesh {mesh} has {count_text(mesh.size, 'device')}, but the program is scheduled for {devices}",
            fix=f"give a mesh of {count_text(devices, 'device')}, or omit the mesh",
        )
    module = module if mesh is None else name_axes(module, mesh)
    reading = _Reading(module)
    linear = linearise_with(module, Linearisation(pooled=False, rules=reading.rules()))
    return Lowered(
        module, linear.steps, linear.parameters, linear.results, assign_buffers(linear), Constants(b""),
        notes=tuple(reading.notes()),
    )  # fmt: skip


def _counted(module: Module) -> Module:
    """With as many devices as collectives speak of, where the header has fewer."""
    devices = module.num_partitions * module.replica_count
    most = devices
    for i in module.instructions():
        groups = i.attrs.get("replica_groups", i.attrs.get("source_target_pairs"))
        if isinstance(groups, AxisGroups | AxisPairs):
            most = max(most, groups.mesh.size)
        elif isinstance(groups, IotaGroups):
            most = max(most, groups.num_devices)
        elif groups is not None:
            most = max([most, *(d + 1 for g in groups.expand() for d in g)])
    return module if most == devices else module.with_(num_partitions=most, replica_count=1)


class _Reading:
    """Rules for what only other people's programs have, and what there is to say about them."""

    def __init__(self, module: Module) -> None:
        self._partitions, self._replicas = module.num_partitions, module.replica_count
        self._unknown: Counter[str] = Counter()
        self._other: Counter[str] = Counter()
        #: Starts whose done stands in the same computation; sends by channel, with the block that they are in.
        self._awaited = {_first(i) for i in module.instructions() if _is_end(i)}
        self._sends: dict[object, tuple[Instruction, list[Step]]] = {}
        self._inlined: dict[Instruction, Leaves] = {}

    def rules(self) -> dict[str, Rule]:
        starts = ("all-reduce-start", "all-gather-start", "collective-permute-start", "async-start")
        dones = ("all-reduce-done", "all-gather-done", "collective-permute-done", "async-done")
        collectives = (
            *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"),
            *("collective-broadcast", "ragged-all-to-all"),
        )
        return {
            **dict.fromkeys(collectives, self._collective),
            **dict.fromkeys(starts, self._start),
            **dict.fromkeys(dones, self._done),
            **dict.fromkeys(_FEEDS, self._feed),
            **dict.fromkeys(("async-update", "optimization-barrier", "domain", "add-dependency"), _same),
            "call": _call,
            "copy-start": self._copy_start,
            "copy-done": _copy_done,
            "custom-call": self._custom_call,
            "recv": _recv,
            "recv-done": self._recv_done,
            "send": self._send,
            "send-done": self._send_done,
        }

    def notes(self) -> Iterable[str]:
        """One line for each kind of thing that was guessed."""
        if self._unknown:
            calls = ", ".join(f"{n} x {name}" for name, n in sorted(self._unknown.items()))
            yield f"custom calls of unknown meaning, with costs from their bytes: {calls}"
        for what, n in sorted(self._other.items()):
            yield f"{what}: {n}"

    # -- collectives ---------------------------------------------------------------------------------------------

    def _resolved(self, i: Instruction) -> Instruction:
        """With groups of devices, where replicas and partitions are both several."""
        listed = i.attrs.get("source_target_pairs", i.attrs.get("replica_groups"))
        if self._replicas == 1 or self._partitions == 1 or isinstance(listed, AxisGroups | AxisPairs):
            return i
        attrs = dict(i.attrs)
        if i.opcode == "collective-permute":
            attrs["source_target_pairs"] = ListPairs(pairs_of_devices(i, self._partitions, self._replicas))
        else:
            attrs["replica_groups"] = ListGroups(groups_of_devices(i, self._partitions, self._replicas))
        return i.replace(attrs=MappingProxyType(attrs))

    def _collective(self, walk: Linearisation, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        return walk.collective(self._resolved(i), operands, steps)

    def _start(self, walk: Linearisation, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        if not is_start(i):
            return self._computed_aside(walk, i, operands, steps)
        what = self._resolved(join_pair(i))
        if i in self._awaited:
            return walk.start(i, what, operands, steps)
        self._other["collectives that another computation awaits, treated as synchronous"] += 1
        results = walk.collective(what, operands, steps)
        flat = tuple(b for leaves in operands for b in leaves)
        return _as_tuple(walk, i, flat, results)

    def _done(self, walk: Linearisation, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        start = _first(i)
        if start in self._inlined:
            return self._inlined[start]
        values = walk.await_collective(start, steps) if is_done(i) else None
        return _second(i, operands[0]) if values is None else values

    def _computed_aside(self, walk: Linearisation, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        """Asynchronous computation, on another stream or thread."""
        self._other["asynchronous computations, computed where they start"] += 1
        values = self._inlined[i] = walk.computation(i.attrs["calls"], operands, steps)
        flat = tuple(b for leaves in operands for b in leaves)
        return _as_tuple(walk, i, flat, values)

    def _send(self, walk: Linearisation, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        """A permute of one value, if it goes to another device."""
        pairs = transfer_pairs(i)
        value = i.operands[0]
        if pairs is None:
            return self._feed(walk, i, operands, steps)
        attrs = MappingProxyType({"source_target_pairs": ListPairs(pairs)})
        what = Instruction(
            "collective-permute", value.shape, (value,), attrs, name=i.name, metadata=i.metadata, origin=i.origin
        )
        flat = operands[:1]
        if i not in self._awaited:
            results = walk.collective(what, flat, steps)
        else:
            self._sends[i.attrs.get("channel_id")] = (i, steps)
            results = walk.start(i, what, flat, steps)
        return _as_tuple(walk, i, flat[0], results)

    def _send_done(self, walk: Linearisation, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        start = _first(i)
        channel = start.attrs.get("channel_id")
        if self._sends.get(channel, (None, None))[0] is start:
            del self._sends[channel]
            walk.await_collective(start, steps)
        return ()

    def _recv_done(self, walk: Linearisation, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        """What this device receives is what another one sends at the same time."""
        start = _first(i)
        sent, block = self._sends.get(start.attrs.get("channel_id"), (None, None))
        if sent is not None and block is steps and start.opcode == "recv":
            del self._sends[start.attrs.get("channel_id")]
            walk.await_collective(sent, steps)
        return operands[0][: len(array_leaves(i.shape))]

    # -- the rest ------------------------------------------------------------------------------------------------

    def _feed(self, walk: Linearisation, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        self._other["transfers from and to the host, without a cost here"] += 1
        return walk.new(i)

    def _copy_start(self, walk: Linearisation, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        """Its value is the copy, what it is of, and a handle; a copy between host and device goes on until its done."""
        (value,) = i.operands
        shape = placed_in(value.shape.plain, i.shape.elements[0]) if value.shape.is_array else value.shape.plain
        copy = Instruction("copy", shape, (value,), name=i.name, metadata=i.metadata, origin=i.origin)
        if is_host_move(copy) and i in self._awaited:
            made = walk.start_move(i, copy, operands, steps)
        else:
            self._other["asynchronous copies, copied where they start"] += 1
            made = walk.kernel(copy, operands, steps)
        handles = array_leaves(i.shape)[2 * len(made) :]
        return (*made, *operands[0], *(walk.buffer(s, i.name) for s in handles))

    def _custom_call(self, walk: Linearisation, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
        target = str(i.attrs.get("custom_call_target", ""))
        if target in _MARKERS:
            same = len(operands) == 1 and [b.shape for b in operands[0]] == [s.plain for s in array_leaves(i.shape)]
            return operands[0] if same else walk.new(i)
        known = equivalent_call(i)
        if known is None:
            self._unknown[target] += 1
            return walk.kernel(i, operands, steps)
        results = walk.new(i)
        steps.append(walk.make_kernel(known, operands, results))
        return results


def _same(walk: Linearisation, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
    return operands[0]


def _call(walk: Linearisation, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
    """In place, as often as it is called."""
    if len(walk.buffers) > _MOST:
        raise UnsupportedError(f"the program's calls make more than {_MOST} values", where=i.place)
    return walk.computation(i.attrs["to_apply"], operands, steps)


def _copy_done(walk: Linearisation, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
    walk.await_collective(i.operands[0], steps)
    return operands[0][: len(array_leaves(i.shape))]


def _recv(walk: Linearisation, i: Instruction, operands: list[Leaves], steps: list[Step]) -> Leaves:
    return walk.new(i)


def _is_end(i: Instruction) -> bool:
    return bool(i.operands) and i.opcode.endswith("-done")


def _first(done: Instruction) -> Instruction:
    """The start behind a done, through updates."""
    i = done.operands[0]
    while i.opcode == "async-update":
        i = i.operands[0]
    return i


def _as_tuple(walk: Linearisation, start: Instruction, operands: Leaves, results: Leaves) -> Leaves:
    """The value of a start: operands, results, and handles; an all-reduce's is its results."""
    handles = array_leaves(start.shape)[len(operands) + len(results) :]
    if start.opcode == "all-reduce-start":
        return results
    return (*operands, *results, *(walk.buffer(s, start.name) for s in handles))


def _second(done: Instruction, value: Leaves) -> Leaves:
    """The results in the value of a start that came from elsewhere."""
    shapes = done.operands[0].shape.elements
    if done.opcode == "all-reduce-done" or len(shapes) < 2:
        return value
    first = len(array_leaves(shapes[0]))
    return value[first : first + len(array_leaves(shapes[1]))]
