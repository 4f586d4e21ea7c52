"""Gradients of operators whose backward is one operator of PyTorch's, beside those that PyTorch computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import shardc.torch  # noqa: E402
from shardc import P  # noqa: E402
from shardc.hlo.errors import UnsupportedError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
torch.manual_seed(0)
IDS, ENDS = torch.tensor([3, 0, 3, 8, 1, 1]), torch.tensor([0, 2, 2, 5])
IMAGE, GRID = torch.randn(2, 3, 5, 4), torch.randn(2, 4, 6, 2) * 0.6
SOLID, PLACES = torch.randn(2, 3, 5, 4, 3), torch.randn(2, 4, 6, 2, 3) * 0.6
TABLE = torch.randn(9, 4)


def sampled(x: Any, grid: Any, **options: Any) -> Any:
    return functional.grid_sample(x, grid, **{"align_corners": False, **options})


def bags(table: Any, *weights: Any, **options: Any) -> Any:
    if weights:
        options["per_sample_weights"] = weights[0]
    return functional.embedding_bag(IDS, table, ENDS, **options)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "samples": (sampled, (IMAGE, GRID)),
    "samples of the nearest": (lambda x, g: sampled(x, g, mode="nearest"), (IMAGE, GRID)),
    "reflected samples": (lambda x, g: sampled(x, g, padding_mode="reflection", align_corners=True), (IMAGE, GRID)),
    "samples at the border": (lambda x, g: sampled(x, g, padding_mode="border"), (IMAGE, GRID)),
    "samples of a solid": (sampled, (SOLID, PLACES)),
    "edges": (lambda x: functional.pad(x, (2, 1), mode="replicate"), (IMAGE[0],)),
    "edges of images": (lambda x: functional.pad(x, (2, 1, 1, 0), mode="replicate"), (IMAGE,)),
    "edges cut off": (lambda x: functional.pad(x, (-1, 1, 1, -2), mode="replicate"), (IMAGE,)),
    "edges of solids": (lambda x: functional.pad(x, (2, 1, 1, 0, 1, 1), mode="replicate"), (SOLID,)),
    "largest of parts": (lambda x: functional.adaptive_max_pool1d(x, 3), (IMAGE[0],)),
    "largest of parts of images": (lambda x: functional.adaptive_max_pool2d(x, (3, 2)), (IMAGE,)),
    "largest of parts of solids": (lambda x: functional.adaptive_max_pool3d(x, (3, 2, 2)), (SOLID,)),
    "distances of pairs": (functional.pdist, (TABLE,)),
    "other distances of pairs": (lambda x: functional.pdist(x, p=3.0), (TABLE,)),
    "distances of equal pairs": (lambda x: functional.pdist(x[[0, 1, 0, 2]]), (TABLE,)),
    "weights by length": (lambda v, g: torch._weight_norm(v, g, 0), (TABLE, TABLE[:, :1])),
    "sums of parts": (lambda x: torch.segment_reduce(x, "sum", lengths=torch.tensor([2, 1, 6])), (TABLE,)),
    "means of parts": (lambda x: torch.segment_reduce(x, "mean", lengths=torch.tensor([2, 1, 6])), (TABLE,)),
    "largest of given parts": (lambda x: torch.segment_reduce(x, "max", lengths=torch.tensor([2, 1, 6])), (TABLE,)),
    "bags": (lambda w: bags(w, mode="sum"), (TABLE,)),
    "means of bags": (lambda w: bags(w, mode="mean"), (TABLE,)),
    "largest of bags": (lambda w: bags(w, mode="max"), (TABLE,)),
    "bags with weights": (lambda w, s: bags(w, s, mode="sum"), (TABLE, TABLE[:6, 0])),
    "bags with an index left out": (lambda w: bags(w, mode="mean", padding_idx=3), (TABLE,)),
    "bags with their end": (
        lambda w: functional.embedding_bag(IDS, w, torch.tensor([0, 2, 6]), include_last_offset=True), (TABLE,)
    ),
}  # fmt: skip


class Held(nn.Module):
    """A function of parameters."""

    def __init__(self, function: Callable[..., Any], values: tuple[Any, ...]) -> None:
        super().__init__()
        self.function = function
        self.at = nn.ParameterList([nn.Parameter(v.clone().double()) for v in values])

    def forward(self) -> Any:
        return self.function(*self.at)


def loss(module: Any) -> Any:
    made = module()
    return (made * torch.arange(made.numel(), dtype=made.dtype).reshape(made.shape).cos()).sum()


@pytest.mark.parametrize("mesh", [None, {"d": 2}])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_pytorch(name: str, mesh: dict[str, int] | None) -> None:
    module = Held(*CASES[name])
    wanted = torch.autograd.grad(loss(module), list(module.parameters()))
    step = shardc.torch.train_step(module, loss, torch.optim.SGD(module.parameters(), lr=1.0), ())
    training = (step.annotate({"at.0": P("d")}, mesh=mesh) if mesh else step).compile()
    training()
    for value, new, gradient in zip(module.parameters(), training.state_dict().values(), wanted, strict=True):
        torch.testing.assert_close(value - new, gradient, rtol=1e-9, atol=1e-9)


def test_bicubic_samples_have_no_gradient_yet() -> None:
    module = Held(lambda x, g: sampled(x, g, mode="bicubic"), (IMAGE, GRID))
    with pytest.raises(UnsupportedError, match="the gradient of bicubic samples"):
        shardc.torch.train_step(module, loss, torch.optim.SGD(module.parameters()), ())


@pytest.mark.parametrize("module", [nn.Linear(4, 2), nn.EmbeddingBag(9, 4, mode="mean")])
def test_a_loss_takes_tensors_from_outside(module: Any) -> None:
    given = (TABLE,) if isinstance(module, nn.Linear) else (IDS, ENDS)

    def own(module: Any) -> Any:
        return module(*given).square().mean()

    wanted = own(module)
    step = shardc.torch.train_step(module, own, torch.optim.SGD(module.parameters(), lr=0.1), ())
    torch.testing.assert_close(step.compile()(), wanted)
