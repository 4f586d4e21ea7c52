"""Collectives of one kind over the same groups become one with several operands: one latency instead of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardc.costs.kernels.peak_memory import computation_peak
from shardc.hlo.ir.asynchronous import was_asynchronous
from shardc.hlo.ir.ir import Computation, Instruction, Module, Origin, rebuild_computation, rebuild_computations
from shardc.hlo.ir.types import tuple_shape
from shardc.hlo.part_names import whole_of
from shardc.partitioner.optimise.group import in_groups
from shardc.partitioner.optimise.reduction import reducer
from shardc.partitioner.reshard.joined_bytes import JOINED_BYTES

__all__ = ["CombineCollectives", "joined_origin"]

_REDUCING = ("all-reduce", "reduce-scatter")
#: By what part of the peak halos may raise it that come together: the rows of the last reader are there for the first.
_HALO_ROOM = 1 / 256
#: What may stand as early as its operands: on a processor it costs next to nothing.
_MOVING = frozenset(
    (
        "bitcast",
        "broadcast",
        "collective-permute",
        "concatenate",
        "constant",
        "dynamic-slice",
        "get-tuple-element",
        "parameter",
        "reshape",
        "slice",
    )
)


@dataclass(frozen=True, slots=True)
class CombineCollectives:
    """Join independent collectives of equal groups, dimension, reduction and type, up to ``max_bytes`` together.

    They wait for the last of them, so operands and results live longer: they are joined only where the estimated
    peak of their computation does not rise. Permutes (of halos, for what is computed next) stand where the first one
    does, and are joined only where no reader has to wait, as is what would need more memory.
    """

    max_bytes: int = JOINED_BYTES
    opcodes: tuple[str, ...] = ("all-reduce", "all-gather", "reduce-scatter", "collective-permute")
    name: str = "combine-collectives"
    why: str = "many small collectives cost a latency each"

    def run(self, module: Module) -> Module:
        peaks: dict[Computation, int] = {}
        return rebuild_computations(
            module, lambda c, called: self._combine(rebuild_computation(c, None, called), peaks)
        )

    def _combine(self, computation: Computation, peaks: dict[Computation, int]) -> Computation:
        """All keys at once if that may be, else one after the other."""
        kinds = self._kinds(computation)
        joined = self._try_joining(computation, kinds, peaks) if kinds else computation
        if joined is not None:
            return joined
        for key in kinds:
            one = {key: self._kinds(computation)[key]}
            joined = self._try_joining(computation, one, peaks) or self._try_joining(computation, one, peaks, near=True)
            computation = joined or computation
        return computation

    def _kinds(self, computation: Computation) -> dict[object, list[Instruction]]:
        """Collectives by key, where there are several."""
        found: dict[object, list[Instruction]] = {}
        for i in computation:
            key = _key(i) if i.opcode in self.opcodes else None
            if key is not None:
                found.setdefault(key, []).append(i)
        return {k: members for k, members in found.items() if len(members) > 1}

    def _try_joining(
        self,
        computation: Computation,
        kinds: Mapping[object, list[Instruction]],
        peaks: dict[Computation, int],
        *,
        near: bool = False,
    ) -> Computation | None:
        """With these joined; None when the estimated peak would rise, or when they would wait for each other."""
        reads = _first_readers(computation, {m for members in kinds.values() for m in members})
        buckets: list[list[Instruction]] = []
        for members in kinds.values():
            for level in _independent(computation, members):
                runs = _near(level, reads) if near or level[0].opcode == "collective-permute" else [level]
                buckets += [bucket for run in runs for bucket in self._cut_buckets(run) if len(bucket) > 1]
        if not buckets:
            return computation
        joined = _join(_early(computation, buckets), buckets)
        peak = computation_peak(computation, peaks)
        if all(b[0].opcode == "collective-permute" for b in buckets):
            peak += int(peak * _HALO_ROOM)
        return None if joined is None or computation_peak(joined, peaks) > peak else joined

    def _cut_buckets(self, members: Sequence[Instruction]) -> list[list[Instruction]]:
        out: list[list[Instruction]] = [[]]
        size = 0
        for m in members:
            nbytes = max(m.shape.nbytes, m.operands[0].shape.nbytes)
            if out[-1] and size + nbytes > self.max_bytes:
                out.append([])
                size = 0
            out[-1].append(m)
            size += nbytes
        return out


def _key(i: Instruction) -> object:
    """What members have in common: opcode, who talks to whom, dimension, reduction, type. None: not to be joined."""
    attrs = i.attrs
    if len(i.operands) != 1 or i.shape.is_tuple or "slice_sizes" in attrs or was_asynchronous(i):
        return None
    if i.opcode in _REDUCING and not reducer(i):
        return None
    groups = attrs.get("replica_groups", attrs.get("source_target_pairs"))
    ids = (bool(attrs.get("channel_id")), attrs.get("use_global_device_ids"))
    return (i.opcode, groups, ids, attrs.get("dimensions"), reducer(i), i.shape.dtype)


def _independent(computation: Computation, members: Sequence[Instruction]) -> list[list[Instruction]]:
    """``members`` in program order, by how many of their kind come before: equally many do not need each other."""
    before: dict[Instruction, int] = {}
    wanted = set(members)
    levels: dict[int, list[Instruction]] = {}
    place = {i: n for n, i in enumerate(computation)}
    places = [place[m] for m in members]
    for i in computation.instructions[min(places) : max(places) + 1]:
        level = max((before.get(o, 0) for o in i.operands), default=0)
        if i in wanted:
            levels.setdefault(level, []).append(i)
            level += 1
        before[i] = level
    return [level for level in levels.values() if len(level) > 1]


def _first_readers(computation: Computation, members: set[Instruction]) -> dict[Instruction, tuple[int, int]]:
    """From where on each member could stand, what only moves data standing before it, and where it is read first."""
    ready: dict[Instruction, int] = {}
    after: dict[Instruction, int] = {}
    first: dict[Instruction, int] = {}
    for n, i in enumerate(computation):
        for o in i.operands:
            if o in members:
                first.setdefault(o, n)
        ready[i] = max((after[o] for o in i.operands), default=0)
        moves = i.opcode in _MOVING or (i.shape.is_array and not i.shape.dims)
        after[i] = ready[i] if moves else n
    return {m: (ready[m], first.get(m, len(computation.instructions))) for m in members}


def _near(members: Sequence[Instruction], reads: Mapping[Instruction, tuple[int, int]]) -> list[list[Instruction]]:
    """``members`` cut where one would make the readers of those before it wait."""
    out: list[list[Instruction]] = []
    read = 0
    for m in members:
        place, first = reads[m]
        if not out or place > read:
            out.append([])
            read = first
        out[-1].append(m)
        read = min(read, first)
    return out


def _early(computation: Computation, buckets: list[list[Instruction]]) -> Computation:
    """Permutes that are to be joined stand where the first one does, as far as their operands allow."""
    place = {i: n for n, i in enumerate(computation)}
    wanted = dict(place)
    for bucket in buckets:
        if bucket[0].opcode == "collective-permute":
            wanted.update(dict.fromkeys(bucket, min(place[m] for m in bucket)))
    for i in reversed(computation.instructions):
        for o in i.operands:
            if o.opcode in _MOVING and wanted[i] < place[i]:
                wanted[o] = min(wanted[o], wanted[i])
    for i in computation:
        wanted[i] = max((wanted[i], *(wanted[o] for o in i.operands)))
    order = sorted(computation, key=lambda i: (wanted[i], place[i]))
    return computation if order == list(computation) else Computation(computation.name, order, computation.root)


def _join(computation: Computation, buckets: list[list[Instruction]]) -> Computation | None:
    """``computation`` with each bucket as one instruction; None when buckets wait for each other."""
    placed = in_groups(computation, buckets)
    if placed is None:
        return None
    bucket_of = {m: b for b in buckets for m in b}
    parts = Counter(whole_of(i.name) for i in placed if whole_of(i.name) != i.name)
    order: list[Instruction] = []
    new: dict[Instruction, Instruction] = {}
    for i in placed:
        if i not in new:
            _emit(i, bucket_of, new, order, parts)
    return Computation(computation.name, order, new[computation.root])


def _emit(
    i: Instruction,
    bucket_of: dict[Instruction, list[Instruction]],
    new: dict[Instruction, Instruction],
    order: list[Instruction],
    parts: Mapping[str, int],
) -> None:
    """Append ``i``, or the combined instruction of its bucket, with its new operands; ``parts`` counts those of each
    collective that was taken apart."""
    if i not in bucket_of:
        operands = tuple(new[o] for o in i.operands)
        same = all(a is b for a, b in zip(operands, i.operands, strict=True))
        new[i] = i if same else i.replace(operands=operands)
        order.append(new[i])
        return
    members = bucket_of[i]
    first = members[0]
    whole = first.replace(
        shape=tuple_shape(*(m.shape for m in members)),
        operands=tuple(new[m.operands[0]] for m in members),
        name=_joined_name(members, parts),
        sharding=None,
        origin=joined_origin(members),
    )
    order.append(whole)
    for index, m in enumerate(members):
        attrs = {"index": index}
        part = Instruction(
            "get-tuple-element",
            m.shape,
            (whole,),
            attrs,
            name=f"{m.name}.part",
            sharding=m.sharding,
            metadata=m.metadata,
            origin=m.origin,
        )
        new[m] = part
        order.append(part)


def _joined_name(members: Sequence[Instruction], parts: Mapping[str, int]) -> str:
    """The name of the collective whose parts are joined again, if these are all of them; else that of the first."""
    wholes = {whole_of(m.name) for m in members}
    first = members[0].name
    again = len(wholes) == 1 and parts.get(whole_of(first)) == len(members)
    return whole_of(first) if again else first


def joined_origin(members: Sequence[Instruction]) -> Origin:
    """The reasons of all members, each once."""
    origins = [m.origin for m in members if m.origin is not None]
    reasons = list(dict.fromkeys(o.reason for o in origins))
    return Origin(
        "; ".join(reasons),
        "combine",
        ", ".join(dict.fromkeys(o.value for o in origins)),
        origins[0].axes if origins else (),
        tuple(cause for o in origins for cause in o.causes),
    )
