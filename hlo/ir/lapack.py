"""LAPACK routines as custom calls: one row per routine, read by the evaluator and by the compiler.

A row says what the dimensions are, how each result begins, and the arguments of one call per matrix of the batch.
Both readers call LAPACKE (or CBLAS) with row-major matrices, so a matrix is passed as it lies; JAX's column-major
layouts say how *its* buffers lie and change nothing of the meaning.

Dimensions: ``mn->mn,k,`` names the minor dimensions of operands and results after any number of batch dimensions;
``k`` is min(m, n) where both are known before. Beginnings: a number is the operand that the result is a copy of, ``.``
is zeros, ``~`` is a complex matrix whose columns LAPACK gives as pairs of real ones, ``info`` is what the call returns.

=============  ==========================================================================================
argument       meaning
=============  ==========================================================================================
``r0`` ``o1``  address of a result or an operand; ``r0+1`` one element further
``copy0``      address of a copy of an operand, which the routine destroys
``work``       address of room for k reals
``rows:r0``    second-minor dimension, ``cols:r0`` minor dimension, ``ld:r0`` leading dimension
``@uplo``      attribute as a letter, ``#low`` as an integer, ``%side`` as a CBLAS constant
``'N'``        a letter, ``null`` no address, ``one`` the number 1
=============  ==========================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import Layout, Shape
from shardc.hlo.units import count_text

__all__ = [
    "LAPACK",
    "PREFIXES",
    "LapackArgument",
    "LapackRoutine",
    "attributes_of",
    "bind_dimensions",
    "column_major",
    "letter",
    "routine_name",
    "symbol_for",
]

#: The letter of an element type in the names of routines.
PREFIXES: Mapping[str, str] = MappingProxyType({"f32": "s", "f64": "d", "c64": "c", "c128": "z"})

# routine real[/complex] | letters of the types | dimensions | beginnings | arguments
_TABLE = """
potrf       | sdcz | nn->nn,               | 0 info       | @uplo cols:r0 r0 ld:r0
getrf       | sdcz | mn->mn,k,             | 0 . info     | rows:r0 cols:r0 r0 ld:r0 r1
geqrf       | sdcz | mn->mn,k              | 0 .          | rows:r0 cols:r0 r0 ld:r0 r1
geqp3       | sdcz | mn,n->mn,n,k          | 0 1 .        | rows:r0 cols:r0 r0 ld:r0 r1 r2
orgqr/ungqr | sdcz | mn,t->mn              | 0            | rows:r0 cols:r0 cols:o1 r0 ld:r0 o1
ormqr/unmqr | sdcz | at,t,mn->mn           | 2            | @left @transpose rows:r0 cols:r0 cols:o1 \
o0 ld:o0 o1 r0 ld:r0
trsm        | sdcz | aa,mn->mn             | 1            | %side %uplo %trans_x %diag rows:r0 cols:r0 one \
o0 ld:o0 r0 ld:r0
gesdd       | sdcz | mn->mn,k,mu,vn,       | 0 . . . info | @mode rows:r0 cols:r0 r0 ld:r0 r1 r2 ld:r2 r3 ld:r3
gesvd       | sdcz | mn->mn,k,mu,vn,       | 0 . . . info | @mode @mode rows:r0 cols:r0 r0 ld:r0 r1 r2 ld:r2 r3 ld:r3 \
work
syevd/heevd | sdcz | nn->nn,n,             | 0 . info     | @mode @uplo cols:r0 r0 ld:r0 r1
geev        | sd   | nn->n,n,nn,nn,        | . . ~ ~ info | @compute_left @compute_right cols:o0 copy0 ld:o0 r0 r1 \
r2 ld:r2 r3 ld:r3
geev        | cz   | nn->n,nn,nn,          | . . . info   | @compute_left @compute_right cols:o0 copy0 ld:o0 r0 \
r1 ld:r1 r2 ld:r2
gees        | sd   | nn->nn,nn,n,n,,       | 0 . . . . info | @mode @sort null cols:r0 r0 ld:r0 r4 r2 r3 r1 ld:r1
gees        | cz   | nn->nn,nn,n,,         | 0 . . . info | @mode @sort null cols:r0 r0 ld:r0 r3 r2 r1 ld:r1
gehrd       | sdcz | nn->nn,t,             | 0 . info     | cols:r0 #low #high r0 ld:r0 r1
sytrd/hetrd | sdcz | nn->nn,n,t,t,         | 0 . . . info | @uplo cols:r0 r0 ld:r0 r1 r2 r3
gtsv        | sdcz | n,n,n,nr->n,n,n,nr,   | 0 1 2 3 info | cols:o1 cols:r3 r0+1 r1 r2 r3 ld:r3
"""

#: CBLAS constants per attribute and letter.
_CBLAS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "side": {"L": 141, "R": 142},
        "uplo": {"U": 121, "L": 122},
        "trans_x": {"N": 111, "T": 112, "C": 113},
        "diag": {"N": 131, "U": 132},
    }
)
#: Attributes that are true or false in JAX's calls, and letters in LAPACK's; H is the adjoint of the element type.
_FLAGS: Mapping[str, tuple[str, str]] = MappingProxyType({"left": ("R", "L"), "transpose": ("N", "H")})


@dataclass(frozen=True, slots=True)
class LapackArgument:
    """One argument of a call, see the module docstring: ``kind`` is the word or sign, ``of`` and ``index`` an array."""

    kind: str
    of: str = ""
    index: int = 0
    offset: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class LapackRoutine:
    """One routine for one element type."""

    target: str
    symbol: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    begin: tuple[str, ...]
    arguments: tuple[LapackArgument, ...]

    @property
    def returns_info(self) -> bool:
        return self.begin[-1] == "info"

    @property
    def needs_finite(self) -> bool:
        """JAX gives info -4 for a matrix with infinities or NaNs instead of calling: the iteration may not end."""
        return any(a.kind == "copy" for a in self.arguments)

    @property
    def is_cblas(self) -> bool:
        return "cblas" in self.symbol


_ARGUMENT = re.compile(
    r"(?P<kind>rows|cols|ld):(?P<of>[or])(?P<at>\d)|(?P<address>[or])(?P<number>\d)(?:\+(?P<off>\d))?"
)


def _argument(word: str) -> LapackArgument:
    found = _ARGUMENT.fullmatch(word)
    if found and found["kind"]:
        return LapackArgument(found["kind"], found["of"], int(found["at"]))
    if found:
        return LapackArgument("address", found["address"], int(found["number"]), int(found["off"] or 0))
    if word.startswith("copy"):
        return LapackArgument("copy", "o", int(word[4:]))
    kinds = {"@": "letter", "#": "integer", "%": "constant"}
    return LapackArgument(kinds[word[0]], name=word[1:]) if word[0] in kinds else LapackArgument(word)


def _rows() -> Iterator[LapackRoutine]:
    for line in _TABLE.strip().replace("\\\n", "").splitlines():
        names, letters, dims, begin, arguments = (part.strip() for part in line.split("|"))
        operands, results = (tuple(side.split(",")) for side in dims.split("->"))
        words = tuple(_argument(w) for w in arguments.split())
        for letter_ in letters:
            name = names.split("/")[-1 if letter_ in "cz" else 0]
            library = "cblas" if name == "trsm" else "LAPACKE"
            symbol = f"scipy_{library}_{letter_}{name}"
            yield LapackRoutine(f"lapack_{letter_}{name}_ffi", symbol, operands, results, tuple(begin.split()), words)


#: Every routine by its custom-call target.
LAPACK: Mapping[str, LapackRoutine] = MappingProxyType({r.target: r for r in _rows()})


def routine_name(target: str) -> str:
    """Which of LAPACK's routines a custom call is, without the letter of its element type; empty for other targets.

    The complex names of routines that make or multiply with a unitary matrix are the real ones.

    >>> routine_name("lapack_zungqr_ffi")
    'orgqr'
    """
    if target not in LAPACK:
        return ""
    name = target.removeprefix("lapack_").removesuffix("_ffi")[1:]
    return {"ungqr": "orgqr", "unmqr": "ormqr", "heevd": "syevd", "hetrd": "sytrd"}.get(name, name)


def column_major(shape: Shape, letters: str) -> Shape:
    """How JAX's calls lay matrices (those with two ``letters`` in the table) out."""
    r = shape.rank
    if len(letters) < 2:
        return shape
    return Shape(shape.dtype, shape.dims, layout=Layout((r - 2, r - 1, *range(r - 3, -1, -1))))


