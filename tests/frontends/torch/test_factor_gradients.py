"""Gradients through determinants, solutions and other factorisations, forward and backward beside PyTorch's own.

PyTorch's formulas take what the forward has factorised: the matrix, or its transpose, as its strides are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import shardc.torch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
linalg = torch.linalg
EYE = torch.eye(4, dtype=torch.float64)

#: Functions of two stacks of matrices.
CASES: dict[str, Callable[[Any, Any], Any]] = {
    "det": lambda a, b: linalg.det(a),
    "det of a transpose": lambda a, b: linalg.det(a.mT),
    "slogdet": lambda a, b: linalg.slogdet(a)[1],
    "logdet": lambda a, b: torch.logdet(a @ a.mT),
    "solve": linalg.solve,
    "solve from the right": lambda a, b: linalg.solve(a, b.mT, left=False),
    "solve a transpose": lambda a, b: linalg.solve(a.mT, b[..., 0]),
    "lu_solve": lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b),
    "inv": lambda a, b: linalg.inv(a),
    "cholesky": lambda a, b: linalg.cholesky(a @ a.mT + EYE),
    "cholesky_solve": lambda a, b: torch.cholesky_solve(b, linalg.cholesky(a @ a.mT + EYE)),
    "matrix_power": lambda a, b: linalg.matrix_power(a, -2),
    "cdist": lambda a, b: torch.cdist(a, b.mT),
    "cdist by sums": lambda a, b: torch.cdist(a, b.mT, p=1.0),
    "cdist by cubes": lambda a, b: torch.cdist(a, b.mT, p=3.0),
    "cdist by the largest": lambda a, b: torch.cdist(a, b.mT, p=float("inf")),
}


def matrices() -> tuple[Any, Any]:
    torch.manual_seed(1)
    made = torch.randn(3, 4, 4, dtype=torch.float64), torch.randn(3, 4, 2, dtype=torch.float64)
    return made[0].requires_grad_(), made[1].requires_grad_()


def gradients(function: Callable[[Any, Any], Any]) -> list[Any]:
    a, b = matrices()
    value = function(a, b)
    weights = torch.linspace(1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
    (value * weights).sum().backward()
    return [value.detach(), *(torch.zeros(()) if x.grad is None else x.grad for x in (a, b))]


@pytest.mark.parametrize("name", CASES)
def test_through_the_backend(name: str) -> None:
    torch._dynamo.reset()
    found = gradients(torch.compile(CASES[name], backend="shardc"))
    torch.testing.assert_close(found, gradients(CASES[name]), rtol=1e-8, atol=1e-9)


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = map(nn.Parameter, matrices())


@pytest.mark.parametrize("name", ["det", "slogdet", "solve", "inv", "cholesky_solve"])
def test_in_a_training_step(name: str) -> None:
    """One step of gradient descent changes the parameters as PyTorch's does."""

    def loss(module: Any) -> Any:
        return CASES[name](module.a, module.b).square().sum()

    ours, plain = Weighted(), Weighted()
    step = shardc.torch.train_step(ours, loss, torch.optim.SGD(ours.parameters(), lr=1e-3), ())
    training = step.compile()
    training()
    training.update_module()
    optimizer = torch.optim.SGD(plain.parameters(), lr=1e-3)
    loss(plain).backward()
    optimizer.step()
    for found, wanted in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-9)
