"""Random numbers in training steps: the same on every mesh, others in each step, the same mask in the backward."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import shardc.torch  # noqa: E402
from shardc import P  # noqa: E402
from shardc.hlo.errors import InputError, UnsupportedError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Weights(nn.Module):
    """A result that says which elements were kept."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64, 32))

    def forward(self) -> Any:
        return functional.dropout(self.weight, 0.25)


class Checkpointed(Weights):
    """The same with activation checkpointing, which eager PyTorch gives the same numbers again."""

    def forward(self) -> Any:
        return torch.utils.checkpoint.checkpoint(super().forward, use_reentrant=False)


def _total(module: Any) -> Any:
    kept = module()
    return kept.sum(), kept


def _steps(seed: int, mesh: Any = None, kind: type[Weights] = Weights) -> list[Any]:
    """What each of three steps kept, and the weight afterwards."""
    module = kind()
    step = shardc.torch.train_step(module, _total, torch.optim.SGD(module.parameters(), lr=0.5), (), seed=seed)
    training = (step.annotate({"weight": P("x", "y")}, mesh=mesh) if mesh else step).compile()
    out = [training()[1].clone() for _ in range(3)]
    return [*out, training.state_dict()["weight"]]


def test_the_same_on_every_mesh_and_other_numbers_in_each_step() -> None:
    alone, apart = _steps(5), _steps(5, {"x": 4, "y": 2})
    assert all(torch.equal(a, b) for a, b in zip(alone, apart, strict=True))
    masks = [(a != 0) for a in alone[:3]]
    assert not torch.equal(masks[0], masks[1]) and not torch.equal(masks[1], masks[2])
    share = torch.stack(masks).double().mean()
    assert abs(float(share) - 0.75) < 0.03
    assert not torch.equal(_steps(6)[0], alone[0])


@pytest.mark.parametrize("kind", [Weights, Checkpointed])
def test_the_backward_has_the_mask_of_the_forward(kind: type[Weights]) -> None:
    first, second, third, weight = _steps(5, kind=kind)
    want = torch.ones(64, 32)
    for kept in (first, second, third):
        mask = kept != 0
        torch.testing.assert_close(kept[mask], (want / 0.75)[mask])
        want = want - 0.5 * mask / 0.75
    torch.testing.assert_close(weight, want)


def test_operators_draw_what_they_say() -> None:
    class Drawing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(()))

        def forward(self) -> Any:
            like = torch.zeros(4000)
            return (
                torch.rand(4000), torch.randn(4000), torch.randint(2, 7, (4000,)), torch.bernoulli(like + 0.3),
                torch.randn_like(like), torch.randperm(50),
            )  # fmt: skip

    module = Drawing()
    step = shardc.torch.train_step(
        module, lambda m: (m.weight * 1.0, *m()), torch.optim.SGD(module.parameters()), (), seed=0
    )
    _, uniform, normal, whole, coins, other, order = step.compile()()
    assert float(uniform.min()) >= 0 and float(uniform.max()) < 1 and abs(float(uniform.mean()) - 0.5) < 0.03
    assert abs(float(normal.mean())) < 0.08 and abs(float(normal.std()) - 1) < 0.05
    assert set(whole.tolist()) == {2, 3, 4, 5, 6} and abs(float(coins.mean()) - 0.3) < 0.04
    assert not torch.equal(normal, other) and sorted(order.tolist()) == list(range(50))


def test_without_a_seed_they_are_refused() -> None:
    module = Weights()
    with pytest.raises(UnsupportedError, match="draws random numbers") as caught:
        shardc.torch.train_step(module, _total, torch.optim.SGD(module.parameters()), ())
    assert "seed=" in str(caught.value)
    with pytest.raises(InputError, match="seed is -1"):
        shardc.torch.train_step(module, _total, torch.optim.SGD(module.parameters()), (), seed=-1)
