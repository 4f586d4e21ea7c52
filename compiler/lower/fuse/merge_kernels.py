"""Merge kernels: those that read, or hand on, the same big arrays become one.

Fusing has made kernels of one result each. Two of them are joined when that moves fewer bytes: an array that both read
is read once; one that the first makes for the second need not be read back, or even written. What a kernel computes
for an index must then be all that the other needs for it, so both lie in one frame (see `row_space`): maps over equal
dimensions, or reductions of rows and what reads their results row by row (softmax, layer norm).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from shardc.compiler.lower.fuse.cluster_order import Cluster, ClusterOrder
from shardc.compiler.lower.fuse.fusion_rules import is_alias, is_block, is_elementwise, is_stack
from shardc.compiler.lower.fuse.merged import body_of, make_merged_kernel, source_of, value_of
from shardc.compiler.lower.fuse.row_space import RowFrame, Spot, frame_of, roots_of, spots_in
from shardc.compiler.lower.schedule.delays import Delays
from shardc.compiler.lower.schedule.order_for_memory import Judged, OrderForMemory, loop_bodies
from shardc.hlo.ir.ir import Computation, Instruction, Module, users_of
from shardc.hlo.ir.make import map_computations, step_computations

__all__ = ["MergeKernels"]

#: What a row kernel may touch per row, so that the row stays in the second level of the cache, in bytes.
_ROW_BYTES = 512 << 10
#: Fewer rows than this are too few for many threads, unless all of them are small, in bytes.
_FEW_ROWS, _SMALL = 16, 256 << 10
#: Most arrays of the frame's size that a kernel reads and writes.
_MOST_STREAMS = 12
#: What a merge saves, as a part of what the smaller kernel moves.
_LEAST_GAIN = 1 / 8


@dataclass(frozen=True, slots=True)
class MergeKernels:
    """Join kernels of at most ``limit`` members together that stand at most ``window`` instructions apart.

    What merging does to memory is weighed in computations of up to ``weighed`` instructions; in longer ones no kernel
    comes to hold more results at once. With ``eager`` nothing that a collective takes is made later by a merge.
    """

    name: str = "merge-kernels"
    why: str = "one kernel reads each big array, and uses its rows while they are in the cache"
    limit: int = 128
    window: int = 256
    weighed: int = 2000
    eager: bool = False

    def run(self, module: Module) -> Module:
        bodies = loop_bodies(module)
        change = lambda c: self._merged(c, c.name in bodies)  # noqa: E731
        return map_computations(module, change, only=step_computations(module))

    def _merged(self, computation: Computation, carried: bool) -> Computation:
        """Merged, with kernels that hold more results at once only where that takes no more memory in the end."""
        merging = _Merging(computation, self, grow=len(computation.instructions) <= self.weighed)
        if not merging.merge():
            return computation
        if not merging.grew:
            return merging.rebuilt()
        lean = _Merging(computation, self, grow=False)
        smaller = lean.rebuilt() if lean.merge() else computation
        whole = merging.rebuilt()
        peaks = [OrderForMemory().reorder(Judged.of(c, carried=carried)).peak.nbytes for c in (whole, smaller)]
        return whole if peaks[0] <= peaks[1] else smaller


@dataclass(frozen=True, slots=True)
class _KernelFacts:
    """What merging asks of a kernel. ``reads``: the spot at which values outside are read, None for other indices;
    ``makes``: its results and their spots. Values are told apart as what lies in memory, reshapes by ones taken off.
    ``across``: elements are read in another order than the frame's, so that the best way to walk it is another.
    ``samples``: alone, the kernel would read but a few elements of its operand. ``feeds``: a part reads what another
    part makes, so that rows are walked more than once."""

    frame: RowFrame
    reads: Mapping[Instruction, Spot | None]
    makes: Mapping[Instruction, Spot]
    size: int
    across: bool
    samples: bool = False
    feeds: bool = False


def _kernel_of(i: Instruction) -> _KernelFacts | None:
    body = body_of(i) if i.shape.is_array and not _is_read_in_place(i) else None
    frame = None if body is None else frame_of(body)
    if body is None or frame is None or (is_stack(body.root) and any(map(is_elementwise, body))):
        return None  # what a loop nest makes for all parts at once would be made for each of them
    spots = spots_in(body, frame)
    root = spots[roots_of(body)[0]]
    reads: dict[Instruction, Spot | None] = {}
    for p in body.parameters:
        value, spot = value_of(i.operands[p.attrs["index"]]), spots.get(p)
        reads[value] = spot if reads.get(value, spot) == spot else None
    if root is None:
        return None
    across = any(m.opcode in ("transpose", "reverse") and m.shape.size * 8 >= i.shape.size for m in body)
    size = len(body.instructions) - len(body.parameters)
    return _KernelFacts(frame, reads, {i: root}, size, across, i.opcode == "gather")


def _is_read_in_place(i: Instruction) -> bool:
    """Part of an argument that need not be copied."""
    if not is_block(i):
        return False
    whole = source_of(i.operands[0])
    return (whole.operands[0] if whole.opcode == "get-tuple-element" else whole).opcode == "parameter"


class _Merging:
    """The merges of one computation. ``grow``: also those after which a kernel makes more than either did alone, of
    which one reads what the other makes."""

    def __init__(self, computation: Computation, options: MergeKernels, *, grow: bool) -> None:
        self.computation = computation
        self.grow = grow
        self.grew = False
        self.options = options
        self.users = users_of(computation)
        self.delays = Delays(computation, self.users) if options.eager else None
        self.fixed = [i for i in computation if i.opcode in ("parameter", "constant")]
        self.kernels: dict[Cluster, _KernelFacts] = {}
        self.clusters = ClusterOrder(_clusters(computation), self.users, options.window)
        for c in self.clusters:
            kernel = _kernel_of(c.members[0])
            if kernel is not None:
                self.kernels[c] = kernel
        self.merged = False

    def merge(self) -> bool:
        """Merge what pays, the largest gains first, until nothing does; False if nothing did."""
        while self._round():
            self.merged = True
        return self.merged

    def _round(self) -> bool:
        gains = {(a, b): self._gain(a, b) for a, b in self._neighbours()}
        wanted = [pair for pair, gain in gains.items() if gain > 0]
        wanted.sort(key=lambda pair: (-gains[pair], pair[0].position, pair[1].position))
        done = False
        for a, b in wanted:
            if a in self.kernels and b in self.kernels:
                done |= self._join(a, b)
        return done

    def _neighbours(self) -> Iterable[tuple[Cluster, Cluster]]:
        """Pairs that share a value: its maker and a reader, or readers that follow each other."""
        readers: dict[Instruction, list[Cluster]] = {}
        for c in self.clusters:
            if c in self.kernels:
                for value in self.kernels[c].reads:
                    readers.setdefault(value, []).append(c)
        found: dict[tuple[Cluster, Cluster], None] = {}
        for value, some in readers.items():
            maker = self.clusters.of.get(value)
            if maker in self.kernels:
                found.update(dict.fromkeys((maker, c) for c in some))
            found.update(dict.fromkeys(pairwise(some)))
        return found

    def _gain(self, a: Cluster, b: Cluster) -> float:
        """Bytes that a merge saves; 0 where it is not worth its while."""
        x, y = self.kernels[a], self.kernels[b]
        sampled = x.samples or y.samples
        saved = 0 if sampled else sum(v.shape.nbytes for v in x.reads if v in y.reads)
        for maker, reader in ((x, y), (y, x)):
            for v in maker.makes:
                if v in reader.reads and not (sampled and self._read_outside(v, a, b)):
                    saved += v.shape.nbytes * (1 if self._read_outside(v, a, b) else 2)
        least = min(_moved(x), _moved(y)) * _LEAST_GAIN
        return saved if saved >= least else 0

    def _read_outside(self, value: Instruction, *inside: Cluster) -> bool:
        """Whether anything but these kernels needs a value."""
        stack = [value]
        while stack:
            v = stack.pop()
            if v is self.computation.root:
                return True
            for u in self.users[v]:
                if is_alias(u):
                    stack.append(u)
                elif self.clusters.of[u] not in inside:
                    return True
        return False

    def _join(self, a: Cluster, b: Cluster) -> bool:
        both = _joined(self.kernels[a], self.kernels[b])
        if both is None or both.size > self.options.limit:
            return False
        if self.delays is not None and self.delays.between(a.members, b.members):
            return False
        makes = {v: spot for v, spot in both.makes.items() if self._read_outside(v, a, b)}
        kernel = replace(both, makes=makes)
        x, y = self.kernels[a], self.kernels[b]
        fed = any(v in y.makes for v in x.reads) or any(v in x.makes for v in y.reads)
        grows = fed and _made(kernel) > max(_made(x), _made(y))
        if (grows and not self.grow) or not _runs_well(kernel) or not self.clusters.join(a, b):
            return False
        self.grew |= grows
        del self.kernels[b]
        self.kernels[a] = kernel
        return True

    def rebuilt(self) -> Computation:
        """The computation with clusters of several kernels as one fusion each."""
        new: dict[Instruction, Instruction] = {i: i for i in self.fixed}
        position = {i: n for n, i in enumerate(self.computation)}
        body = list(self.fixed)
        for c in self.clusters:
            members = sorted(c.members, key=position.__getitem__)
            if c in self.kernels and sum(not is_alias(m) for m in members) > 1:
                body.extend(make_merged_kernel(members, tuple(self.kernels[c].makes), new))
                members = [m for m in members if is_alias(m) and self._needed(m)]
            for m in members:
                same = all(new[o] is o for o in m.operands)
                new[m] = m if same else m.replace(operands=tuple(new[o] for o in m.operands))
                body.append(new[m])
        return Computation(self.computation.name, body, new[self.computation.root])

    def _needed(self, alias: Instruction) -> bool:
        """Whether anything outside its cluster reads a reshape."""
        return self._read_outside(alias, self.clusters.of[alias])


def _clusters(computation: Computation) -> list[list[Instruction]]:
    """Every instruction with its reshapes and elements, which take no time; parameters and constants left out."""
    found: dict[Instruction, list[Instruction]] = {}
    cluster: dict[Instruction, list[Instruction]] = {}
    for i in computation:
        if i.opcode in ("parameter", "constant"):
            continue
        follows = (is_alias(i) or i.opcode == "get-tuple-element") and i.operands[0] in cluster
        cluster[i] = cluster[i.operands[0]] if follows else found.setdefault(i, [])
        cluster[i].append(i)
    return list(found.values())


def _moved(k: _KernelFacts) -> int:
    return sum(v.shape.nbytes for v in (*k.reads, *k.makes))


def _made(k: _KernelFacts) -> int:
    """Bytes of the results with an element for every index of the frame."""
    return sum(v.shape.nbytes for v, spot in k.makes.items() if spot == k.frame.full)


def _joined(x: _KernelFacts, y: _KernelFacts) -> _KernelFacts | None:
    """Both in one frame; None where there is none, or one reads the other's result at other indices."""
    frame = _common_frame(x.frame, y.frame)
    if frame is None:
        return None
    x, y = _in_frame(x, frame), _in_frame(y, frame)
    makes = {**x.makes, **y.makes}
    reads: dict[Instruction, Spot | None] = {}
    feeds = x.feeds or y.feeds
    for v, spot in (*x.reads.items(), *y.reads.items()):
        if source_of(v) in makes and v not in makes:
            return None  # it is read with other dimensions
        if v not in makes:
            reads[v] = spot if reads.get(v, spot) == spot else None
        elif spot != makes[v]:
            return None
        else:
            feeds = True
    return _KernelFacts(frame, reads, makes, x.size + y.size, x.across or y.across, feeds=feeds)


