"""Programs that differ in sizes alone: one compilation for all of them, and the bits of those compiled one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shardc.collectives.call.call import BufferRef
from shardc.compiler.compile import compile_module
from shardc.compiler.compile_source import compile_source
from shardc.compiler.emit import cpu_executable
from shardc.compiler.emit.cpu_executable import build_executable
from shardc.compiler.emit.templates import find_template, fits_any_count
from shardc.compiler.load.step import load_step, run_single
from shardc.compiler.lower.lowered import Constants
from shardc.compiler.lower.pipeline import lower
from shardc.hlo.config import Config
from shardc.hlo.ir.ir import Module
from shardc.hlo.text.reader import read_hlo
from shardc.native.llvm import jit
from shardc.native.llvm.target import host_target
from tests.compiler.checking import program, random_arguments
from tests.compiler.property_support import wild

#: Less than a vector, a vector, several and a rest, of any number of dimensions.
DIMS = ("1", "3", "8", "31", "64,32", "2,5,7", "1,1,13", "1000", "32,1")

#: Bodies of programs over arrays of ``@`` dimensions.
BODIES = {
    "add": "x = f32[@] parameter(0)\ny = f32[@] parameter(1)\nROOT r = f32[@] add(x, y)",
    "exp": "x = f32[@] parameter(0)\nROOT r = f32[@] exponential(x)",
    "doubles": "x = f64[@] parameter(0)\nROOT r = f64[@] sine(x)",
    "bf16": "x = bf16[@] parameter(0)\ny = bf16[@] parameter(1)\nROOT r = bf16[@] multiply(x, y)",
    "complex": "x = c64[@] parameter(0)\ny = c64[@] parameter(1)\nROOT r = c64[@] divide(x, y)",
    "predicates": "x = f32[@] parameter(0)\ny = f32[@] parameter(1)\nROOT r = pred[@] compare(x, y), direction=LT",
    "scalar": "x = f32[@] parameter(0)\ns = f32[] parameter(1)\nt = f32[] exponential(s)\n"
    "b = f32[@] broadcast(t), dimensions={}\nROOT r = f32[@] multiply(x, b)",
    "narrow": "x = f32[@] parameter(0)\nROOT r = s8[@] convert(x)",
    "two": "x = f32[@] parameter(0)\nn = f32[@] negate(x)\nl = s32[@] convert(x)\n"
    "ROOT r = (f32[@], s32[@], f32[@]) tuple(n, l, x)",
    "constants": "c = f32[] constant(1.5)\nb = f32[@] broadcast(c), dimensions={}\nx = f32[@] parameter(0)\n"
    "y = f32[@] copy(x)\nROOT r = f32[@] atan2(y, b)",
}  # fmt: skip


def of_dims(name: str, dims: str) -> Module:
    return program(BODIES[name].replace("@", dims))


def compilations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each object that LLVM makes."""
    made: list[int] = []
    emit = jit.emit_object

    def counted(*arguments: object) -> bytes:
        made.append(1)
        return emit(*arguments)

    monkeypatch.setattr(jit, "emit_object", counted)
    return made


@pytest.mark.parametrize("name", BODIES)
def test_bits_are_those_of_programs_compiled_one_by_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = compilations(monkeypatch)
    shared = [compile_module(of_dims(name, dims), Config(cache_dir=tmp_path)) for dims in DIMS]
    assert len(made) == 1
    for executable, dims in zip(shared, DIMS, strict=True):
        module = of_dims(name, dims)
        alone = build_executable(module, Config(), host_target())
        arguments = [wild(p.shape, seed) for seed, p in enumerate(module.parameters)]
        got, wanted = run_single(executable, arguments), run_single(alone, arguments)
        assert [g.tobytes() for g in got] == [w.tobytes() for w in wanted], dims
        assert (executable.arguments, executable.results) == (alone.arguments, alone.results)
        assert executable.meaning == alone.meaning
        kept = ("argument_bytes", "result_bytes", "aliased_bytes")
        assert [executable.memory[k] for k in kept] == [alone.memory[k] for k in kept]


@pytest.mark.parametrize("dims", DIMS)
def test_nothing_behind_the_last_element_is_touched(dims: str, tmp_path: Path) -> None:
    module = of_dims("add", dims)
    step = load_step(compile_module(module, Config(cache_dir=tmp_path)))
    executable = compile_module(module, Config(cache_dir=tmp_path))
    size = module.parameters[0].shape.size
    whole = np.full(size + 64, 7, np.float32)
    x, y = (np.zeros(size, np.float32) for _ in range(2))
    arena = np.zeros(max(executable.arena_bytes, 64), np.uint8)
    tables = [np.array([a.ctypes.data for a in arrays], np.uint64) for arrays in ((x, y), (whole,))]
    constants = np.frombuffer(executable.constants, np.uint8)
    step(arena.ctypes.data, *(t.ctypes.data for t in tables), constants.ctypes.data, 0)
    assert (whole[:size] == 0).all() and (whole[size:] == 7).all()


