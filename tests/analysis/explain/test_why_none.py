"""Collectives without a remedy: why, and what the limits of the search left."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

import shardc
from shardc import P
from shardc.analysis.budget.budget import budget_of
from shardc.analysis.budget.check import check
from shardc.analysis.explain.candidates import AnnotatableNames, AnnotationCandidates
from shardc.analysis.explain.chains import CauseTracer
from shardc.analysis.explain.collect import collect_collectives
from shardc.analysis.explain.compare_programs import ProgramComparer
from shardc.analysis.explain.remedies import RemedySearch, SearchLimits
from shardc.demo.guide import write_guide_files
from shardc.partitioner.plan.plan_reasons import MemoryRow
from shardc.stages.stages import Partitioned

DEMO = Path(shardc.__file__).parent / "demo" / "step.hlo"


@pytest.fixture(scope="module")
def demo() -> Partitioned:
    return shardc.load(DEMO).partition()


def test_limits_tell_what_they_left(demo: Partitioned) -> None:
    late = demo.explanation(remedies=1, seconds=0).collectives[0]
    assert late.tried == 0 and late.why_none.startswith("the limit of 0 s left ")
    few = demo.explanation(remedies=9, tries=1).collectives
    told = [c.why_none for c in few if c.tried == 1 and not c.remedies]
    assert told and all("1 other annotation tried, none sends fewer bytes" in why for why in told)
    assert any("the limit of 1 try left " in why for why in told)
    assert demo.explanation().collectives[0].why_none == ""


def test_a_remedy_of_another_collective_is_told_where_it_helps() -> None:
    def sorted_spectra(u: jax.Array, k: jax.Array) -> jax.Array:
        spectra = jnp.fft.fft(jnp.sort(jnp.sort(u, axis=1), axis=0), axis=0).real
        return jnp.sort(spectra @ k, axis=1)

    like = jax.ShapeDtypeStruct((64, 64), np.float32)
    program = shardc.from_jax(jax.jit(sorted_spectra), like, like)
    split = program.annotate({"u": P(None, "d"), "k": P(None, "d")}, mesh={"d": 8}).partition(plan="propagated")
    comparer, history = ProgramComparer(split), split.propagated.provenance
    assert history is not None
    tracer = CauseTracer(history)
    candidates = AnnotationCandidates(tracer, AnnotatableNames(tracer.history, split.program.module))
    search = RemedySearch(comparer, candidates, SearchLimits(9, seconds=600))
    groups = collect_collectives(split)
    alone = [search.for_group(group).remedies for group in groups]
    told = [tried.remedies for tried in search.for_groups(groups)]
    known = {r.what for remedies in alone for r in remedies}
    assert any(more and not own for own, more in zip(alone, told, strict=True))
    for own, more in zip(alone, told, strict=True):
        assert more == own or (not own and {r.what for r in more} <= known)
    reasons = split.explanation(remedies=9, seconds=600).collectives
    assert [c.remedies for c in reasons] == told
    assert all(bool(c.why_none) != bool(c.remedies) for c in reasons)


def test_a_collective_of_the_program_itself_says_so() -> None:
    mesh = jax.sharding.AbstractMesh((4,), ("d",), axis_types=(AxisType.Auto,))
    total = jax.shard_map(
        lambda x: jax.lax.psum(x * 2, "d"), mesh=mesh, in_specs=PartitionSpec("d"), out_specs=PartitionSpec()
    )
    partitioned = shardc.from_jax(jax.jit(total), jax.ShapeDtypeStruct((8, 4), np.float32)).partition()
    for remedies in (0, 1):
        (c,) = partitioned.explanation(remedies=remedies).collectives
        assert c.reason == "the input program contains this collective" and "so no annotation removes it" in c.why_none
    (violation,) = check(partitioned, budget_of({"forbid": [{"op": "all-reduce"}]})).violations
    assert "so no annotation removes it" in violation.remedy


def test_products_that_the_plan_repeats_need_no_advice(tmp_path: Path) -> None:
    path, *_ = (p for p in write_guide_files(tmp_path) if p.suffix == ".mlir")
    program = shardc.load(path)
    weights = {name: "None,None" for name in program.arg_names if name.startswith("weights")}
    made = program.annotate(weights, mesh={"data": 4, "model": 1}).partition(machine="h100-dgx")
    (told,) = [w for w in made.explanation("h100-dgx").warnings if w.kind == "redundant-compute"]
    assert "propagation splits this product over data" in told.way_out.text


@pytest.mark.parametrize(("limit", "unit"), [(32 * 2**30, "GiB"), (2**30, "MiB"), (10 * 2**20, "MiB"), (2**15, "KiB")])
def test_a_step_of_memory_is_small_beside_the_limit(limit: int, unit: str) -> None:
    row = MemoryRow("dot.1", "", limit, limit, saves=2.0**-10)
    assert row.more == (unit, 2.0**-10 * {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10}[unit])
