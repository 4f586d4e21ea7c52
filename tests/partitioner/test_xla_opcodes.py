"""Each operation that a partitioned program can hold is printed as what XLA compiles and runs."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_xla import through_xla

import shardc
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo
from shardc.partitioner.partition import partition
from shardc.sharding.propagate import propagate

jax = pytest.importorskip("jax")

TWO = Mesh({"x": 2})
#: What XLA's CPU compiler, or its way to it, does not take of anybody, and random bits.
NOT_XLA = {
    "acosh": "XLA's CPU compiler has no code for it",
    "atanh": "XLA's CPU compiler has no code for it",
    "cosh": "XLA's CPU compiler has no code for it",
    "sinh": "XLA's CPU compiler has no code for it",
    "bitcast": "XLA takes it only behind its layout assignment",
    "ragged-dot": "XLA's partitioner ends the process over it, unless Shardy's is on",
    "scaled-dot": "has no form in StableHLO, which the way from text to compiler leads through",
    "fft": "XLA lays its operand out so that its own code refuses it, where the result is gathered",
    "rng-bit-generator": "may give other bits on every backend",
}


# -- results of one, and of several, in every place --------------------------------------------------------------------


def best(x: Any) -> Any:
    return jax.lax.top_k(x, 3)


def branch_of_one(x: Any) -> Any:
    return jax.lax.cond(x[0, 0] > 0, lambda a: jax.lax.top_k(a, 2)[0], lambda a: a[:, :2] * 2, x)


def branch_of_the_best(x: Any) -> Any:
    return jax.lax.cond(x[0, 0] > 0, lambda a: jax.lax.top_k(a, 2), lambda a: jax.lax.top_k(-a, 2), x)


def everything_about_order(x: Any) -> Any:
    values, places = jax.lax.top_k(x, 3)
    turned = jax.lax.cond(x[0, 0] > 0, lambda a: jax.numpy.sort(a, 1), lambda a: a * 2, x)
    return values, places, jax.numpy.median(x, axis=1), turned


def loop_of_one(x: Any) -> Any:
    return jax.lax.while_loop(lambda a: a[0, 0] < 10, lambda a: a + 2, x)


def loop_in_a_branch_in_a_loop(x: Any) -> Any:
    def once(a: Any) -> Any:
        return jax.lax.cond(a[0, 1] > 3, loop_of_one, lambda b: b + 4, a)

    return jax.lax.while_loop(lambda a: a[0, 0] < 9, once, x)


def barrier_of_one(x: Any) -> Any:
    return jax.lax.optimization_barrier((x * 2,))


def sort_of_two(x: Any) -> Any:
    return jax.lax.sort((x, -x), dimension=1, num_keys=1)


SINGLES: tuple[Callable[[Any], Any], ...] = (
    *(best, branch_of_one, branch_of_the_best, everything_about_order, loop_of_one, loop_in_a_branch_in_a_loop),
    *(barrier_of_one, sort_of_two),
)


def test_xla_takes_results_of_one_and_of_several(tmp_path: Path) -> None:
    x = np.random.default_rng(3).permutation(128).reshape(8, 16).astype(np.float32) - 60
    made: dict[str, tuple[Module, Module]] = {}
    for k, function in enumerate(SINGLES):
        program = shardc.from_jax(jax.jit(function), x)
        spec = (shardc.P("x", None), shardc.P(None, "x"))[k % 2]
        sharded = program.annotate({"x": spec}, mesh=TWO).partition().module
        text = print_module(sharded)
        assert print_module(read_hlo(text)) == text
        made[function.__name__] = (program.module, sharded)
    got = through_xla({name: (sharded, [x]) for name, (_, sharded) in made.items()}, tmp_path)
    for name, (whole, _) in made.items():
        for g, w in zip(got[name], evaluate(whole, [x]), strict=True):
            np.testing.assert_array_equal(g, w, err_msg=name)


# -- one program per opcode --------------------------------------------------------------------------------------------


def one_of_each() -> dict[str, tuple[Module, list[Any], tuple[Any, ...]]]:
    """Partitioned modules by opcode, with arguments and what the whole operation gives."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "sharding"))
    try:
        from audit import Case
        from audit_cases import by_hand, elementwise, programs
        from test_audit_partitioned import annotated
    finally:
        sys.path.pop(0)
    made: dict[str, tuple[Module, list[Any], tuple[Any, ...]]] = {}
    for case in [*programs(seed=3, each=2), *by_hand(), *elementwise()]:
        if isinstance(case, Case) and case.operands and case.op.opcode not in {*made, *NOT_XLA}:
            module = propagate(annotated(case, random.Random(case.name), TWO)).module
            made[case.op.opcode] = (partition(module), list(case.operands), case.results)
    return made


@pytest.mark.full
def test_xla_takes_every_opcode(tmp_path: Path) -> None:
    made = one_of_each()
    assert len(made) > 75
    got = through_xla({name: (module, args) for name, (module, args, _) in made.items()}, tmp_path)
    for name, (_, _, whole) in made.items():
        for g, w in zip(got[name], whole, strict=True):
            scale = max(1.0, float(np.abs(w[np.isfinite(w)]).max(initial=0))) if w.dtype.kind in "fc" else 1.0
            np.testing.assert_allclose(g.astype(w.dtype), w, rtol=1e-3, atol=1e-3 * scale, err_msg=name, equal_nan=True)
