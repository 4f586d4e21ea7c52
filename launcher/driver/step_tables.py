"""The tables of addresses that a step takes: where each device's arguments lie and where its results go.

They stay where they are for the driver's life; a step fills them anew, one column of all devices per argument and
result. Nothing else is made from step to step but one piece of memory per result that has no argument's to reuse.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.memory import NO_MEMORY, out_of_memory
from shardc.collectives.call.stamp import digest_of
from shardc.collectives.call.transport import Transport
from shardc.compiler.executable import Executable
from shardc.hlo.errors import InputError
from shardc.launcher.arrays.layout import ArrayLayout
from shardc.launcher.arrays.sharded_array import ShardedArray
from shardc.launcher.arrays.shards import Arrangement, DeviceContext, Shards
from shardc.launcher.driver.arguments import as_global, in_order, place
from shardc.launcher.driver.buffer_pool import BufferPool
from shardc.launcher.driver.native_step import ResultColumn

__all__ = ["StepTables"]

Block = NDArray[np.uint8]
_ALIGNMENT = 64
#: Places of a result that are remembered.
_KNOWN = 64
#: Elements of a plain argument that are compared at every step.
_SAMPLED = 16
_WORD = (1 << 64) - 1


class _Table:
    """Addresses by device and argument (or result), and each argument's column."""

    def __init__(self, devices: int, count: int) -> None:
        self.addresses = np.zeros((devices, max(1, count)), np.int64)
        self.columns = [self.addresses[:, k] for k in range(count)]

    def of(self, row: int) -> Any:
        """A device's row as the step function takes it."""
        return (ctypes.c_void_p * self.addresses.shape[1]).from_buffer(self.addresses[row])


class _Result:
    """One result: how its shards lie, and whose memory it may take over.

    A device with a copy of another device's shard writes it to memory that is never read; an ``idle`` one never writes
    it, and reads the other's.
    """

    def __init__(
        self, layout: ArrayLayout, arrangement: Arrangement, idle: NDArray[np.bool_], source: int, shared: bool
    ) -> None:
        self.layout, self.arrangement, self.source = layout, arrangement, source
        #: Who has memory of its own that the others never see.
        self.followers = ~(arrangement.firsts | idle)
        #: Who is told where the shards are.
        self.told = None if not self.followers.any() else ~self.followers
        #: The addresses of all shards by where their memory begins: it is mostly the same as some steps before.
        self._known: dict[int, NDArray[np.int64]] = {}
        #: The addresses that the table of results has.
        self.written: NDArray[np.int64] | None = None
        #: What `fits` was asked about last and did: mostly the same object again.
        self._fitting = arrangement.firsts
        self.takes_over = source >= 0 and (shared or bool(arrangement.firsts.all()))

    def addresses(self, start: int) -> NDArray[np.int64]:
        """Those of the shards in memory that begins at ``start``."""
        addresses = self._known.get(start)
        if addresses is None:
            if len(self._known) == _KNOWN:
                self._known.clear()
            addresses = self._known[start] = self.arrangement.offsets + start
        return addresses

    def fits(self, shards: Shards) -> bool:
        """Whether the result may be written over these shards. Equal shards must share a block as the result's do."""
        if shards.firsts is not self._fitting:
            if not (shards.firsts == self.arrangement.firsts).all():
                return False
            self._fitting = shards.firsts
        return True


