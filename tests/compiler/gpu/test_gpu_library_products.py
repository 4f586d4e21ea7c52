"""Which products go to the library, and that what is said of them is what they compute."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.compiler.gpu.products.library_product import LibraryProduct, library_product
from shardc.compiler.tuning import Tuning
from shardc.hlo.ir.ir import Instruction
from tests.compiler.gpu.gpu_runner import as_instruction
from tests.compiler.kernel_runner import expected
from tests.compiler.test_products import dot, numbers

Array = np.ndarray

EPILOGUES = {
    "": "ROOT r = T[64,48] add(d, b)",
    "relu": "s = T[64,48] add(d, b)\nz = T[] constant(0)\nzs = T[64,48] broadcast(z), dimensions={}\n"
    "ROOT r = T[64,48] maximum(zs, s)",
    "gelu": """s = T[64,48] add(d, b)
h = T[] constant(0.5)
hs = T[64,48] broadcast(h), dimensions={}
o = T[] constant(1)
os = T[64,48] broadcast(o), dimensions={}
p = T[] constant(0.797884583)
ps = T[64,48] broadcast(p), dimensions={}
q = T[] constant(0.044715)
qs = T[64,48] broadcast(q), dimensions={}
x2 = T[64,48] multiply(s, s)
x3 = T[64,48] multiply(x2, s)
qx = T[64,48] multiply(qs, x3)
i = T[64,48] add(s, qx)
pi = T[64,48] multiply(ps, i)
t = T[64,48] tanh(pi)
u = T[64,48] add(os, t)
hu = T[64,48] multiply(hs, u)
ROOT r = T[64,48] multiply(s, hu)""",
}


def fused(dtype: str, end: str) -> Instruction:
    text = f"""HloModule m
ENTRY main {{
w = T[96,48] parameter(1)
x = T[96,64] parameter(0)
bias = T[48] parameter(2)
b = T[64,48] broadcast(bias), dimensions={{1}}
d = T[64,48] dot(x, w), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
{end}
}}
"""
    return as_instruction(text.replace("T[", f"{dtype}["))


def computed(p: LibraryProduct, arrays: list[Array]) -> Array:
    """What the library would give, in float64."""
    a = (
        arrays[p.a]
        .reshape(
            p.product.batch, *((p.product.k, p.product.m) if p.product.transpose_a else (p.product.m, p.product.k))
        )
        .astype(np.float64)
    )
    b = (
        arrays[p.b]
        .reshape(
            p.product.batch, *((p.product.n, p.product.k) if p.product.transpose_b else (p.product.k, p.product.n))
        )
        .astype(np.float64)
    )
    x = (a.swapaxes(1, 2) if p.product.transpose_a else a) @ (b.swapaxes(1, 2) if p.product.transpose_b else b)
    if p.bias is not None:
        x = x + arrays[p.bias].astype(np.float64)
    gelu = x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return {"": x, "relu": np.maximum(x, 0), "gelu": gelu}[p.product.epilogue]


def agrees(i: Instruction, p: LibraryProduct) -> None:
    arrays = [a / np.asarray(4, a.dtype) for a in numbers(i)]
    (wanted,) = expected(i, arrays)
    tolerance = 2e-5 if p.product.result == "f32" else 0.1
    got = computed(p, arrays).reshape(wanted.shape)
    np.testing.assert_allclose(got, wanted.astype(np.float64), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("order", [("bmk", "bkn"), ("bkm", "bkn"), ("bmk", "bnk"), ("bkm", "bnk")])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_layouts(dtype: str, order: tuple[str, str]) -> None:
    i = dot(dtype, (3, 40, 48, 24), order, "f32")
    p = library_product(i)
    assert p is not None
    assert (p.product.m, p.product.n, p.product.k, p.product.batch) == (40, 48, 24, 3)
    assert (p.product.transpose_a, p.product.transpose_b) == (order[0] == "bkm", order[1] == "bnk")
    agrees(i, p)


@pytest.mark.parametrize("epilogue", list(EPILOGUES))
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_epilogues(dtype: str, epilogue: str) -> None:
    i = fused(dtype, EPILOGUES[epilogue])
    p = library_product(i)
    assert p is not None
    assert (p.product.epilogue, p.bias, p.product.transpose_a, p.product.result) == (epilogue, 2, True, dtype)
    agrees(i, p)


@pytest.mark.parametrize(
    "end",
    [
        EPILOGUES["gelu"].replace("constant(0.044715)", "constant(0.05)"),
        EPILOGUES["relu"].replace("constant(0)", "constant(1)"),
        "ROOT r = T[64,48] multiply(d, b)",
        "s = T[64,48] add(d, b)\nROOT r = T[64,48] multiply(s, s)",
        "ROOT r = T[64,48] tanh(d)",
    ],
)
def test_other_arithmetic_is_not_the_librarys(end: str) -> None:
    assert library_product(fused("f32", end)) is None


def test_what_does_not_lie_as_matrices() -> None:
    assert library_product(dot("f32", (3, 40, 48, 24), ("mbk", "kbn"))) is None
    assert library_product(dot("f32", (3, 40, 48, 24), ("bmk", "bkn"))) is not None


def test_other_types_and_tiny_products_are_ours() -> None:
    assert library_product(dot("s32", (3, 40, 48, 24), ("bmk", "bkn"))) is None
    assert library_product(dot("f32", (1, 4, 4, 4), ("bmk", "bkn"))) is None


def test_tf32_only_where_it_is_allowed() -> None:
    i = dot("f32", (3, 40, 48, 24), ("bmk", "bkn"))
    exact, rounded = library_product(i), library_product(i, Tuning(tf32=True))
    asked = library_product(
        i.replace(attrs={**i.attrs, "operand_precision": ("highest", "highest")}), Tuning(tf32=True)
    )
    assert exact is not None and rounded is not None and asked is not None
    assert (exact.product.precision, rounded.product.precision, asked.product.precision) == (
        "highest",
        "tf32",
        "highest",
    )
