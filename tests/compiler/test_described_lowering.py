"""Lowering for described machines: processors get what is compiled, accelerators what their compilers make."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardc.compiler.lower.described import accelerator_passes, lower_for
from shardc.compiler.lower.fuse.fuse_movement import FuseMovement
from shardc.compiler.lower.lowered import KernelStep, leaf_steps
from shardc.compiler.lower.pipeline import lower
from shardc.compiler.lower.schedule.step_work import work_of
from shardc.compiler.times.step_times import step_times
from shardc.costs.machines.device import device_of
from shardc.costs.machines.machine import load_machine
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.hlo.passes import run_pipeline
from shardc.hlo.text.printer import print_module
from tests.compiler.checking import CHECKED, assert_close, program, random_arguments

DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
H100 = load_machine("h100-dgx")


def moved(body: str) -> list[str]:
    """Opcodes of the entry after the pass; the program still gives the same."""
    module = program(body)
    after = run_pipeline(module, (FuseMovement(),), CHECKED)
    args = random_arguments(module)
    assert_close(evaluate(after, args), evaluate(module, args))
    return [i.opcode for i in after.entry if i.opcode != "parameter"]


def kernels(module: Module) -> list[KernelStep]:
    return [s for s in leaf_steps(lower_for(module, H100).steps) if isinstance(s, KernelStep)]


def test_operands_change_their_form_on_the_way() -> None:
    turned = "x = f32[40,30] parameter(0)\ny = f32[50,40] parameter(1)\nt = f32[30,40] transpose(x), dimensions={1,0}\n"
    turned += "u = f32[40,50] transpose(y), dimensions={1,0}\n"
    assert moved(turned + f"ROOT d = f32[30,50] dot(t, u), {DOT}") == ["fusion"]
    short = "x = f32[30,40] parameter(0)\ny = bf16[40,50] parameter(1)\nh = bf16[30,40] convert(x)\n"
    assert moved(short + f"ROOT d = f32[30,50] dot(h, y), {DOT}") == ["fusion"]
    part = "x = f32[30,40] parameter(0)\ny = f32[6,40,50] parameter(1)\ni = s32[] parameter(2)\nz = s32[] constant(0)\n"
    part += "w = f32[1,40,50] dynamic-slice(y, i, z, z), dynamic_slice_sizes={1,40,50}\nv = f32[40,50] reshape(w)\n"
    assert moved(part + f"ROOT d = f32[30,50] dot(x, v), {DOT}") == ["constant", "fusion"]


def test_a_slice_of_stacked_weights_is_all_that_is_read() -> None:
    part = "x = f32[30,40] parameter(0)\ny = f32[6,40,50] parameter(1)\ni = s32[] parameter(2)\nz = s32[] constant(0)\n"
    part += "w = f32[1,40,50] dynamic-slice(y, i, z, z), dynamic_slice_sizes={1,40,50}\nv = f32[40,50] reshape(w)\n"
    (kernel,) = kernels(program(part + f"ROOT d = f32[30,50] dot(x, v), {DOT}"))
    assert work_of(kernel).read == 4 * (30 * 40 + 40 * 50) + 4  # and the index
    assert work_of(kernel).written == 4 * 30 * 50


def test_what_others_read_too_is_computed_once() -> None:
    both = "x = f32[40,30] parameter(0)\ny = f32[40,50] parameter(1)\nt = f32[30,40] transpose(x), dimensions={1,0}\n"
    both += f"d = f32[30,50] dot(t, y), {DOT}\nROOT r = (f32[30,50], f32[30,40]) tuple(d, t)"
    assert moved(both) == ["transpose", "dot", "tuple"]
    wide = "x = f32[40,30] parameter(0)\ny = f32[30,40,50] parameter(1)\nz = f32[] constant(0)\n"
    wide += "s = f32[30,40] reduce(y, z), dimensions={2}, to_apply=sum\nw = f32[40,50] parameter(2)\n"
    assert "reduce" in moved(wide + f"ROOT d = f32[30,50] dot(s, w), {DOT}")  # reads more than it makes


def test_results_are_written_where_they_are_wanted() -> None:
    made = f"x = f32[30,40] parameter(0)\ny = f32[40,50] parameter(1)\nd = f32[30,50] dot(x, y), {DOT}\n"
    assert moved(made + "ROOT t = f32[50,30] transpose(d), dimensions={1,0}") == ["fusion"]
    stack = (
        "all = f32[6,30,50] parameter(2)\ni = s32[] parameter(3)\nz = s32[] constant(0)\no = f32[1,30,50] reshape(d)\n"
    )
    stack += "ROOT s = f32[6,30,50] dynamic-update-slice(all, o, i, z, z)"
    assert moved(made + stack) == ["constant", "fusion"]
    assert moved(made + "ROOT s = f32[10,50] slice(d), slice={[0:10], [0:50]}") == ["dot", "slice"]


def test_epilogues_are_part_of_products() -> None:
    text = f"x = bf16[64,64] parameter(0)\ny = bf16[64,64] parameter(1)\nd = f32[64,64] dot(x, y), {DOT}\n"
    text += "b = f32[64] parameter(2)\nw = f32[64,64] broadcast(b), dimensions={1}\na = f32[64,64] add(d, w)\n"
    (kernel,) = kernels(program(text + "t = f32[64,64] tanh(a)\nROOT r = bf16[64,64] convert(t)"))
    work = work_of(kernel)
    assert (work.read, work.written) == (2 * 2 * 64 * 64 + 4 * 64, 2 * 64 * 64)
    assert [(p.m, p.n, p.k, p.rate) for p in work.products] == [(64, 64, 64, "bf16")]
    assert dict(work.operations) == {"simple": 2 * 64 * 64, "special": 64 * 64}


def test_processors_get_what_is_compiled() -> None:
    text = f"x = f32[30,40] parameter(0)\ny = f32[40,50] parameter(1)\nd = f32[30,50] dot(x, y), {DOT}\n"
    module = program(text + "ROOT t = f32[50,30] transpose(d), dimensions={1,0}")
    described = lower_for(module, load_machine("host"))
    assert print_module(described.module) == print_module(lower(module, Config()).module)
    assert print_module(lower_for(module, H100).module) != print_module(described.module)


def test_accelerators_do_without_what_our_kernels_need() -> None:
    names = [p.name for p in accelerator_passes(H100, Config())]
    assert "fuse-attention" in names
    assert not {"swap-products", "split-products", "expand-vector-products"} & set(names)
    assert names.count("remove-markers") == 2
    plain = replace(H100, device=replace(H100.device, fused_attention=False))
    assert "fuse-attention" not in [p.name for p in accelerator_passes(plain, Config())]


def test_what_is_computed_again_on_purpose_is() -> None:
    """Behind a barrier the same product is another one, as in rematerialised layers."""
    text = f"x = f32[64,64] parameter(0)\na = f32[64,64] dot(x, x), {DOT}\nb = f32[64,64] tanh(a)\n"
    text += f"p = f32[64,64] opt-barrier(x)\nc = f32[64,64] dot(p, p), {DOT}\n"
    module = program(text + f"d = f32[64,64] dot(b, c), {DOT}\nROOT r = f32[64,64] negate(d)")
    products = [p for k in kernels(module) for p in work_of(k).products]
    assert len(products) == 3
    args = random_arguments(module)
    assert_close(evaluate(lower_for(module, H100).module, args), evaluate(module, args))


def test_times_of_steps_and_what_was_measured() -> None:
    module = program(f"x = f32[64,64] parameter(0)\nROOT d = f32[64,64] dot(x, x), {DOT}")
    lowered = lower_for(module, H100)
    (time,) = [t for t in step_times(lowered, H100).values() if t.seconds]
    assert time.limit == "launch"
    (name,) = [s.instruction.name for s in leaf_steps(lowered.steps) if isinstance(s, KernelStep)]
    assert sum(t.seconds for t in step_times(lowered, H100, {name: 0.25}).values()) == 0.25


GOOD = {"memory_bytes": 1, "memory_bandwidth": 1.0, "flops": {"f32": 1.0}}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"kind": "gpu"}, "kind"),
        ({"memory_share": 1.5}, "memory_share"),
        ({"launch_seconds": -1}, "launch_seconds"),
        ({"flops": {"f32": 0}}, "f32"),
        ({"matrix": {"units": 0}}, "units"),
        ({"matrix": {"shape": [8, 8]}}, "shape"),
        ({"matrix": {"tile": [8, "8"]}}, "tile"),
        ({"transfers": True}, "transfers"),
    ],
)
def test_bad_devices(bad: dict[str, object], says: str) -> None:
    assert device_of(GOOD, "here").kind == "accelerator"
    with pytest.raises(InputError, match=says):
        device_of({**GOOD, **bad}, "here")
