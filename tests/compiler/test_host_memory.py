"""Values in host memory in lowered programs: where they lie, what the device saves, which orders are found."""

from __future__ import annotations

import numpy as np
import pytest

import shardc
from shardc import Program
from shardc.compiler.lower.buffers.assign_buffers import assign_buffers
from shardc.compiler.lower.buffers.check_plan import check_plan
from shardc.compiler.lower.buffers.linearise import linearise
from shardc.compiler.lower.described import lower_for
from shardc.compiler.lower.lowered import AwaitStep, KernelStep, leaf_steps, memory_analysis
from shardc.compiler.lower.pipeline import lower
from shardc.costs.kernels.peak_memory import estimate_host_bytes, estimate_peak
from shardc.costs.machines.machine import load_machine
from shardc.frontends.load import load_program
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.host_memory.host_moves import is_host_move
from shardc.hlo.ir.host_memory.memory_kinds import is_host
from shardc.hlo.ir.ir import Module
from shardc.hlo.text.printer import print_module

MIB = 1 << 20
#: Two values of 1 MiB that wait on the host while others are computed.
WAITING = """HloModule waiting
ENTRY main {
  x = f32[512,512] parameter(0)
  a = f32[512,512] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  away = f32[512,512] custom-call(a), custom_call_target="MoveToHost"
  b = f32[512,512] dot(a, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  far = f32[512,512] custom-call(b), custom_call_target="MoveToHost"
  c = f32[512,512] dot(b, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d = f32[512,512] dot(c, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  back = f32[512,512] custom-call(far), custom_call_target="MoveToDevice"
  e = f32[512,512] dot(d, back), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  again = f32[512,512] custom-call(away), custom_call_target="MoveToDevice"
  ROOT r = f32[512,512] dot(e, again), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
ON_DEVICE = WAITING.replace("MoveToHost", "Sharding").replace("MoveToDevice", "Sharding")
#: An argument and a result on the host, and an addition that reads one there.
BORDER = """HloModule border
ENTRY main {
  x = f32[4,64]{1,0:S(5)} parameter(0)
  y = f32[4,64] parameter(1)
  sum = f32[4,64] add(x, y)
  ROOT out = f32[4,64] custom-call(sum), custom_call_target="MoveToHost"
}
"""


def module_of(text: str) -> Module:
    return load_program(text.encode(), "").module


def test_the_host_has_what_the_device_saves() -> None:
    before, after = (memory_analysis(lower(module_of(t))) for t in (ON_DEVICE, WAITING))
    assert before["peak_bytes"] - after["peak_bytes"] >= MIB
    assert before["host_bytes"] == 0
    assert 2 * MIB <= after["host_bytes"] < 2 * MIB + 4096  # with gaps between them


def test_estimates_before_lowering_count_them_for_the_host() -> None:
    before, after = module_of(ON_DEVICE), module_of(WAITING)
    assert estimate_peak(after) < estimate_peak(before)
    assert (estimate_host_bytes(before), estimate_host_bytes(after)) == (0, 2 * MIB)


@pytest.mark.parametrize("text", [WAITING, BORDER], ids=["waiting", "border"])
def test_values_on_processors_are_right(text: str) -> None:
    module = module_of(text)
    rng = np.random.default_rng(0)
    arguments = [(rng.standard_normal(p.shape.dims) / 8).astype(np.float32) for p in module.parameters]
    (wanted,) = evaluate(module, arguments)
    got = np.asarray(Program(module).compile()(*arguments))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_plans_of_memory_keep_both_apart() -> None:
    linear = linearise(lower(module_of(WAITING)).module)
    plan = assign_buffers(linear)
    check_plan(linear, plan)
    first = plan.arena_bytes - plan.host_bytes
    places = [(b.host, plan.ref(b)) for b in linear.buffers]
    assert all((r.offset >= first) == host for host, r in places if r.space == "arena" and r.nbytes)


def test_arguments_and_results_on_the_host_take_none_of_the_device() -> None:
    found = memory_analysis(lower(module_of(BORDER)))
    assert (found["argument_bytes"], found["result_bytes"]) == (1024, 0)
    assert found["host_bytes"] >= 2048


def test_the_header_of_a_text_says_where_arguments_and_results_are() -> None:
    """As XLA prints programs before their layouts are assigned."""
    layout = "{(f32[4,64]{1,0:S(5)}, f32[4,64]{1,0})->f32[4,64]{1,0:S(5)}}"
    text = BORDER.replace("{1,0:S(5)}", "").replace("ROOT out", "out")
    text = text.replace("\n}", "\n  ROOT last = f32[4,64] negate(out)\n}")
    text = text.replace("HloModule border", f"HloModule border, entry_computation_layout={layout}")
    module = module_of(text)
    assert is_host(module.parameters[0].shape)
    assert f"entry_computation_layout={layout}" in print_module(module)
    assert memory_analysis(lower(module))["argument_bytes"] == 1024
    assert memory_analysis(lower(module))["result_bytes"] == 0


def test_moves_go_on_beside_products() -> None:
    """On an accelerator: started before a product, awaited behind it."""
    lowered = lower_for(module_of(WAITING.replace("512", "4096")), load_machine("gb200-nvl72"))
    flying, beside = 0, 0
    for step in leaf_steps(lowered.steps):
        if isinstance(step, AwaitStep):
            flying -= 1
        elif isinstance(step, KernelStep) and is_host_move(step.instruction):
            flying += step.asynchronous
        else:
            beside += flying > 0
    assert flying == 0
    assert beside >= 2


def test_programs_for_gpus_refuse_them() -> None:
    with pytest.raises(shardc.ShardcError, match="cannot move values to or from host memory"):
        Program(module_of(WAITING)).compile("cuda-emulated")


def test_other_kinds_of_memory_are_refused() -> None:
    call = 'custom_call_target="annotate_device_placement", frontend_attributes={_xla_buffer_placement="unpinned_host"}'
    text = WAITING.replace('custom_call_target="MoveToHost"', call)
    with pytest.raises(shardc.ShardcError, match="memory kind 'unpinned_host'"):
        lower(module_of(text))
