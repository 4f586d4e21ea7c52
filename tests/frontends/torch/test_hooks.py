"""Python code that eager PyTorch runs in the backward: a training step refuses it, ``torch.compile`` runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import shardc.torch  # noqa: E402
from shardc.hlo.errors import UnsupportedError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.arange(12.0).reshape(4, 3).sin()


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return -3 * gradient


class Between(nn.Module):
    """Two layers, and something between them."""

    def __init__(self, between: Callable[[Any], Any] = lambda x: x) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.between = nn.Linear(3, 3), nn.Linear(3, 3), between

    def forward(self, x: Any) -> Any:
        return self.b(self.between(self.a(x)))


def loss(model: Any, x: Any) -> Any:
    return model(x).square().mean()


def noted(*_: Any) -> None:
    """A hook."""


def hooked(x: Any) -> Any:
    x.register_hook(noted)  # a hook
    return x


def reversed_(x: Any) -> Any:
    return Reversed.apply(x)  # a function


def again(x: Any) -> Any:
    return checkpoint(torch.tanh, x, use_reentrant=True)  # a checkpoint


HOOKS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "register_hook": (lambda m, o: m.a.weight.register_hook(noted), "a.weight"),
    "register_post_accumulate_grad_hook": (
        lambda m, o: m.b.bias.register_post_accumulate_grad_hook(noted), "b.bias"
    ),
    "register_full_backward_hook": (lambda m, o: m.b.register_full_backward_hook(noted), "b"),
    "register_full_backward_pre_hook": (lambda m, o: m.register_full_backward_pre_hook(noted), "Between"),
    "register_module_full_backward_hook": (
        lambda m, o: nn.modules.module.register_module_full_backward_hook(noted), "torch.nn.modules.module"
    ),
    "register_step_pre_hook": (lambda m, o: o.register_step_pre_hook(noted), "SGD"),
    "register_step_post_hook": (lambda m, o: o.register_step_post_hook(noted), "SGD"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOOKS)
def test_hooks_are_named(kind: str) -> None:
    add, where = HOOKS[kind]
    module = Between()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    step = shardc.torch.train_step(module, loss, optimizer, (X,))
    handle = add(module, optimizer)
    try:
        for make in (step.compile, lambda: shardc.torch.train_step(module, loss, optimizer, (X,))):
            with pytest.raises(UnsupportedError, match=f"noted was registered by {kind}") as caught:
                make()
            assert caught.value.where == where and "torch.compile" in str(caught.value.fix)
    finally:
        handle.remove()
    step.compile()(X)


@pytest.mark.parametrize(
    ("between", "mark", "what"),
    [
        (hooked, "# a hook", "the forward calls register_hook"),
        (reversed_, "# a function", "the backward of Reversed, an autograd.Function"),
        (again, "# a checkpoint", "the backward of CheckpointFunction"),
    ],
)
def test_forwards_that_bring_a_backward_are_refused(between: Any, mark: str, what: str) -> None:
    module = Between(between)
    kept = vars(torch.Tensor)["register_hook"], vars(torch.autograd.Function)["apply"]
    with pytest.raises(UnsupportedError, match=what) as caught:
        shardc.torch.train_step(module, loss, torch.optim.SGD(module.parameters()), (X,))
    line = next(k for k, t in enumerate(Path(__file__).read_text().splitlines(), 1) if t.endswith(f"  {mark}"))
    assert caught.value.where == f"{__file__}:{line}"
    assert kept == (vars(torch.Tensor)["register_hook"], vars(torch.autograd.Function)["apply"])


def test_checkpoints_that_are_not_reentrant_are_followed() -> None:
    module = Between(lambda x: checkpoint(torch.tanh, x, use_reentrant=False))
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    training = shardc.torch.train_step(module, loss, optimizer, (X,)).compile()
    training(X)
    loss(module, X).backward()
    optimizer.step()
    torch.testing.assert_close(training.state_dict(), module.state_dict())


@pytest.mark.parametrize("between", [reversed_, hooked])
def test_torch_compile_runs_them(between: Any) -> None:
    torch._dynamo.reset()
    module, other = Between(between), Between(between)
    for m, call in ((module, torch.compile(module, backend="shardc")), (other, other)):
        m.a.weight.register_hook(lambda g: g.clamp(-0.01, 0.01))
        loss(call, X).backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 0.05)
    for a, b in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    torch._dynamo.reset()
