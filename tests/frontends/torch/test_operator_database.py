"""A seeded slice of PyTorch's operator database, compiled, beside PyTorch; and operators of which rows were wrong."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from benchmarks.torch_core_calls import core_operators, own_calls, recorded  # noqa: E402
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
ONCE = ("max.binary", "histc", "digamma", "__rpow__", "scatter_add", "linalg.solve", "kthvalue", "complex",
        "masked_scatter", "gather", "randint", "argsort", "multinomial", "nn.functional.dropout",
        "nn.functional.embedding_bag", "special.erfcx", "special.log_ndtr", "geometric", "geqrf", "ormqr",
        "hash_tensor", "histogram", "histogramdd", "grid_sampler_3d", "nn.functional.fractional_max_pool2d",
        "nn.functional.fractional_max_pool3d", "_segment_reduce.offsets", "_upsample_bilinear2d_aa",
        "nn.functional.linear_cross_entropy.chunked", "special.bessel_y1", "special.airy_ai")  # fmt: skip


@pytest.mark.parametrize("name", ONCE)
def test_operators_that_were_wrong(name: str) -> None:
    verdicts = list(judge(OPERATORS[name], evaluated))
    assert {v.kind for v in verdicts} == {"agrees"}, verdicts


@pytest.mark.full
@pytest.mark.parametrize("name", random.Random(3).sample(sorted(OPERATORS), 40))
def test_a_slice_agrees_or_is_refused(name: str) -> None:
    verdicts = list(judge(OPERATORS[name], compiled, {"float32": 1}))
    assert all(v.kind != "differs" for v in verdicts), verdicts


#: Core operators that no program has: their sizes or numbers depend on values.
OPEN = {"aten.nonzero.default", "aten._local_scalar_dense.default", "aten.resize_.default"}


def test_core_calls_of_a_slice_agree() -> None:
    """Calls that a few operators of the database consist of, forward and backward."""
    names = random.Random(5).sample(sorted(OPERATORS), 12)
    calls = recorded(OPERATORS[n] for n in names).listed()
    assert set(calls) <= set(core_operators())
    chosen = random.Random(6).sample(sorted(set(calls) - OPEN), 30)
    verdicts = [judge_call(name, *calls[name][-1], 0, evaluated) for name in chosen]
    assert [v for v in verdicts if v.kind != "agrees"] == []


def test_core_calls_that_no_sample_has_agree() -> None:
    calls = {n: c for n, c in own_calls().items() if n not in OPEN}
    verdicts = [judge_call(n, *call, k, evaluated) for n, listed in calls.items() for k, call in enumerate(listed)]
    assert [v for v in verdicts if v.kind != "agrees"] == []


def test_groups_of_rows_have_their_own_matrices() -> None:
    rows, matrices = torch.randn(5, 3), torch.randn(2, 3, 4)

    def by_hand(x: Any, w: Any) -> Any:
        return torch.cat([x[:2] @ w[0], x[2:] @ w[1]])

    import jax.numpy as jnp

    from shardc.frontends.torch.rows.products import ROWS

    values = (jnp.asarray(v.numpy()) for v in (rows, matrices, torch.tensor([2, 5])))
    made = ROWS["transformers.grouped_mm_fallback"](*values)
    torch.testing.assert_close(torch.tensor(made.tolist()), by_hand(rows, matrices))


@pytest.mark.parametrize("name", ["matrix_exp", "polygamma.polygamma_n_2"])
def test_where_pytorch_is_wrong_in_32_bits_its_64_bits_judge(name: str) -> None:
    verdicts = list(judge(OPERATORS[name], evaluated))
    assert {v.kind for v in verdicts} == {"agrees"} and any("64 bits" in v.why for v in verdicts), verdicts

    def nearly(module: Any, tensors: Any) -> Any:
        return [t * 1.001 if t.is_floating_point() else t for t in evaluated(module, tensors)]

    assert "differs" in {v.kind for v in judge(OPERATORS[name], nearly)}


def test_one_call_of_an_aten_operator() -> None:
    assert judge_call("aten.minimum.default", (torch.ones(3), torch.zeros(3)), {}, 0, compiled).kind == "agrees"


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_bags_of_rows_tell_what_pytorch_tells(mode: int) -> None:
    bags = torch.randn(5, 4), torch.tensor([0, 1, 2, 4, 1]), torch.tensor([0, 2])
    assert judge_call("aten._embedding_bag.default", (*bags, False, mode), {}, 0, evaluated).kind == "agrees"


def _sampled(name: str) -> tuple[Any, ...]:
    """A call of a backward operator of `rows.sampling`."""
    torch.manual_seed(0)
    if name.startswith("grid"):
        grid = 2.4 * torch.rand(2, 3, 4, 2, 3) - 1.2
        return torch.randn(2, 3, 3, 4, 2), torch.randn(2, 3, 4, 5, 6), grid, 0, 2, False, [True, True]
    x, samples = torch.randn(2, 3, 7, 8), torch.rand(2, 3, 2)
    places = torch.ops.aten.fractional_max_pool2d(x, [2, 3], [4, 3], samples)[1]
    return torch.randn(2, 3, 4, 3), x, [2, 3], [4, 3], places


@pytest.mark.parametrize("name", ["grid_sampler_3d_backward", "fractional_max_pool2d_backward"])
def test_gradients_of_samples(name: str) -> None:
    assert judge_call(f"aten.{name}.default", _sampled(name), {}, 0, evaluated).kind == "agrees"


@pytest.mark.parametrize("name", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("align", [False, True])
def test_images_become_smaller_and_larger_without_stairs(name: str, align: bool) -> None:
    x = torch.randn(1, 2, 9, 5, dtype=torch.float64)
    verdict = judge_call(f"aten._upsample_{name}2d_aa.default", (x, [4, 12], align), {}, 0, evaluated)
    assert verdict.kind == "agrees", verdict


def test_the_core_set_is_that_of_the_table() -> None:
    assert set(own_calls()) <= set(core_operators()) and len(core_operators()) == 193
