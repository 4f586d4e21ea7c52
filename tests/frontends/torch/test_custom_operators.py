"""Operators of ``torch.library.custom_op``: their bodies are followed, with the gradients that they say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import shardc  # noqa: E402
import shardc.torch  # noqa: E402
from shardc import P  # noqa: E402
from shardc.hlo.errors import UnsupportedError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def running_sums(x: Any, scale: float) -> Any:
    """In place, as code for speed is often written."""
    made = torch.empty_like(x)
    made[:, 0] = x[:, 0]
    for k in range(1, x.shape[1]):
        made[:, k] = made[:, k - 1] + x[:, k]
    return made.mul_(scale)


@pytest.fixture(scope="module")
def operators() -> Iterator[tuple[Any, Any]]:
    annotations = {"x": torch.Tensor, "scale": float, "return": torch.Tensor}
    running_sums.__annotations__ = annotations
    sums = torch.library.custom_op("shardc_tests::running_sums", running_sums, mutates_args=())
    sums.register_fake(lambda x, scale: torch.empty_like(x))
    sums.register_autograd(lambda ctx, gradient: (7 * gradient, None))  # not the true one: it shows that it counts

    def numpy_sine(x: Any) -> Any:
        return torch.from_numpy(__import__("numpy").sin(x.numpy()))

    numpy_sine.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
    opaque = torch.library.custom_op("shardc_tests::numpy_sine", numpy_sine, mutates_args=())
    opaque.register_fake(torch.empty_like)
    yield sums, opaque


class Summing(torch.nn.Module):
    def __init__(self, operator: Any, *rest: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.operator, self.rest = operator, rest

    def forward(self, x: Any) -> Any:
        return self.operator(x * self.weight, *self.rest)


@pytest.mark.parametrize("spec", [P(), P("d"), P(None, "d")])
def test_a_body_is_followed(operators: tuple[Any, Any], spec: P) -> None:
    module, x = Summing(operators[0], 2.0), torch.arange(12.0).reshape(3, 4)
    program = shardc.from_torch(module, (x,)).annotate({"x": spec}, mesh={"d": 3 if spec == P("d") else 2})
    torch.testing.assert_close(program.compile()(x), module(x).detach())


def test_gradients_are_those_of_the_operator(operators: tuple[Any, Any]) -> None:
    module, x = Summing(operators[0], 2.0), torch.ones(3, 4)
    step = shardc.torch.train_step(
        module, lambda m, v: m(v).sum(), torch.optim.SGD(module.parameters(), lr=1.0), (x,)
    ).compile()
    step(x)
    torch.testing.assert_close(step.state_dict()["weight"], torch.full((4,), 1.0 - 7 * 3))


def test_a_body_that_needs_values_is_refused_by_its_name(operators: tuple[Any, Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"numpy_sine.*\n?.*test_custom_operators.py"):
        shardc.from_torch(Summing(operators[1]), (torch.ones(3, 4),))
