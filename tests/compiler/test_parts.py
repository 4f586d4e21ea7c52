"""Large steps in several objects."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.compiler.cache.serialize import read_bytes, to_bytes
from shardc.compiler.emit import kernels
from shardc.compiler.emit.cpu_executable import build_executable
from shardc.compiler.load.step import load_step, run_single
from shardc.hlo.config import Config
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.native.llvm.jit import Compilation, new_module, undefined_symbols
from shardc.native.llvm.target import host_target
from tests.compiler.checking import SUM, assert_close, program, random_arguments


def several() -> Module:
    return program(
        "x = f32[6,40] parameter(0)\nz = f32[] constant(0)\n"
        "a = f32[40,6] transpose(x), dimensions={1,0}\n"
        "d = f32[6,6] dot(x, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "s = f32[6] reduce(d, z), dimensions={1}, to_apply=sum\n"
        "e = f32[6,6] sort(d), dimensions={1}, to_apply=less\n"
        "l = f32[6,6] cholesky(e), lower=true\n"
        "ROOT t = (f32[6], f32[6,6], f32[6,6]) tuple(s, e, l)",
        SUM + "\nless { l.a = f32[] parameter(0)\n l.b = f32[] parameter(1)\n"
        "ROOT l.r = pred[] compare(l.a, l.b), direction=LT }\n",
    )


def test_objects_link_and_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels.Parts, "size", 1)
    module = several()
    whole = build_executable(module, Config(), host_target(), whole=True)
    made = [build_executable(module, Config(num_threads=n), host_target()) for n in (1, 2, 5)]
    assert len(whole.objects) == 1
    assert len(made[0].objects) > 2
    assert {m.objects for m in made} == {made[0].objects}
    assert undefined_symbols(*made[0].objects) == undefined_symbols(*whole.objects)
    assert undefined_symbols(made[0].objects[-1]) != undefined_symbols(*made[0].objects)
    args = random_arguments(module)
    again = read_bytes(to_bytes(made[0]))
    assert again.objects == made[0].objects
    got = run_single(again, args, step=load_step(again))
    for one, other in zip(got, run_single(whole, args), strict=True):
        np.testing.assert_array_equal(one, other)
    assert_close(got[:2], evaluate(module, args)[:2], 1e-5)


def test_small_steps_are_one_object() -> None:
    assert len(build_executable(several(), Config(), host_target()).objects) == 1


@pytest.mark.parametrize("threads", [1, 3])
def test_errors_of_threads_arrive(threads: int) -> None:
    bad = new_module("bad")
    bad.triple = 'x" nonsense'
    with pytest.raises(RuntimeError, match="expected"), Compilation(host_target(), threads) as compilation:
        compilation.add(new_module("good"))
        compilation.add(bad)
        compilation.objects(new_module("last"))
