"""Operators whose accumulation or element types differ between PyTorch and JAX, beside PyTorch itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import shardc  # noqa: E402
from shardc import P  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
NAN = float("nan")


class Function(nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def _bag(x: Any, weights: Any = None) -> Any:
    options = {} if weights is None else {"per_sample_weights": weights.to(x.dtype)}
    rows = torch.arange(5000) % 2
    return nn.functional.embedding_bag(rows, x, torch.tensor([0, 3000]), mode="sum", **options)


CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "arange by tenths": (lambda x: x + torch.arange(0, 1, 0.1), torch.zeros(10)),
    "arange downwards": (lambda x: x + torch.arange(1, 0, -0.25), torch.zeros(4)),
    "arange of integers by a fraction": (lambda x: x + torch.arange(0, 10, 2.5, dtype=torch.int64), torch.zeros(4)),
    "arange from a fraction": (lambda x: x + torch.arange(0.5, 5, 1, dtype=torch.int32), torch.zeros(5)),
    "cumsum of bytes": (lambda x: x.cumsum(0), torch.full((7,), 200, dtype=torch.uint8)),
    "cumprod of bytes": (lambda x: x.cumprod(0), torch.full((7,), -3, dtype=torch.int8)),
    "cumsum in a type": (lambda x: x.cumsum(0, dtype=torch.int32), torch.full((7,), 200, dtype=torch.uint8)),
    "cumsum of truth values": (lambda x: x.cumsum(0), torch.ones(7, dtype=torch.bool)),
    "cumsum of bfloat16": (lambda x: x.cumsum(0), torch.ones(1000, dtype=torch.bfloat16)),
    "cumsum of float16": (lambda x: x.cumsum(0), torch.ones(4096, dtype=torch.float16)),
    "cumprod of bfloat16": (lambda x: x.cumprod(0), torch.full((300,), 1.01, dtype=torch.bfloat16)),
    "logcumsumexp of bfloat16": (lambda x: x.logcumsumexp(0), torch.ones(1000, dtype=torch.bfloat16)),
    "bags of bfloat16": (_bag, torch.ones(2, 4, dtype=torch.bfloat16)),
    "weighted bags of float16": (lambda x: _bag(x, torch.full((5000,), 1.001)), torch.ones(2, 4, dtype=torch.float16)),
    "signs": (lambda x: (x.sign(), x.sgn(), 1 / x.sign()), torch.tensor([NAN, -0.0, 2.0, -3.0])),
    "signs of integers": (lambda x: x.sign(), torch.tensor([-3, 0, 5, 7])),
    "shifts by numbers": (lambda x: (x << 2, x >> 1), torch.tensor([-3, 0, 5, 1 << 20])),
    "parts of a conjugate": (lambda x: x.conj().imag, torch.tensor([1 + 2j, 3 - 4j, 5j, 6 + 0j])),
}


@pytest.mark.parametrize("mesh", [None, {"d": 2}])
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_pytorch(name: str, mesh: dict[str, int] | None) -> None:
    function, x = CASES[name]
    program = shardc.from_torch(Function(function), (x,))
    if mesh:
        program = program.annotate({"x": P("d")}, mesh=mesh)
    found, wanted = program.compile()(x), function(x)
    torch.testing.assert_close(found, wanted, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int8])
@pytest.mark.parametrize("narrow", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_numbers_beyond_eight_bits(dtype: Any, narrow: Any) -> None:
    numbers = [0.3, -3.0, 100.0, -448.0, 463.0, 465.0, -9000.0, 1e6]
    special = [float("inf"), -float("inf"), float("nan")]
    x = torch.tensor(numbers + special if dtype.is_floating_point else numbers[:3], dtype=dtype)

    class Narrow(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.to(narrow)

    found = shardc.from_torch(Narrow(), (x,)).compile()(x)
    torch.testing.assert_close(found.float(), x.to(narrow).float(), equal_nan=True, rtol=0, atol=0)
