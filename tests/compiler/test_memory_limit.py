"""A program that was planned for some memory is scheduled within it, where transfers go on beside kernels."""

from __future__ import annotations

import pytest

from shardc.compiler.cache.cache import module_key
from shardc.compiler.lower.described import lower_for
from shardc.compiler.lower.lowered import memory_analysis
from shardc.costs.machines.machine import load_machine
from shardc.hlo.errors import InputError
from shardc.hlo.ir.ir import Alias, Module
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.transforms.memory_limit import memory_limit, with_memory_limit
from tests.compiler.checking import program

#: What the ends of a few buffers may be rounded up by.
ALIGNED = 1 << 14
MACHINE = load_machine("h100-dgx")


def gathered_beside_a_product(*, donated: bool = False) -> Module:
    """A gather whose result is read last, and a product that it may go on beside: at the cost of its memory."""
    module = program(
        """
        x = f32[32,4096] parameter(0)
        a = f32[4096,4096] parameter(1)
        y = f32[4096,4096] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        z = f32[4096,16] slice(y), slice={[0:4096], [0:16]}
        s = f32[4096,16] dot(y, z), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        g = f32[256,4096] all-gather(x), dimensions={0}, channel_id=1, use_global_device_ids=true, replica_groups={}
        t = f32[256,16] dot(g, s), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        zero = f32[] constant(0)
        total = f32[] reduce(t, zero), dimensions={0,1}, to_apply=sum
        all = f32[32,4096] broadcast(total), dimensions={}
        ROOT r = f32[32,4096] add(x, all)""",
        header=", num_partitions=8",
    ).with_(partitioned=True)
    return module.with_(aliases=(Alias((), 0),)) if donated else module


def peak(module: Module) -> float:
    return float(memory_analysis(lower_for(module, MACHINE))["peak_bytes"])


@pytest.mark.parametrize("donated", [False, True])
def test_a_transfer_goes_on_beside_a_kernel_only_within_the_memory(donated: bool) -> None:
    module = gathered_beside_a_product(donated=donated)
    most = peak(module)
    within = peak(with_memory_limit(module, most - ALIGNED))
    assert within < most
    assert peak(with_memory_limit(module, most)) == most
    assert peak(with_memory_limit(module, within + ALIGNED)) == within


def test_the_limit_goes_along_in_the_text_and_in_the_key() -> None:
    module = gathered_beside_a_product()
    limited = with_memory_limit(with_memory_limit(module, 7.0), 1e8)
    assert memory_limit(module) is None
    assert memory_limit(read_hlo(print_module(limited))) == 100_000_000
    assert len({module_key(m, None) for m in (module, limited, with_memory_limit(module, 5))}) == 3


def test_a_limit_that_is_no_number_is_refused() -> None:
    attrs = {"frontend_attributes": (("shardc.memory", "much"),)}
    with pytest.raises(InputError, match="'much'"):
        memory_limit(gathered_beside_a_product().with_(attrs=attrs))