def test_arguments_that_are_given_away_are_written_over(tmp_path: Path) -> None:
    header = ", input_output_alias={ {}: (0, {}, may-alias) }"
    for dims in DIMS:
        module = program(BODIES["exp"].replace("@", dims), header=header)
        executable = compile_module(module, Config(cache_dir=tmp_path))
        assert executable.aliases == ((0, 0),)
        (x,) = random_arguments(module)
        (wanted,) = run_single(executable, [x])
        memory = np.ascontiguousarray(x)
        table = np.array([memory.ctypes.data], np.uint64)
        arena, constants = np.zeros(64, np.uint8), np.frombuffer(executable.constants, np.uint8)
        step = load_step(executable)
        step(arena.ctypes.data, table.ctypes.data, table.ctypes.data, constants.ctypes.data, 0)
        assert memory.tobytes() == wanted.tobytes()


def test_code_is_linked_once(tmp_path: Path) -> None:
    steps = [load_step(compile_module(of_dims("exp", dims), Config(cache_dir=tmp_path))) for dims in DIMS]
    assert len({s.address for s in steps}) == 1


def test_another_process_finds_them_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(cache_dir=tmp_path)
    first = {d: compile_source(f"{n:064x}", config, lambda d=d: of_dims("two", d)) for n, d in enumerate(DIMS)}
    made = compilations(monkeypatch)
    for n, (dims, executable) in enumerate(first.items()):
        found = compile_source(f"{n:064x}", config, lambda: pytest.fail("made although the cache knows it"))
        assert found == replace(executable, seconds={"cache": 0.0}), dims
    compile_module(of_dims("two", "77"), config)
    assert not made


@pytest.mark.parametrize(
    "body",
    [
        "x = f32[4,5] parameter(0)\nROOT r = f32[5,4] transpose(x), dimensions={1,0}",
        "x = f32[4,5] parameter(0)\ny = f32[5] parameter(1)\nb = f32[4,5] broadcast(y), dimensions={1}\n"
        "ROOT r = f32[4,5] add(x, b)",
        "x = f32[4,5] parameter(0)\nc = f32[4] constant({1, 2, 3, 4})\nb = f32[4,5] broadcast(c), dimensions={0}\n"
        "ROOT r = f32[4,5] add(x, b)",
        "x = f32[4] parameter(0)\nz = f32[] constant(0)\nROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=sum",
        "x = f32[] parameter(0)\nROOT r = f32[] negate(x)",
        "x = f32[2,3] parameter(0)\nROOT r = s32[2,3] iota(), iota_dimension=1",
        "x = f32[9000000] parameter(0)\nROOT r = f32[9000000] negate(x)",
        "x = f32[0] parameter(0)\nROOT r = f32[0] negate(x)",
        "x = f32[6] parameter(0)\nROOT r = f32[2,3] reshape(x)",
        "x = f32[1] parameter(0)\nr1 = f32[] reshape(x)\nROOT r = f32[] negate(r1)",
    ],
    ids=[
        "transpose",
        "row",
        "constants",
        "reduce",
        "scalars",
        "numbered columns",
        "large",
        "empty",
        "moves",
        "to a scalar",
    ],
)
def test_what_is_not_the_same_for_all_sizes_has_no_template(body: str) -> None:
    assert find_template(program(body)) is None


def test_calls_are_seen_through() -> None:
    text = """HloModule m
double { p = f32[6] parameter(0)
  ROOT q = f32[6] add(p, p) }
ENTRY main { x = f32[6] parameter(0)
  ROOT r = f32[6] call(x), to_apply=double }
"""
    found = find_template(read_hlo(text))
    assert found is not None and found.count == 6


def test_temporary_scalars_may_lie_in_the_arena(tmp_path: Path) -> None:
    module = program(
        "x = s32[5,7] parameter(0)\ns = s32[] parameter(1)\nb = s32[5,7] broadcast(s), dimensions={}\n"
        "ROOT r = s32[5,7] remainder(x, b)"
    )
    executable = compile_module(module, Config(cache_dir=tmp_path))
    x = np.arange(35, dtype=np.int32).reshape(5, 7)
    (got,) = run_single(executable, [x, np.int32(3)])
    assert (got == x % 3).all()


def test_a_plan_that_depends_on_sizes_has_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scalar in memory that a result has not written yet, an array between kernels, a constant array."""
    module = program(
        "x = s8[3] parameter(0)\ns = f64[] parameter(1)\nt = f64[] exponential(s)\nu = f64[] sine(t)\n"
        "b = f64[3] broadcast(u), dimensions={}\ny = f64[3] convert(x)\nROOT r = pred[3] compare(y, b), direction=LT"
    )
    use = find_template(module)
    assert use is not None
    lowered = lower(use.template)
    assert fits_any_count(lowered)
    placements = lowered.plan.placements
    scalar = next(b for b in placements if not b.shape.rank and b not in lowered.parameters)
    array = next(b for b in placements if b.shape.rank)
    for buffer, place in ((scalar, BufferRef("result", 0, 0, 8)), (array, BufferRef("arena", 0, 64, 1 << 20))):
        moved = {**placements, buffer: replace(placements[buffer], ref=place)}
        assert not fits_any_count(replace(lowered, plan=replace(lowered.plan, placements=moved)))
    assert not fits_any_count(replace(lowered, constants=Constants(b"12")))
    monkeypatch.setattr(cpu_executable, "fits_any_count", lambda _: False)
    executable = compile_module(module, Config(cache_dir=tmp_path))
    assert executable.objects and executable.arguments[0].local_shape.dims == (3,)
