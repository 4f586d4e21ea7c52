"""A global array whose shards lie on devices, some of them in this process."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.transport import Transport
from shardc.hlo.errors import InputError
from shardc.hlo.ir.sharding import Sharding
from shardc.launcher.arrays.layout import ArrayLayout, Region
from shardc.launcher.arrays.placement import as_dtype
from shardc.launcher.arrays.shards import Shards

__all__ = ["Block", "Shard", "ShardedArray"]

Block = NDArray[np.uint8]
#: What a donated array holds.
_NOTHING = Shards.of({})


@dataclass(frozen=True, slots=True)
class Shard:
    """One device's part: ``data`` (read-only, without padding) is ``array[index]``."""

    device: int
    index: Region
    data: NDArray[Any]


class ShardedArray(ABC):
    """Global ``shape`` and ``dtype``, ``sharding``, and this process's shards: the arguments and results of programs.

    Only `shardc.Array` can change the layout: that may take another program, which takes and returns such arrays.
    """

    __slots__ = ("_gone", "_layout", "_shards", "_shared", "_transport")

    def __init__(self, layout: ArrayLayout, blocks: Mapping[int, Block] | Shards, transport: Transport) -> None:
        self._layout = layout
        self._shards = blocks if isinstance(blocks, Shards) else Shards.of(blocks)
        self._transport = transport
        self._shared = False
        self._gone = ""

    @property
    def _blocks(self) -> dict[int, Block]:
        return self._shards.blocks

    @property
    def shape(self) -> tuple[int, ...]:
        return self._layout.dims

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._layout.dtype.numpy

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of the global array."""
        return self.size * self.dtype.itemsize

    @property
    def device(self) -> str:
        """NumPy's word for where its arrays are."""
        return "cpu"

    @property
    def name(self) -> str:
        """The name of the result that this is, for messages."""
        return self._layout.name

    @property
    def sharding(self) -> Sharding | None:
        """The layout over the mesh; None for a program without a mesh."""
        return self._layout.sharding

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process holds every shard."""
        return self._layout.num_devices == len(self._shards.devices)

    @property
    def addressable_shards(self) -> list[Shard]:
        """The shards of this process's devices; replicas share their memory."""
        blocks = self._live()
        self._shared = True
        shards = []
        for device, block in sorted(blocks.items()):
            position = self._layout.positions[device]
            data = self._layout.without_padding(block, position)
            data.flags.writeable = False
            shards.append(Shard(device, self._layout.region(position), data))
        return shards

    @property
    def local_devices(self) -> tuple[int, ...]:
        """The devices of this process that hold a shard, ascending."""
        return tuple(sorted(self._shards.devices))

    @property
    def is_deleted(self) -> bool:
        """Whether this array was donated."""
        return bool(self._gone)

    def block_until_ready(self) -> Self:
        """Wait until the value is complete, and return the array. On a CPU it is complete when a call returns.

        On a GPU, errors of the steps that were started are raised here.

        >>> shardc.array(np.ones(4)).block_until_ready().shape
        (4,)
        """
        context = self._shards.context
        if context is not None:
            context.wait()
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("the shards of a shardc.Array cannot be seen as one NumPy array without a copy")
        blocks = self._live()
        layout = self._layout
        missing = [d for d in layout.holders.values() if self._held(d) is None]
        if missing:
            from shardc.hlo.numpy.recorder import current_trace

            traced = "pass the array to the traced function as an argument, not as a captured constant; or "
            raise InputError(
                f"this process holds only a part of {self._title()}",
                where=f"rank {self._transport.process_index} of {self._transport.process_count}, "
                f"sharding {self.sharding}",
                fix=(traced if current_trace() is not None else "")
                + "call shardc.gather(x) on every rank, and use its result on any rank",
            )
        out = np.empty(layout.dims, layout.dtype.numpy)
        for position, device in layout.holders.items():
            held = self._held(device)
            assert held is not None
            out[layout.region(position)] = layout.without_padding(blocks[held], position)
        return out if dtype is None else out.astype(dtype, copy=False)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The memory of the one shard that holds the whole value, for ``jax.numpy.from_dlpack`` and others.

        Not to be written to. Raises `InputError` where no shard of this process holds it all.
        """
        from shardc.launcher.arrays.dlpack import CPU, to_dlpack

        if dl_device is not None and tuple(dl_device) != CPU:
            raise BufferError(f"a shardc.Array is on the CPU, not on the DLPack device {dl_device}")
        blocks, layout = self._live(), self._layout
        holder = next((d for d in layout.holders.values() if self._held(d) is not None), None)
        if len(layout.holders) > 1 or holder is None:
            raise InputError(
                f"no single shard of this process holds {self._title()}",
                where=f"sharding {self.sharding}",
                fix="assemble the value with np.asarray(x) or shardc.gather(x), or read the parts in "
                "x.addressable_shards",
            )
        self._shared = True
        held = self._held(holder)
        assert held is not None
        return to_dlpack(layout.typed(blocks[held]), max_version, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        from shardc.launcher.arrays.dlpack import CPU

        return CPU

    @abstractmethod
    def blocks_under(self, target: ArrayLayout, devices: Sequence[int], take: Callable[[int], Block]) -> list[Block]:
        """Copies of the shards that ``devices`` of this process hold under ``target``, one per distinct shard; in a job
        all processes call it. ``take`` gives memory."""

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: bool = True, copy: bool = True
    ) -> Self:
        """The same values as another element type, in the same layout; nothing moves between devices.

        Options are those of `numpy.ndarray.astype`; ``order`` and ``subok`` change nothing.
        """
        layout, transport = self._layout, self._transport
        target = replace(layout, dtype=as_dtype(dtype))
        if not np.can_cast(self.dtype, target.dtype.numpy, casting):
            types = f"{self.dtype!r} to {target.dtype.numpy!r}"
            raise TypeError(f"Cannot cast array data from {types} according to the rule {casting!r}")
        if not copy and target.dtype is layout.dtype:
            return self
        made: dict[int, Block] = {}
        blocks: dict[int, Block] = {}
        for device, block in self._live().items():
            if id(block) not in made:
                made[id(block)] = transport.empty(target.local_bytes)
                target.typed(made[id(block)])[...] = layout.typed(block).astype(target.dtype.numpy)
            blocks[device] = made[id(block)]
        return type(self)(target, blocks, transport)

    def __jax_array__(self) -> Any:
        import jax.numpy as jnp

        return jnp.asarray(np.asarray(self))

    def item(self, *index: Any) -> Any:
        """The only element as a Python scalar, or that at ``index``."""
        return np.asarray(self).item(*index)

    @property
    def flat(self) -> Any:
        """The elements one after another, to be read."""
        whole = np.array(self)
        whole.flags.writeable = False
        return whole.flat

    def tobytes(self, order: Any = "C") -> bytes:
        """The elements as bytes."""
        return np.asarray(self).tobytes(order)

    def tolist(self) -> Any:
        return np.asarray(self).tolist()

    def _scalar(self) -> Any:
        if self.size != 1:
            raise TypeError("only arrays of one element can be converted to Python scalars")
        return self.item()

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._scalar(), digits)

    def __float__(self) -> float:
        return float(self._scalar())

    def __int__(self) -> int:
        return int(self._scalar())

    def __complex__(self) -> complex:
        return complex(self._scalar())

    def __index__(self) -> int:
        return operator.index(self.item())

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError("the truth value of an array of several elements is ambiguous: use x.any() or x.all()")
        return bool(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        dims = ",".join(map(str, self.shape))
        state = " (donated)" if self._gone else ""
        layout = f", {self.sharding}" if self.sharding is not None else ""
        return f"shardc.Array({self._layout.dtype}[{dims}]{layout}){state}"

    def _repr_html_(self) -> str:
        from shardc.hlo.units import bytes_text, count_text
        from shardc.launcher.drawings.fragments import GREY, block, layout_html, line

        title = f"{self.dtype.name}[{','.join(map(str, self.shape))}]"
        facts = [f"{bytes_text(self.nbytes)} in all"]
        if self.is_deleted:
            return block("Array", title, [*facts, "donated: its memory belongs to a result"], "")
        local, whole = self.local_devices, self.is_fully_addressable
        facts.append("every shard is in this process" if whole else f"{count_text(len(local), 'shard')} here")
        if self.sharding is None:
            return block("Array", title, facts, "")
        drawn = layout_html(self.name, self.shape, self.sharding, frozenset(local))
        return block(
            "Array", title, facts, drawn if whole else drawn + line("framed: the shards of this process", GREY)
        )

    def _title(self) -> str:
        dims = ",".join(map(str, self.shape))
        return f"{self._layout.name or 'the array'} ({self._layout.dtype}[{dims}])"

    def _held(self, device: int) -> int | None:
        """A device of this process with the same data as ``device``."""
        devices = self._shards.devices
        if device in devices:
            return device
        if self._layout.maximal:
            return None
        position = self._layout.positions[device]
        return next((d for d in devices if self._layout.positions[d] == position), None)

    def _live(self) -> dict[int, Block]:
        return self._live_shards().blocks

    def _live_shards(self) -> Shards:
        if self._gone:
            raise InputError(
                f"{self._title()} was donated to {self._gone}: its memory now belongs to a result",
                fix="use the result instead, or do not donate this argument",
            )
        return self._shards

    def _donate(self, program: str) -> None:
        """Give up the memory."""
        self._live_shards()
        self._shards, self._gone = _NOTHING, program
