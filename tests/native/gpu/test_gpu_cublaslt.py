"""Products as cuBLASLt is told them, by a stand-in that does what the library is documented to do, in columns."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from shardc.native.gpu.cuda.cublaslt import _FUNCTIONS, Products
from shardc.native.gpu.emulated.runtime import EmulatedRuntime
from shardc.native.gpu.problems import GpuFault, GpuProblem
from shardc.native.gpu.product import Product
from tests.native.gpu.stand_in import stand_in

DTYPES: dict[int, Any] = {0: np.float32, 1: np.float64, 2: np.float16, 14: ml_dtypes.bfloat16}
NAMES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}


class FakeLt:
    """cuBLASLt on the host's memory. ``asked`` are the heuristic's workspace and alignments; ``refuses`` its status."""

    def __init__(self) -> None:
        self.values: dict[int, dict[str, Any]] = {}
        self.asked: list[dict[int, int]] = []
        self.computes: list[tuple[int, int]] = []
        self.refuses = 0
        endings = {"Create": self._make, "Destroy": self._destroy, "SetAttribute": self._attribute}
        answers: dict[str, Any] = {n: f for n in _FUNCTIONS for ending, f in endings.items() if n.endswith(ending)}
        answers |= {"cublasLtMatmulAlgoGetHeuristic": self._heuristic, "cublasLtMatmul": self._matmul}
        self.library = stand_in(_FUNCTIONS, answers, cublasLtGetStatusString=lambda status: b"words %d" % status)

    def _make(self, place: Any, *arguments: int) -> int:
        self.values[len(self.values) + 1] = {"made": arguments}
        place[0] = len(self.values)
        return 0

    def _destroy(self, value: int) -> int:
        self.values[value]["gone"] = True
        return 0

    def _attribute(self, value: int, attribute: int, data: int, size: int) -> int:
        self.values[value][attribute] = int.from_bytes(ctypes.string_at(data, size), "little")
        return 0

    def _heuristic(self, handle: int, *rest: Any) -> int:
        *_, preference, count, results, found = rest
        assert count == 1
        self.asked.append({k: v for k, v in self.values[preference].items() if isinstance(k, int)})
        if self.refuses:
            return self.refuses
        results[0].algorithm[0], results[0].state, found[0] = 4711, 0, 1
        return 0

    def _matmul(self, handle: int, product: int, one: int, *rest: int) -> int:
        a, first, b, second, zero, c, third, d, fourth, algorithm, *_ = rest
        assert (c, third) == (d, fourth)
        assert ctypes.c_uint64.from_address(algorithm).value == 4711
        told = self.values[product]
        compute, scale = told["made"]
        self.computes.append((compute, scale))
        number = ctypes.c_double if scale == 1 else ctypes.c_float
        assert (number.from_address(one).value, number.from_address(zero).value) == (1, 0)
        left, right = self._matrix(a, first), self._matrix(b, second)
        left, right = (np.swapaxes(x, 1, 2) if told[t] else x for x, t in ((left, 3), (right, 4)))
        made = left.astype(np.float64) @ right.astype(np.float64)
        if told[7] in (4, 6, 36):
            assert told[26] == self.values[third]["made"][0]
            made += self._array(told[8], made.shape[1], told[26])[None, :, None]
        if told[7] in (2, 6):
            made = np.maximum(made, 0)
        if told[7] in (32, 36):
            made = _gelu(made)
        target = self._matrix(d, third)
        target[...] = made.astype(target.dtype)
        return 0

    def _matrix(self, address: int, layout: int) -> NDArray[Any]:
        """[batch, rows, columns], from columns in memory."""
        told = self.values[layout]
        kind, rows, columns, leading = told["made"]
        batch = told.get(5, 1)
        assert leading == rows
        assert told.get(6, rows * columns) == rows * columns
        return self._array(address, batch * rows * columns, kind).reshape(batch, columns, rows).swapaxes(1, 2)

    @staticmethod
    def _array(address: int, count: int, kind: int) -> NDArray[Any]:
        dtype = np.dtype(DTYPES[kind])
        return np.ctypeslib.as_array((ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)).view(dtype)


def _gelu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _placed(values: NDArray[Any], align: int = 256) -> NDArray[Any]:
    raw = np.empty(values.nbytes + 2 * align, np.uint8)
    start = -raw.ctypes.data % align
    array = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    array[...] = values
    return array


STEPS = [
    Product(3, 5, 7),
    Product(3, 5, 7, transpose_a=True),
    Product(3, 5, 7, transpose_b=True),
    Product(4, 6, 2, batch=3, transpose_a=True, transpose_b=True),
    Product(4, 6, 2, epilogue="relu"),
    Product(4, 6, 2, batch=2, epilogue="gelu"),
    Product(4, 6, 8, dtype="bf16", result="bf16", epilogue="gelu"),
    Product(4, 6, 8, dtype="bf16", result="f32"),
    Product(4, 6, 8, dtype="f16", result="f16", epilogue="relu", transpose_b=True),
    Product(4, 6, 8, dtype="f64", result="f64"),
    Product(4, 6, 8, precision="tf32"),
]


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_what_the_library_is_told_is_the_product(step: Product, with_bias: bool) -> None:
    fake, runtime = FakeLt(), EmulatedRuntime()
    random = np.random.default_rng(0)
    dtype, result = (np.dtype(DTYPES[NAMES[name]]) for name in (step.dtype, step.result))
    a = _placed(random.normal(size=(step.batch, step.m, step.k)).astype(dtype))
    b = _placed(random.normal(size=(step.batch, step.k, step.n)).astype(dtype))
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    bias = _placed(random.normal(size=step.n).astype(result))
    wanted = wanted + bias if with_bias else wanted
    wanted = {"": wanted, "relu": np.maximum(wanted, 0), "gelu": _gelu(wanted)}[step.epilogue]
    a = _placed(a.swapaxes(1, 2)) if step.transpose_a else a
    b = _placed(b.swapaxes(1, 2)) if step.transpose_b else b
    d = _placed(np.zeros((step.batch, step.m, step.n), result))
    products = Products(runtime, 1 << 20, fake.library)
    addresses = [x.ctypes.data for x in (a, b, bias, d)]
    addresses[2] *= with_bias
    products.run(step, *addresses, 0x1000, runtime.stream())
    rough = result.itemsize == 2
    np.testing.assert_allclose(d.astype(np.float64), wanted, rtol=1e-2 if rough else 1e-6, atol=1e-2 if rough else 1e-6)
    compute = {"f64": (70, 1)}.get(step.dtype, (77 if step.precision == "tf32" else 68, 0))
    assert fake.computes == [compute]


def test_the_algorithm_is_chosen_once() -> None:
    fake, runtime = FakeLt(), EmulatedRuntime()
    products = Products(runtime, 1 << 20, fake.library)
    arrays = [_placed(np.ones((4, 4), np.float32)) for _ in range(3)]
    a, b, d = (x.ctypes.data for x in arrays)
    step = Product(4, 4, 4)
    for _ in range(3):
        products.run(step, a, b, 0, d, 0, runtime.stream())
    assert fake.asked == [{1: 1 << 20, 5: 256, 6: 256, 7: 256, 8: 256}]
    moved = _placed(np.ones((8, 4), np.float32))
    products.run(step, moved.ctypes.data + 16, b, 0, d, 0, runtime.stream())  # may need another, less aligned
    assert fake.asked[1:] == [{1: 1 << 20, 5: 16, 6: 16, 7: 16, 8: 16}]


def test_everything_is_given_back() -> None:
    fake = FakeLt()
    products = Products(EmulatedRuntime(), 0, fake.library)
    x = _placed(np.ones((4, 4), np.float32)).ctypes.data
    products.run(Product(4, 4, 4, epilogue="relu"), x, x, 0, x, 0, EmulatedRuntime().stream())
    del products
    assert all(value.get("gone") for value in fake.values.values())


def test_no_algorithm() -> None:
    fake, runtime = FakeLt(), EmulatedRuntime()
    fake.refuses = 15
    products = Products(runtime, 0, fake.library)
    with pytest.raises(GpuProblem, match=r"no algorithm for 4 x 8 x 6 in bf16: .*words 15") as caught:
        products.run(Product(4, 6, 8, dtype="bf16", result="bf16"), 256, 256, 0, 256, 0, runtime.stream(), "dot.1")
    assert caught.value.where == "dot.1"


def test_a_library_that_fails_or_is_old() -> None:
    broken = stand_in(_FUNCTIONS, {"cublasLtCreate": lambda *_: 1}, cublasLtGetStatusString=lambda _: b"no driver")
    with pytest.raises(GpuFault, match="cuBLASLt: cublasLtCreate failed: no driver"):
        Products(EmulatedRuntime(), 0, broken)
    del broken.cublasLtMatmul
    with pytest.raises(GpuProblem, match="this cuBLASLt lacks cublasLtMatmul"):
        Products(EmulatedRuntime(), 0, broken)
