"""Rows that compute 16-bit floats in 32 bits: their errors beside those of PyTorch's kernels, and what they cost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("jax")

import jax  # noqa: E402
from torch import nn  # noqa: E402

import shardc  # noqa: E402
from shardc import P  # noqa: E402
from shardc.frontends.torch.element_types import ExportedArray, as_numpy, numpy_type  # noqa: E402
from shardc.frontends.torch.frontend import lower_named  # noqa: E402
from shardc.frontends.torch.operators import Operators, _rows  # noqa: E402
from shardc.frontends.torch.rows.in_32_bits import computes_wide  # noqa: E402
from shardc.hlo.evaluate import evaluate  # noqa: E402
from tests.frontends.torch.calls_of_rows import CALLS, Call  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
NARROW = (torch.bfloat16, torch.float16)
#: Roundings of the last place that one result may have, and what the order of a sum in 32 bits adds.
ONE_ROUNDING, ORDER = 0.5, 0.05


def _flat(values: Any) -> list[Any]:
    return [v for v in torch.utils._pytree.tree_leaves(values) if isinstance(v, torch.Tensor)]


class RunCall:
    """One call of an operator by our row and by PyTorch, in a type of floats."""

    def __init__(self, call: Call, dtype: Any) -> None:
        self.call, self.dtype = call, dtype
        packet, overload = call.name.removeprefix("aten.").rsplit(".", 1)
        self.operator = getattr(getattr(torch.ops.aten, packet), overload)

    def _in(self, dtype: Any) -> list[Any]:
        return [t.to(self.dtype).to(dtype) if t.is_floating_point() else t for t in self.call.tensors]

    def by_pytorch(self, dtype: Any) -> Any:
        args, kwargs = self.call.filled(self._in(dtype))
        return self.operator(*args, **kwargs)

    def told(self) -> Any:
        """PyTorch's results, of 32 bits where it has no kernel for this type."""
        try:
            return self.by_pytorch(self.dtype)
        except RuntimeError:
            return self.by_pytorch(torch.float32)

    def by_the_row(self) -> list[Any]:
        """What the program of the row gives, in the types of 16 bits that its results have."""
        tensors = self._in(self.dtype)
        said = torch.utils._pytree.tree_map_only(torch.Tensor, self._narrow, self.told())
        node = SimpleNamespace(target=self.operator, meta={"val": said})
        operators = Operators(torch, jax)

        def run(*values: Any) -> Any:
            args, kwargs = self.call.filled(values)
            args, kwargs = torch.utils._pytree.tree_map(operators.argument, (args, kwargs))
            made = operators.checked(node, operators.row(self.operator)(*args, **kwargs))
            return tuple(v for v in (made if isinstance(made, (tuple, list)) else (made,)) if v is not None)

        avals = [jax.ShapeDtypeStruct(tuple(t.shape), numpy_type(torch, t.dtype)) for t in tensors]
        names = [f"x{k}" for k in range(len(tensors))]
        module, kept, _ = lower_named(run, avals, names, (), ())
        made = evaluate(module, [as_numpy(tensors[k], "") for k in kept])
        return [torch.from_dlpack(ExportedArray(a.copy())) for a in made]

    def _narrow(self, t: Any) -> Any:
        return torch.empty(t.shape, dtype=self.dtype if t.is_floating_point() else t.dtype, device="meta")


def error(got: Any, truth: Any, dtype: Any) -> float:
    """The greatest distance from the truth, in units of the truth's last place.

    Numbers far below the largest count as if they were larger: 32 bits cancel there, too.
    """
    limits = torch.finfo(dtype)
    got, truth = got.double(), truth.double()
    known = torch.isfinite(truth) & (truth.abs() < limits.max)
    if not known.any():
        return 0.0
    least = max(float(truth[known].abs().max()) / 256, limits.tiny)
    exponent = torch.floor(torch.log2(truth.abs().clamp(min=least)))
    units = ((got - truth).abs() / (torch.exp2(exponent) * limits.eps))[known]
    return float(units.nan_to_num(float("inf")).max())


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("call", CALLS, ids=lambda c: c.name.removeprefix("aten."))
def test_errors_are_at_most_those_of_pytorch(call: Call, dtype: Any) -> None:
    run = RunCall(call, dtype)
    truth, theirs = (_flat(made) for made in (run.by_pytorch(torch.float64), run.told()))
    for got, want, exact in zip(run.by_the_row(), theirs, truth, strict=True):
        if got.dtype == dtype:
            assert error(got, exact, dtype) <= max(error(want, exact, dtype), ONE_ROUNDING) + ORDER


def test_all_such_rows_are_called() -> None:
    called = {c.name for c in CALLS} | {c.name.rsplit(".", 1)[0] for c in CALLS}
    wide = {name for name, row in _rows().items() if computes_wide(row) and name.startswith("aten.")}
    assert wide - called == set()


class Row(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 32, bias=bias).bfloat16()

    def forward(self, x: Any) -> Any:
        return self.linear(x)


@pytest.mark.parametrize("bias", [False, True])
def test_products_travel_in_16_bits(bias: bool) -> None:
    """A product is rounded before it is added up between devices: 32 bits would send twice the bytes."""
    program = shardc.from_torch(Row(bias), (torch.zeros(8, 64, dtype=torch.bfloat16),))
    split = program.annotate({"x": P(None, "m"), "linear.weight": P(None, "m")}, mesh={"m": 2}).partition()
    (sent,) = split.report()["collectives"]
    assert (sent["op"], sent["payload_bytes"]) == ("all-reduce", 8 * 32 * 2)


class Reversed(nn.Module):
    def forward(self, x: Any) -> Any:
        return nn.functional.gelu(x).flip(0)


def test_what_is_computed_wide_moves_narrow() -> None:
    program = shardc.from_torch(Reversed(), (torch.zeros(8, 64, dtype=torch.bfloat16),))
    split = program.annotate({"x": P("m")}, mesh={"m": 2}).partition()
    sent = split.report()["collectives"]
    assert sent and all(c["payload_bytes"] <= 8 * 64 * 2 for c in sent)
