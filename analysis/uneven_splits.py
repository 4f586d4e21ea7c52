"""Dimensions that the number of their shards does not divide: which they are, and what the last shards waste."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.units import bytes_text, count_text

__all__ = ["UnevenSplit", "padding_notes", "uneven_splits"]

#: Splits that have a note, and arguments that it names.
_NAMED = 4


@dataclass(frozen=True, slots=True)
class UnevenSplit:
    """``size`` elements in ``shards`` shards over ``axes``, ``chunk`` in each, and the ``values`` that are split so.

    Each value comes with its dimension and the bytes of its shard on one device.
    """

    size: int
    shards: int
    axes: str
    values: list[tuple[Instruction, int, int]] = field(default_factory=list)

    @property
    def chunk(self) -> int:
        """Elements of a shard, with padding."""
        return -(-self.size // self.shards)

    @property
    def padded(self) -> int:
        """Elements of all shards together."""
        return self.chunk * self.shards

    @property
    def share(self) -> float:
        """Elements of padding, as a share of the real ones."""
        return self.padded / self.size - 1


def uneven_splits(module: Module) -> list[UnevenSplit]:
    """One entry per size, number of shards and axes, in the order of the program's first value that is split so."""
    found: dict[tuple[int, int, str], UnevenSplit] = {}
    for op in module.instructions():
        if not isinstance(op.sharding, Sharding) or not op.shape.is_array:
            continue
        nbytes = math.prod(op.sharding.local_dims(op.shape.dims)) * op.shape.dtype.nbytes
        for d, (n, k) in enumerate(zip(op.shape.dims, op.sharding.num_shards(), strict=True)):
            if n and n % k:
                axes = " and ".join(str(a) for a in op.sharding.dims[d].axes)
                found.setdefault((n, k, axes), UnevenSplit(n, k, axes)).values.append((op, d, nbytes))
    return list(found.values())


def padding_notes(module: Module) -> tuple[str, ...]:
    """Sentences on a propagated program: which dimensions are padded to which size, and what that wastes.

    The largest shares come first, at most four of them; the others are counted.
    """
    arguments = dict(zip(module.parameters, module.argument_names, strict=True))
    splits = sorted(uneven_splits(module), key=lambda split: -split.share)
    left = splits[_NAMED:]
    more = f"padding: {count_text(len(left), 'more size')}, each with at most {_percent(left[0].share)}" if left else ""
    return (*(_note(split, arguments) for split in splits[:_NAMED]), *([more] if more else []))


def _note(split: UnevenSplit, arguments: Mapping[Instruction, str]) -> str:
    named = [f"dimension {d} of {arguments[op]}" for op, d, _ in split.values if op in arguments]
    wasted = sum(nbytes * (1 - split.size / split.padded) for op, _, nbytes in split.values if op in arguments)
    others = len(split.values) - len(named)
    told, left = named[:_NAMED], len(named) - _NAMED
    told += [count_text(left, "more argument")] if left > 0 else []
    told += [count_text(others, "value") + " inside the program"] if others else []
    text = (
        f"padding: {count_text(split.size, 'element')} became "
        f"{split.padded:,} for {split.shards} shards over {split.axes}"
    )
    text += f" ({_percent(split.share)} more to hold, compute and send): {', '.join(told)}"
    return text + (f"; in arguments {bytes_text(wasted)} per device on average" if named else "")


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 else "less than 0.1%"