def _common_frame(x: RowFrame, y: RowFrame) -> RowFrame | None:
    for a, b in ((x, y), (y, x)):
        if a == b or (not b.reduced and b.dims in (a.dims, tuple(a.dims[d] for d in a.kept_dims))):
            return a
    return None


def _in_frame(k: _KernelFacts, frame: RowFrame) -> _KernelFacts:
    """A kernel over the whole frame, or one that has an element per row of it."""
    if len(k.frame.dims) == len(frame.dims):
        return k
    along = frame.kept_dims
    reads = {v: None if spot is None else tuple(along[d] for d in spot) for v, spot in k.reads.items()}
    makes = {v: tuple(along[d] for d in spot) for v, spot in k.makes.items()}
    return replace(k, frame=frame, reads=reads, makes=makes)


def _runs_well(k: _KernelFacts) -> bool:
    """Whether there is a good way to walk the frame."""
    frame = k.frame
    streams = [v for v, spot in (*k.reads.items(), *k.makes.items()) if spot == frame.full]
    if k.across or len(streams) > _MOST_STREAMS:
        return False
    if not frame.reduced:
        return len({v.shape.dims for v in k.makes}) <= 1
    if any(spot is None and v.shape.size >= frame.rows * 8 for v, spot in k.reads.items()):
        return False
    row_bytes = sum(v.shape.dtype.nbytes for v in streams) * frame.columns
    if row_bytes * frame.rows <= _SMALL and frame.walks_rows:
        return True
    if frame.rows < _FEW_ROWS or (k.feeds and row_bytes > _ROW_BYTES):
        return False
    # Reductions over other dimensions than the last run side by side only, and over the same rows.
    return frame.walks_rows or (not k.feeds and all(spot == frame.kept_dims for spot in k.makes.values()))