def symbol_for(routine: LapackRoutine, prefix: str) -> str:
    """The same routine for another element type of its kind (real or complex)."""
    head, name = routine.symbol.rsplit("_", 1)
    return f"{head}_{prefix}{name[1:]}"


_ENTRY = re.compile(r'\s*([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^,{}]+?))(?:\s*:\s*\w+)?\s*(?:,|$)')


def attributes_of(i: Instruction) -> dict[str, Any]:
    """The scalars of a typed-FFI ``backend_config={uplo = 76 : ui8, left = true}``; anything else is left out."""
    text = str(i.attrs.get("backend_config", "")).strip()
    if not (text.startswith("{") and text.endswith("}")):
        return {}
    found: dict[str, Any] = {}
    for name, quoted, plain in _ENTRY.findall(text[1:-1]):
        found[name] = quoted if not plain else _scalar(plain.strip())
    return found


def _scalar(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def letter(routine: LapackRoutine, argument: LapackArgument, attributes: Mapping[str, Any], place: str) -> int:
    """The value of an argument that comes from an attribute: a letter's code, an integer, a CBLAS constant.

    Raises UnsupportedError at ``place`` where the attribute is missing or out of range.
    """
    name = argument.name
    value = attributes.get(name)
    if argument.kind == "integer" and isinstance(value, int):
        return value
    if name in _FLAGS and isinstance(value, bool):
        word = _FLAGS[name][value]
        return ord(word if word != "H" else "C" if routine.target[7] in "cz" else "T")
    if name == "sort" and value != ord("N"):
        raise UnsupportedError(f"{routine.target} sorts eigenvalues by a function, which is not supported", where=place)
    if isinstance(value, int) and not isinstance(value, bool) and 32 < value < 127:
        if argument.kind == "letter":
            return value
        if chr(value) in _CBLAS[name]:
            return _CBLAS[name][chr(value)]
    raise UnsupportedError(
        f"{routine.target} needs the attribute {name}, found {value!r}",
        where=place,
        fix="write it in backend_config as JAX does, for example {uplo = 76 : ui8}",
    )


def bind_dimensions(routine: LapackRoutine, operands: tuple[Shape, ...], results: tuple[Shape, ...]) -> tuple[int, ...]:
    """The batch dimensions; ValueError with the reason when shapes do not fit the row."""
    if len(operands) != len(routine.operands):
        raise ValueError(f"{routine.target} takes {len(routine.operands)} operands, not {len(operands)}")
    if len(results) != len(routine.results):
        raise ValueError(f"{routine.target} gives {count_text(len(routine.results), 'result')}, not {len(results)}")
    if PREFIXES.get(operands[0].dtype.name) != routine.target[7]:
        raise ValueError(f"{routine.target} does not take element type {operands[0].dtype}")
    sizes: dict[str, int] = {}
    batch = operands[0].dims[: operands[0].rank - len(routine.operands[0])]
    for letters, shape in (*zip(routine.operands, operands, strict=True), *zip(routine.results, results, strict=True)):
        if shape.rank != len(batch) + len(letters) or shape.dims[: len(batch)] != batch:
            raise ValueError(f"{shape} is not a batch {list(batch)} of {len(letters)}-dimensional arrays")
        if "m" in sizes and "n" in sizes:
            sizes.setdefault("k", min(sizes["m"], sizes["n"]))
        for word, size in zip(letters, shape.dims[len(batch) :], strict=True):
            if sizes.setdefault(word, size) != size:
                raise ValueError(f"{shape} has size {size} where {routine.target} needs {sizes[word]}")
    return batch
