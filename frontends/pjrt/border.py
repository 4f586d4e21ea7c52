"""What a program's entry says of its arguments and results besides shapes and shardings: tokens, memories, layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.stablehlo.mlir.bytecode import types_in_bytecode

__all__ = ["BorderArray", "ProgramBorder", "border_of", "mentions_border"]

#: Words of attributes that a `BorderArray` holds.
_WORDS = (b"jax.token", b"mhlo.memory_kind", b"mhlo.layout_mode")

#: How bytecode of a portable artifact has the type of tokens: type 22 of its dialect.
_TOKEN_TYPE = bytes([22 << 1 | 1])


@dataclass(frozen=True)
class BorderArray:
    """An argument or a result: whether it is a token, the kind of memory it lies in (empty: the default one), and its
    layout in words."""

    name: str
    rank: int = 0
    is_token: bool = False
    memory_kind: str = ""
    layout: str = "default"


@dataclass(frozen=True)
class ProgramBorder:
    """All arguments and results, tokens included; both None where all are plain arrays in default memory."""

    arguments: tuple[BorderArray, ...] | None = None
    results: tuple[BorderArray, ...] | None = None

    def check(self) -> None:
        """Raise `UnsupportedError` for arrays that do not lie row by row."""
        for array in (*(self.arguments or ()), *(self.results or ())):
            rows = ",".join(map(str, reversed(range(array.rank))))
            if array.layout not in ("default", "auto", f"{{{rows}}}"):
                raise UnsupportedError(
                    f"the layout {array.layout} is not supported",
                    where=array.name,
                    fix="omit the layout: shardc stores arrays row by row (major_to_minor=(0, 1, ...))",
                )


def mentions_border(code: bytes) -> bool:
    """Whether `border_of` may find something."""
    return any(word in code for word in _WORDS) or _TOKEN_TYPE in types_in_bytecode(code)


def border_of(plain: Mapping[str, Any]) -> ProgramBorder:
    """The border of a program in MLIR's plain form."""
    from shardc.hlo.stablehlo.tables import Tables  # with the reader, which a program from the cache never asks

    name, _, arguments, results, region = next((f for f in plain["functions"] if f[0] == "main"), plain["functions"][0])
    tables = Tables(plain, "")
    (block,) = region
    returned = block[3][-1]
    types = dict(zip(block[0], block[1], strict=True))
    for _, _, first, found, *_ in block[3]:
        types |= {first + k: t for k, t in enumerate(found)}

    def array(what: str, number: int, type_: int, attributes: Mapping[str, int]) -> BorderArray:
        said, shape = tables.attributes(attributes), tables.shape(type_)
        label = said.get("jax.arg_info") or said.get("jax.result_info") or f"{what} {number}"
        return BorderArray(
            f"{label} of {plain['module'] or name}",
            shape.rank if shape.is_array else 0,
            shape.is_token,
            str(said.get("mhlo.memory_kind", "")),
            str(said.get("mhlo.layout_mode", "default")),
        )

    return ProgramBorder(
        tuple(array("argument", n, t, a) for n, (t, a) in enumerate(zip(block[1], arguments, strict=True))),
        tuple(array("result", n, types[v], a) for n, (v, a) in enumerate(zip(returned[1], results, strict=True))),
    )
