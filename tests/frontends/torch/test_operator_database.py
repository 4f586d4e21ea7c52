"""A seeded slice of PyTorch's operator database, compiled, beside PyTorch; and operators of which rows were wrong."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from benchmarks.torch_core import core_overloads, own_samples  # noqa: E402
from benchmarks.torch_operators_worker import (  # noqa: E402
    compiled,
    database,
    evaluated,
    judge,
    judge_call,
    title,
)

pytestmark = pytest.mark.filterwarnings("ignore")
OPERATORS = {title(o): o for o in database()}
#: Rows that were wrong or missing once.
ONCE = ("max.binary", "histc", "digamma", "__rpow__", "scatter_add", "linalg.solve", "kthvalue", "complex")


@pytest.mark.parametrize("name", ONCE)
def test_operators_that_were_wrong(name: str) -> None:
    verdicts = list(judge(OPERATORS[name], evaluated))
    assert {v.kind for v in verdicts} == {"agrees"}, verdicts


@pytest.mark.full
@pytest.mark.parametrize("name", random.Random(3).sample(sorted(OPERATORS), 40))
def test_a_slice_agrees_or_is_refused(name: str) -> None:
    verdicts = list(judge(OPERATORS[name], compiled, {"float32": 1}))
    assert all(v.kind != "differs" for v in verdicts), verdicts


def test_groups_of_rows_have_their_own_matrices() -> None:
    rows, matrices = torch.randn(5, 3), torch.randn(2, 3, 4)

    def by_hand(x: Any, w: Any) -> Any:
        return torch.cat([x[:2] @ w[0], x[2:] @ w[1]])

    import jax.numpy as jnp

    from shardc.frontends.torch.rows.products import ROWS

    values = (jnp.asarray(v.numpy()) for v in (rows, matrices, torch.tensor([2, 5])))
    made = ROWS["transformers.grouped_mm_fallback"](*values)
    torch.testing.assert_close(torch.tensor(made.tolist()), by_hand(rows, matrices))


def test_one_call_of_an_aten_operator() -> None:
    assert judge_call("aten.minimum.default", (torch.ones(3), torch.zeros(3)), {}, 0, compiled).kind == "agrees"


#: Own samples whose result depends on values, or is drawn, or that PyTorch does not export.
REFUSED = {
    f"aten.{name}"
    for name in (
        "_local_scalar_dense.default", "nonzero.default", "resize_.default", "native_dropout.default",
        "randperm.default",
    )
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("target", sorted(own_samples()))
def test_core_operators_that_the_database_does_not_reach(target: str) -> None:
    args, kwargs = own_samples()[target]
    assert judge_call(target, args, kwargs, 0, evaluated).kind == ("refused" if target in REFUSED else "agrees")


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_bags_of_rows_tell_what_pytorch_tells(mode: int) -> None:
    bags = torch.randn(5, 4), torch.tensor([0, 1, 2, 4, 1]), torch.tensor([0, 2])
    assert judge_call("aten._embedding_bag.default", (*bags, False, mode), {}, 0, evaluated).kind == "agrees"


def test_the_core_set_is_that_of_the_table() -> None:
    assert set(own_samples()) <= set(core_overloads()) and len(core_overloads()) == 193
