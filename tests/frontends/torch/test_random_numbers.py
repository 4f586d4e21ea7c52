"""Random numbers of PyTorch programs: from a seed, other ones in each call, the same on every mesh."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import shardc  # noqa: E402
from shardc import P  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.ones(32, 16)


class Noisy(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(16, 8)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Any) -> tuple[Any, Any]:
        self.calls.add_(1)
        y = torch.nn.functional.dropout(self.linear(x), 0.5)
        return y, torch.randn_like(y)


def test_calls_draw_anew_and_every_mesh_draws_the_same() -> None:
    module = Noisy()
    whole = shardc.from_torch(module, (X,), seed=3)
    assert whole.arg_names == ("linear.weight", "linear.bias", "calls", "random.state", "x")
    split = shardc.from_torch(module, (X,), seed=3)
    one = whole.compile()
    four = split.annotate({"x": P("a"), "linear.weight": P("b")}, mesh={"a": 2, "b": 2}).compile()
    made = [(one(X), four(X)) for _ in range(2)]
    for some, others in made:
        torch.testing.assert_close(some, others)
    assert not torch.equal(made[0][0][1], made[1][0][1])
    assert module.calls == 4
    kept = made[0][0][0] != 0
    torch.testing.assert_close(made[0][0][0][kept], (2 * module.linear(X))[kept].detach())
    assert 0.4 < kept.float().mean() < 0.6


def test_a_state_is_counted_and_taken_back() -> None:
    state = torch.tensor([5, 0])
    compiled = shardc.from_torch(torch.nn.Dropout(0.5), (X,), seed=state).compile()
    first, second = compiled(X), compiled(X)
    assert state.tolist() == [5, 2]
    state.copy_(torch.tensor([5, 1]))
    assert torch.equal(compiled(X), second)
    assert not torch.equal(first, second)


def test_seeds_differ() -> None:
    made = [shardc.from_torch(torch.nn.Dropout(0.5), (X,), seed=s).compile()(X) for s in (0, 1, -1, 2**40)]
    assert all(not torch.equal(a, b) for k, a in enumerate(made) for b in made[:k])


def test_programs_that_draw_nothing_have_no_state() -> None:
    assert shardc.from_torch(torch.nn.Dropout(0.5).eval(), (X,), seed=0).arg_names == ("input",)


def test_branches_draw_and_loops_do_not() -> None:
    class Branch(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda v: v + torch.rand_like(v), lambda v: v * 2, (x,))

    class Loop(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            from torch._higher_order_ops.while_loop import while_loop

            return while_loop(lambda n, v: n < 3, lambda n, v: (n + 1, v + torch.rand_like(v)), (torch.tensor(0), x))

    compiled = shardc.from_torch(Branch(), (X,), seed=0).compile()
    assert ((compiled(X) >= 1) & (compiled(X) < 2)).all()
    assert torch.equal(compiled(-X), -2 * X)
    with pytest.raises(shardc.ShardcError, match="a loop draws random numbers"):
        shardc.from_torch(Loop(), (X,), seed=0)


def test_what_is_no_seed() -> None:
    drops = torch.nn.Dropout(0.5)
    for seed in (1.5, True, torch.tensor([1]), 2**63):
        with pytest.raises(shardc.ShardcError, match="is not a seed"):
            shardc.from_torch(drops, (X,), seed=seed)
    with pytest.raises(shardc.ShardcError, match="seed="):
        shardc.from_torch(drops, (X,))
