"""Orders for memory: all are schedules, and the pass takes one that needs the least."""

from __future__ import annotations

import random

import pytest

from shardc.compiler.lower.buffers.liveness import runs_of
from shardc.compiler.lower.fuse.fuse import Fuse
from shardc.compiler.lower.schedule.order_for_memory import OrderForMemory, peak_bytes_of
from shardc.compiler.lower.schedule.orders import ORDERS, Facts
from shardc.hlo.ir.ir import Computation, Module
from tests.compiler.checking import check, program


def _contract(d: int) -> str:
    return f"lhs_contracting_dims={{{d}}}, rhs_contracting_dims={{{d}}}"


def random_program(seed: int) -> Module:
    rng = random.Random(seed)
    lines = [f"v{n} = f32[{rng.choice((8, 64))},16] parameter({n})" for n in range(3)]
    rows = [int(line.split("[")[1].split(",")[0]) for line in lines]
    for n in range(3, 30):
        a, b = rng.randrange(n), rng.randrange(max(0, n - 6), n)
        if rows[a] == rows[b] and rng.random() < 0.4:
            lines.append(f"v{n} = f32[{rows[a]},16] add(v{a}, v{b})")
            rows.append(rows[a])
        elif rng.random() < 0.3:
            lines.append(f"w{n} = f32[{rows[a]},{rows[b]}] dot(v{a}, v{b}), {_contract(1)}")
            lines.append(f"v{n} = f32[{rows[b]},16] dot(w{n}, v{a}), {_contract(0)}")
            rows.append(rows[b])
        else:
            lines.append(f"v{n} = f32[{rows[b]},16] tanh(v{b})")
            rows.append(rows[b])
    last = rng.sample(range(20, 30), 3)
    shapes = ", ".join(f"f32[{rows[n]},16]" for n in last)
    lines.append(f"ROOT r = ({shapes}) tuple({', '.join(f'v{n}' for n in last)})")
    return program("\n".join(lines))


@pytest.mark.parametrize("seed", range(6))
def test_orders_are_schedules(seed: int) -> None:
    computation = random_program(seed).entry
    for order in ORDERS:
        found = list(order(Facts(computation)))
        assert sorted(found, key=id) == sorted(computation.instructions, key=id)
        position = {i: n for n, i in enumerate(found)}
        assert all(position[o] < position[i] for i in found for o in i.operands)


@pytest.mark.parametrize("seed", range(6))
def test_the_best_is_taken(seed: int) -> None:
    module = Fuse().run(random_program(seed))
    after = OrderForMemory().run(module)
    tried = [peak_bytes_of(Computation("c", order(Facts(module.entry)), module.entry.root)) for order in ORDERS]
    assert peak_bytes_of(after.entry) == min(*tried, peak_bytes_of(module.entry))


def test_each_order_is_needed() -> None:
    """On some program each order but those after it beats all others."""
    winners = set()
    for seed in range(60):
        entry = Fuse().run(random_program(seed)).entry
        peaks = [peak_bytes_of(Computation("c", order(Facts(entry)), entry.root)) for order in ORDERS]
        winners |= {n for n, p in enumerate(peaks) if p == min(peaks)} if peaks.count(min(peaks)) == 1 else set()
    assert len(winners) >= 3


def test_reordered_programs_give_the_same() -> None:
    for seed in range(2):
        check(random_program(seed), tolerance=1e-4)


def test_checks_stay_in_order() -> None:
    lines = ["x = f32[1000] parameter(0)", "p = pred[] parameter(1)", "big = f32[1000] sine(x)"]
    lines += [
        f'c{n} = () custom-call(p), custom_call_target="check.expect_eq", custom_call_has_side_effect=true'
        for n in range(3)
    ]
    lines += ["ROOT r = f32[1000] cosine(big)"]
    entry = program("\n".join(lines)).entry
    for order in ORDERS:
        names = [i.name for i in order(Facts(entry)) if i.opcode == "custom-call"]
        assert names == ["c0", "c1", "c2"]


def test_a_loop_that_updates_in_place_needs_no_second_array() -> None:
    body = program(
        "p = (s32[], f32[1000]) parameter(0)\ni = s32[] get-tuple-element(p), index=0\n"
        "a = f32[1000] get-tuple-element(p), index=1\nb = f32[1000] sine(a)\n"
        "ROOT t = (s32[], f32[1000]) tuple(i, b)"
    ).entry
    assert peak_bytes_of(body, carried=True) < 4100
    assert peak_bytes_of(body) >= 4000


def test_runs_of_a_mask() -> None:
    assert list(runs_of(0)) == []
    assert list(runs_of(0b1101)) == [(0, 1), (2, 4)]
    assert list(runs_of(((1 << 70) - 1) << 5)) == [(5, 75)]
