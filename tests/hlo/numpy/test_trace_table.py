"""Every function of the table, traced: evaluated and compiled, the answer is NumPy's, type for type."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import scipy.special

from shardc.hlo.numpy.functions.dispatch import FUNCTIONS, REFUSED, supported_functions
from shardc.hlo.numpy.functions.elementwise import UFUNCS
from shardc.hlo.numpy.functions.special import SPECIAL_UFUNCS
from tests.hlo.numpy.trace_support import agree, check, compile_and_run, copies, leaves_of, samples, traced
from tests.hlo.numpy.trace_table import LINALG, ROWS, Row, cases

IDS = [f"{family}-{row[0]}" for family, row in ROWS]


@pytest.mark.parametrize("row", [row for _, row in ROWS], ids=IDS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:numpy.fix is deprecated")
def test_evaluated(row: Row) -> None:
    name, function, arguments = row
    for dtype, args in cases(arguments):
        check(function, args, 64 if row in LINALG else 8, what=f"{name} {dtype}")


def _compiled(row: Row, dtype: str, args: list[object]) -> None:
    name, function, _ = row
    with np.errstate(all="ignore"):
        wanted = leaves_of(function(*copies(args)))
    for got, w in zip(compile_and_run(traced(function, args), args), wanted, strict=True):
        agree(got, w, 64 if row in LINALG else 16, f"{name} {dtype} compiled")


@pytest.mark.parametrize("row", [row for _, row in ROWS], ids=IDS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:numpy.fix is deprecated")
def test_compiled(row: Row) -> None:
    """One of the row's types, the one that its name falls on."""
    chosen = list(cases(row[2]))
    _compiled(row, *chosen[zlib.crc32(row[0].encode()) % len(chosen)])


@pytest.mark.full
@pytest.mark.parametrize("row", [row for _, row in ROWS], ids=IDS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:numpy.fix is deprecated")
def test_compiled_in_all_types(row: Row) -> None:
    for dtype, args in cases(row[2]):
        _compiled(row, dtype, args)


FLOAT_UFUNCS = (
    "floor_divide remainder fmod divmod arctan2 hypot logaddexp logaddexp2 copysign nextafter heaviside maximum "
    "minimum fmax fmin power less equal sign rint floor ceil trunc signbit spacing modf frexp log2 log10 exp2 cbrt "
    "sqrt isinf isfinite square reciprocal absolute log1p expm1 arctan"
)
INTEGER_UFUNCS = (
    "floor_divide remainder fmod divmod maximum multiply add left_shift right_shift gcd lcm absolute negative sign "
    "bitwise_count reciprocal invert"
)


def _pairs(values: object, name: str) -> list[object]:
    v = np.asarray(values)
    return [np.repeat(v, v.size), np.tile(v, v.size)][: getattr(np, name).nin]


@pytest.mark.parametrize("name", FLOAT_UFUNCS.split())
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:numpy.fix is deprecated")
def test_special_floats(name: str) -> None:
    for dtype in ("f4", "f8", "f2"):
        info = np.finfo(dtype)
        edges = [np.inf, -np.inf, np.nan, info.max, info.min, info.tiny, info.smallest_subnormal]
        values = np.array([0, -0.0, 1, -1, 0.5, -0.5, 2.5, -3.5, 1e3, 8, 1 / 3, *edges], dtype)
        check(getattr(np, name), _pairs(values, name), 4, f"{name} {dtype}")


@pytest.mark.parametrize("name", INTEGER_UFUNCS.split())
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:numpy.fix is deprecated")
def test_special_integers(name: str) -> None:
    for dtype in ("i1", "i4", "u1", "i8"):
        info = np.iinfo(dtype)
        values = [0, 1, 2, 3, 7, 9, info.max, info.max - 1, info.min, info.min + 1]
        check(getattr(np, name), _pairs(np.array(values + [-1, -2, -3][: 3 * (info.min < 0)], dtype), name), 0, dtype)


def test_types_of_two_operands_are_numpys() -> None:
    types = ["?", "i1", "u2", "i4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
    for name in ("add", "true_divide", "maximum", "less", "greater_equal"):
        for a in types:
            for b in types:
                check(getattr(np, name), [samples(a, 9), samples(b, 9, seed=1)], 8, f"{name} {a} {b}")


def test_tables_name_functions_of_numpy() -> None:
    assert len(supported_functions()) >= 190
    assert set(supported_functions()) <= set(FUNCTIONS)
    assert not set(FUNCTIONS) & set(REFUSED)
    for name in UFUNCS:
        home = scipy.special if name in SPECIAL_UFUNCS else np
        assert name == "clip" or isinstance(getattr(home, name), np.ufunc), name
