"""Parameters and buffers that are written to between calls, in each way that PyTorch has: the next call sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import shardc.torch  # noqa: E402
from shardc import P  # noqa: E402
from shardc.hlo.errors import InputError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.arange(20.0).reshape(5, 4).sin()


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def network() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).eval()


def by_backend(module: Any) -> Any:
    options = {"mesh": {"d": 2}, "annotations": {"0.weight": P(None, "d")}}
    return torch.compile(module, backend="shardc", options=options)


def by_program(module: Any) -> Any:
    return shardc.from_torch(module, (X,)).annotate({"0.weight": P(None, "d")}, mesh={"d": 2}).compile()


def _step(kind: Any, **options: Any) -> Callable[[Any], None]:
    def write(module: Any) -> None:
        optimizer = kind(module.parameters(), lr=0.1, **options)
        for parameter in module.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()

    return write


def _train_eagerly(module: Any) -> None:
    module.train()(X)
    module.eval()


#: Ways to write.
WRITES: dict[str, Callable[[Any], Any]] = {
    "in place": lambda m: m[0].weight.add_(1),
    "a view": lambda m: m[0].weight[1:].mul_(3),
    "a buffer": lambda m: m[1].running_mean.add_(1),
    "statistics of a batch": _train_eagerly,
    "SGD": _step(torch.optim.SGD),
    "fused SGD": _step(torch.optim.SGD, fused=True),
    "fused AdamW": _step(torch.optim.AdamW, fused=True),
    "foreach": _step(torch.optim.Adam, foreach=True),
    "another state": lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}),
    "other tensors": lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}, assign=True),
    "another parameter": lambda m: setattr(m[0], "weight", nn.Parameter(torch.ones(6, 4))),
    "other data": lambda m: setattr(m[0].weight, "data", torch.ones(6, 4)),
}


@pytest.mark.parametrize("made", [by_backend, by_program])
@pytest.mark.parametrize("name", WRITES)
def test_the_next_call_sees_writes(name: str, made: Callable[[Any], Any]) -> None:
    module = network()
    compiled = made(module)
    with torch.no_grad():
        for _ in range(2):
            before = compiled(X)
        WRITES[name](module)
        found, wanted = compiled(X), module(X)
    torch.testing.assert_close(found, wanted)
    assert not torch.allclose(found, before)


def test_losses_go_down_with_fused_optimizers_as_in_pytorch() -> None:
    losses = []
    for shardc_runs in (False, True):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        call = by_backend(module) if shardc_runs else module
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.05, fused=True)
        losses.append([])
        for _ in range(4):
            loss = nn.functional.mse_loss(call(X), X.sum(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-4) and losses[0][-1] < losses[0][0]


def test_another_shape_is_another_program() -> None:
    module = network()
    compiled = by_program(module)
    module[0].weight = nn.Parameter(torch.ones(6, 4).double())
    with pytest.raises(InputError, match="another shape or type") as e:
        compiled(X)
    assert "0.weight" in str(e.value) and "another program" in str(e.value)
