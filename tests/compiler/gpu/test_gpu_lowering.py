"""Lowering for GPUs: the CPU's decisions without what is for processors, and where kernels find their arrays."""

from __future__ import annotations

import numpy as np

from shardc import Mesh, P, Program
from shardc.collectives.call.call import BufferRef
from shardc.compiler.gpu.places import ArrayPlaces
from shardc.compiler.lower.for_gpu import ARRAY_ALIGNMENT, gpu_passes, lower_for_gpu
from shardc.compiler.lower.lowered import KernelStep, Lowered, leaf_steps
from shardc.compiler.lower.pipeline import PASSES, lower
from shardc.hlo.config import Config
from shardc.hlo.ir.ir import Module
from shardc.native.gpu.target import gpu_target
from tests.compiler.checking import program

H100 = gpu_target("cuda:sm_90")


UPDATE = """
  x = f32[64] parameter(0)
  u = f32[4] parameter(1)
  i = s32[] parameter(2)
  ROOT out = f32[64] dynamic-update-slice(x, u, i)
"""


def kernels(lowered: Lowered) -> list[KernelStep]:
    return [s for s in leaf_steps(lowered.steps) if isinstance(s, KernelStep)]


def layers(devices: int = 4) -> Module:
    """Two products whose partial sums are reduced, beside a long map."""
    module = program(
        """
  x = f32[256,256] parameter(0)
  w = f32[256,256] parameter(1)
  v = f32[256,256] parameter(2)
  h = f32[256,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[256,256] sine(v)
  t = f32[256,256] dot(s, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT out = (f32[256,256], f32[256,256]) tuple(h, t)"""
    )
    specs = {"x": P(None, "m"), "w": P("m", None), "out": P()}
    given = Program(module).annotate({k: v for k, v in specs.items() if k != "out"}, mesh=Mesh({"m": devices}))
    return given.partition().compiled_module


def test_passes_for_processors_are_left_out() -> None:
    names = [p.name for p in gpu_passes(layers(), H100, Config())]
    ours = {*(p.name for p in PASSES), "fetch-ahead"}
    assert set(names) <= ours
    assert not {"split-products", "split-reductions", "compute-early"} & set(names)
    assert {"fuse", "merge-kernels", "fuse-products", "schedule"} <= set(names)


def test_collectives_are_scheduled_for_the_gpus_links() -> None:
    module = layers()
    for config, asynchronous in (
        (Config(overlap="always", overlap_memory=4.0), True),
        (Config(overlap="never"), False),
    ):
        found = lower_for_gpu(module, H100, config).collectives
        assert [c.asynchronous for c in found] == [asynchronous]


def test_nothing_is_shared_between_devices() -> None:
    lowered = lower_for_gpu(layers(), H100)
    assert not lowered.plan.sections and not lowered.once.groups and not lowered.once.results
    assert lower(layers()).once.groups or lower(layers()).plan.sections  # on processors something is


def test_parts_are_read_in_place_where_threads_may_load_16_bytes() -> None:
    """Row 4 of three floats begins at byte 48, row 1 at byte 12: the second is copied by a kernel."""
    module = program(
        """
  x = f32[8,3] parameter(0)
  far = f32[1,3] slice(x), slice={[4:5], [0:3]}
  near = f32[1,3] slice(x), slice={[1:2], [0:3]}
  a = f32[1,3] sort(far), dimensions={1}, to_apply=less
  b = f32[1,3] sort(near), dimensions={1}, to_apply=less
  ROOT out = (f32[1,3], f32[1,3]) tuple(a, b)""",
        before="less {\n  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n  ROOT r = pred[] compare(p, q), "
        "direction=LT\n}\n",
    )
    plan = lower_for_gpu(module, H100).plan
    refs = {b.name: plan.ref(b) for b in plan.placements}
    assert refs["far"] == BufferRef("argument", 0, 48, 12)
    assert refs["near"].space == "arena"
    assert all(ref.offset % ARRAY_ALIGNMENT == 0 for ref in refs.values())
    on_cpu = lower(module).plan
    assert {b.name: on_cpu.ref(b) for b in on_cpu.placements}["near"] == BufferRef("argument", 0, 12, 12)


def test_a_donated_argument_is_moved_before_it_is_updated() -> None:
    """Whether it lies in the result is known when the step runs; the kernel only ever finds it there."""
    module = program(UPDATE).with_(donors=(0,))
    lowered = lower_for_gpu(module, H100)
    (kernel,) = kernels(lowered)
    places = ArrayPlaces(lowered).of(kernel)
    result = BufferRef("result", 0, 0, 256)
    assert places.copied == (BufferRef("argument", 0, 0, 256), result)
    assert places.operands[0] == result and places.results == (result,)
    assert places.aliased == {0}


def test_an_argument_that_stays_is_never_aliased() -> None:
    lowered = lower_for_gpu(program(UPDATE), H100)
    (kernel,) = kernels(lowered)
    places = ArrayPlaces(lowered).of(kernel)
    assert places.copied is None and not places.aliased
    assert places.operands[0].space == "argument"


def test_what_is_computed_in_place_is_not_read_only() -> None:
    body = """
  x = f32[64] parameter(0)
  y = f32[64] parameter(1)
  ROOT out = f32[64] add(x, y)"""
    for donors, aliased in (((), set()), ((1,), {1})):
        lowered = lower_for_gpu(program(body).with_(donors=donors), H100)
        (kernel,) = kernels(lowered)
        assert ArrayPlaces(lowered).of(kernel).aliased == aliased


def test_lowering_depends_on_nothing_but_the_program() -> None:
    first, second = (lower_for_gpu(layers(), H100) for _ in range(2))
    assert np.array_equal([r.plan.arena_bytes for r in (first,)], [r.plan.arena_bytes for r in (second,)])
    assert list(map(str, first.instructions)) == list(map(str, second.instructions))