class StepTables:
    """Arguments and results of ``executable`` on ``devices`` of this process; ``passed_by`` are by device the groups of
    `Executable.once` that another device computes for it, as bits."""

    #: Where the arrays lie that a step takes as they are: None is the host's memory.
    context: DeviceContext | None = None

    def __init__(
        self,
        executable: Executable,
        devices: tuple[int, ...],
        transport: Transport,
        array_type: type[ShardedArray],
        passed_by: Sequence[int] = (),
    ) -> None:
        self._devices, self._transport, self._array_type = devices, transport, array_type
        self.pool = BufferPool(transport.empty)
        self.layouts = [ArrayLayout.of(spec, executable.num_devices) for spec in executable.arguments]
        self.titles = [partial(self._title, n) for n in range(len(self.layouts))]
        self.arguments = _Table(len(devices), len(self.layouts))
        self.results = _Table(len(devices), len(executable.results))
        self._donated = {n: f"{executable.name} as {self._title(n)}" for n in executable.donated}
        #: The addresses that the table of arguments has: mostly the same objects again.
        self._last: list[NDArray[np.int64] | None] = [None] * len(self.layouts)
        #: The layout that each argument had last: mostly the same object again.
        self._seen = list(self.layouts)
        sources = dict(executable.aliases)
        #: Of `shardc.collectives.call.stamp`, over the plain arguments of a step.
        self.sums = (0, 0)
        #: Places in each argument that say, at every step, whether it is the same on all ranks: all of a small one.
        self._sampled = [_sampled(layout) for layout in self.layouts] if transport.process_count > 1 else None
        self._results = []
        for k, spec in enumerate(executable.results):
            layout = ArrayLayout.of(spec, executable.num_devices)
            arrangement = Arrangement.of(layout, devices)
            group = executable.result_classes[k] if executable.result_classes else -1
            idle = np.array([group >= 0 and bool(mask >> group & 1) for mask in passed_by or [0] * len(devices)])
            self._results.append(_Result(layout, arrangement, idle, sources.get(k, -1), k in executable.shared))
        self._scratch = self._followers()
        #: The arguments of the step that runs: what was made for it lives as long as it does.
        self._held: list[Shards] = []

    def _followers(self) -> Any:
        """Memory that is never read: for copies of shards that other devices hold too."""
        offset, places = 0, []
        for column, result in zip(self.results.columns, self._results, strict=True):
            for i in np.flatnonzero(result.followers):
                places.append((column, i, offset))
                offset += -(-result.layout.local_bytes // _ALIGNMENT) * _ALIGNMENT
        memory, start = self._unread(offset)
        for column, i, begin in places:
            column[i] = start + begin
        return memory

    def _unread(self, nbytes: int) -> tuple[Any, int]:
        """Memory as long as the first value lives, and where it begins."""
        memory = self._transport.empty(nbytes)
        return memory, int(memory.__array_interface__["data"][0])

    def _fresh(self, result: _Result) -> Shards:
        """Shards of a result in memory of their own."""
        nbytes = result.arrangement.nbytes
        try:
            lease = self.pool.lease(nbytes)
        except NO_MEMORY:
            layout = result.layout
            shape = f"{layout.dtype}[{','.join(map(str, layout.dims))}]"
            raise out_of_memory(nbytes, f"result {layout.name or self._results.index(result)}, {shape}") from None
        return Shards.fresh(result.arrangement, result.addresses(lease.address), lease)

    def result_columns(self) -> list[ResultColumn]:
        """The results for native code: its blocks are the distinct shards, each in memory of its own."""
        found = []
        for result in self._results:
            block_of = np.unique(result.arrangement.offsets, return_inverse=True)[1] if self._devices else None
            numbers = np.zeros(0, np.int64) if block_of is None else block_of.reshape(-1)
            source = result.source if result.takes_over else -1
            found.append(ResultColumn(result.layout.local_bytes, source, numbers, result.followers))
        return found

    def of(self, row: int) -> tuple[Any, Any]:
        """The arguments and results of the device in ``row``, as the step takes them."""
        return self.arguments.of(row), self.results.of(row)

    def fill(self, arguments: Sequence[Any]) -> list[Shards]:
        """Fill the tables for a step; returns the results' shards, still to be written."""
        held = self._held = list[Shards]()
        ours: set[int] = set()
        devices, donated, last, context = self._devices, self._donated, self._last, self.context
        values = weighted = 0
        for k, (value, column) in enumerate(zip(arguments, self.arguments.columns, strict=True)):
            if (
                isinstance(value, ShardedArray)
                and (value._layout is self._seen[k] or self._same_data(k, value._layout))
                and value._shards.devices == devices
                and value._shards.context is context
            ):
                shards = value._shards
                if k in donated and not value._shared:
                    ours.add(k)
            else:
                shards, copied = self._place_value(k, value)
                if self._sampled is not None and not isinstance(value, ShardedArray):
                    digest = self._sample(k, value, self._sampled[k])
                    values, weighted = values + digest, weighted + (k + 1) * digest
                if copied or (k in donated and isinstance(value, ShardedArray) and not value._shared):
                    ours.add(k)
            held.append(shards)
            if shards.addresses is not last[k]:
                column[:] = last[k] = shards.addresses
        self.sums = values & _WORD, weighted & _WORD
        made = [self._destination(k, held, ours) for k in range(len(self._results))]
        self.pool.settle()
        return made

    def digest(self, k: int, value: Any) -> str:
        """A plain argument in few words."""
        from shardc.launcher.arrays.same_values import value_text

        return value_text(as_global(value, self.layouts[k].dtype, self.titles[k]))

    def _sample(self, k: int, value: Any, places: NDArray[np.intp] | None) -> int:
        """A word for a plain argument, after `place` has checked it."""
        if places is None:
            return digest_of(as_global(value, self.layouts[k].dtype, self.titles[k]).tobytes())
        return digest_of(value.flat[places].tobytes()) if type(value) is np.ndarray else 0

    def finish(self, arguments: Sequence[Any], made: Sequence[Shards]) -> list[ShardedArray]:
        """The results, after the step; donated arrays are gone."""
        self._held = []
        for number, program in self._donated.items():
            value = arguments[number]
            if isinstance(value, ShardedArray):
                value._donate(program)
        return [self._array_type(r.layout, s, self._transport) for r, s in zip(self._results, made, strict=True)]

    def _same_data(self, k: int, layout: ArrayLayout) -> bool:
        same = layout.same_data(self.layouts[k])
        if same:
            self._seen[k] = layout
        return same

    def _place_value(self, k: int, value: Any) -> tuple[Shards, bool]:
        """Shards of a value that is not there as the step takes it, and whether they are copies."""
        try:
            blocks, copied = place(value, self.layouts[k], self._devices, self.pool, self.titles[k])
        except InputError as error:
            raise in_order(error, value, k, self.layouts) from None
        return Shards.of(dict(zip(self._devices, blocks, strict=True))), copied

    def _destination(self, k: int, held: Sequence[Shards], ours: set[int]) -> Shards:
        """Where result ``k`` goes: over the argument that it may replace, else into fresh memory."""
        result, column = self._results[k], self.results.columns[k]
        if result.takes_over and result.source in ours and result.fits(held[result.source]):
            shards = held[result.source].rewritten()
        else:
            shards = self._fresh(result)
        if shards.addresses is not result.written:
            result.written = shards.addresses
            if result.told is None:
                column[:] = shards.addresses
            else:
                np.copyto(column, shards.addresses, where=result.told)
        return shards

    def put(self, number: int, value: Any, *, share: bool = False) -> ShardedArray:
        """Argument ``number`` on its devices, to be passed to several steps; a copy, unless it may ``share`` the memory
        of ``value``, and every shard lies there in one piece."""
        layout = self.layouts[number]
        blocks, copied = place(value, layout, self._devices, self.pool, self.titles[number])
        if not copied and not share:
            copies = {id(b): self.pool.take(b.size) for b in blocks}
            for b in blocks:
                copies[id(b)][:] = b
            blocks = [copies[id(b)] for b in blocks]
        out = self._array_type(layout, dict(zip(self._devices, blocks, strict=True)), self._transport)
        out._shared = not copied and share
        return out

    def _title(self, number: int) -> str:
        name = self.layouts[number].name
        return f"argument {number}" + (f" ({name})" if name else "")


def _sampled(layout: ArrayLayout) -> NDArray[np.intp] | None:
    """Where to look in an argument of ``layout``, over all of its elements; None: it is small enough to be looked at
    whole."""
    size = math.prod(layout.dims)
    if size <= _SAMPLED:
        return None
    return np.linspace(0, size - 1, _SAMPLED).astype(np.intp)
