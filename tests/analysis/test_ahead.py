"""Ahead of time: the files link with cc, run without Python, and give the bits that the process itself computes."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
from shardc.analysis.ahead import compile_ahead, write_ahead
from shardc.compiler.ahead.example import link
from shardc.compiler.ahead.program import AheadProgram, identifier
from shardc.hlo.errors import EnvironmentProblem, InputError
from shardc.launcher.arrays.layout import ArrayLayout
from shardc.native.llvm import blas
from shardc.native.llvm.target import CPUS
from tests.cli.programs import MLP, PLAIN

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")

#: Every kind of collective on one value of a type, a loop with an all-reduce inside; 4 devices, given as they are.
COMPUTATIONS = """
sumN { a = TYPE[] parameter(0)  b = TYPE[] parameter(1)  ROOT s = TYPE[] add(a, b) }
mostN { a = TYPE[] parameter(0)  b = TYPE[] parameter(1)  ROOT s = TYPE[] maximum(a, b) }

bodyN {
  p = (s32[], TYPE[SIZE]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  v = TYPE[SIZE] get-tuple-element(p), index=1
  one = s32[] constant(1)
  m = s32[] add(n, one)
  r = TYPE[SIZE] all-reduce(v), channel_id=N9, use_global_device_ids=true, replica_groups={{0,3},{1,2}}, to_apply=sumN
  ROOT t = (s32[], TYPE[SIZE]) tuple(m, r)
}

condN {
  p = (s32[], TYPE[SIZE]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  k = s32[] constant(2)
  ROOT l = pred[] compare(n, k), direction=LT
}
"""
LINES = """
  xN = TYPE[SIZE] parameter(N)
  aN = TYPE[SIZE] all-reduce(xN), channel_id=N1, use_global_device_ids=true, replica_groups={{0,1,2,3}}, to_apply=sumN
  bN = TYPE[SIZE] all-reduce(xN), channel_id=N2, use_global_device_ids=true, replica_groups={{0,2},{1,3}}, \
    to_apply=mostN
  yN = TYPE[1,SIZE] reshape(xN)
  gN = TYPE[2,SIZE] all-gather(yN), channel_id=N3, use_global_device_ids=true, replica_groups={{1,0},{2,3}}, \
    dimensions={0}
  fN = TYPE[4,CHUNK] reshape(xN)
  rN = TYPE[1,CHUNK] reduce-scatter(fN), channel_id=N4, use_global_device_ids=true, replica_groups={{3,1,0,2}}, \
    dimensions={0}, to_apply=sumN
  tN = TYPE[4,CHUNK] all-to-all(fN), channel_id=N5, replica_groups={{0,1,2,3}}, dimensions={0}
  pN = TYPE[SIZE] collective-permute(xN), channel_id=N6, source_target_pairs={{0,1},{1,3},{3,0}}
  startN = (s32[], TYPE[SIZE]) tuple(zero, xN)
  wN = (s32[], TYPE[SIZE]) while(startN), condition=condN, body=bodyN
  lN = TYPE[SIZE] get-tuple-element(wN), index=1
"""


def collectives(*values: tuple[str, int]) -> str:
    """A program with every kind of collective for each (element type, size)."""
    computations, lines, kinds, names = "", "", [], []
    for number, (dtype, size) in enumerate(values):
        replacements = {"TYPE": dtype, "SIZE": str(size), "CHUNK": str(size // 4), "N": str(number)}
        pattern = "|".join(["TYPE", "SIZE", "CHUNK", r"(?<=[a-z(=])N"])
        fill = partial(re.sub, pattern, lambda m, by=replacements: by[m.group()])  # type: ignore[misc]
        computations += fill(COMPUTATIONS)
        lines += fill(LINES)
        whole, chunk = f"{dtype}[{size}]", size // 4
        kinds += [whole, whole, f"{dtype}[2,{size}]", f"{dtype}[1,{chunk}]", f"{dtype}[4,{chunk}]", whole, whole]
        names += [f"{letter}{number}" for letter in "abgrtpl"]
    root = f"  ROOT out = ({', '.join(kinds)}) tuple({', '.join(names)})\n"
    head = "HloModule all_kinds, num_partitions=4\n" + computations
    return f"{head}\nENTRY main {{\n  zero = s32[] constant(0)\n{lines}{root}}}\n"


@pytest.fixture
def mpiexec(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The launcher of the MPI here; its mpicc is found."""
    from shardc.launcher.jobs.mpi_environment import find_library
    from shardc.launcher.jobs.mpiexec import find_mpiexec

    library = find_library()
    mpiexec = Path(find_mpiexec(library)) if library is not None else None
    mpicc = mpiexec.parent / "mpicc" if mpiexec is not None else Path("mpicc")
    if mpiexec is None or not mpicc.is_file():
        pytest.skip("the MPI here has no mpicc")
    monkeypatch.setenv("MPICC", str(mpicc))
    return mpiexec


def prepared(tmp_path: Path, text: str, **options: Any) -> tuple[AheadProgram, Any]:
    """The program, its files in ``tmp_path``, and the same compiled in this process."""
    file = tmp_path / "program.hlo"
    file.write_text(text)
    partitioned = shardc.load(file).propagate().partition()
    program, files = partitioned.compile_ahead(tmp_path, **options)
    assert all(f.is_file() for f in files)
    return program, partitioned.compile()


def random_arguments(compiled: Any) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(s.dims) * 3 for s in compiled.parameter_shapes]
    small = zip(values, compiled.parameter_shapes, strict=True)
    return [(np.abs(v) if s.dtype.is_integer else v).astype(s.dtype.numpy) for v, s in small]


def write_inputs(folder: Path, compiled: Any, arguments: list[np.ndarray[Any, Any]]) -> None:
    executable = compiled.executable
    for number, (value, spec) in enumerate(zip(arguments, executable.arguments, strict=True)):
        layout = ArrayLayout.of(spec, executable.num_devices)
        for device, position in enumerate(layout.positions):
            block = np.zeros(layout.local_bytes, np.uint8)
            layout.fill(block, value, position)
            name = f"in{number}.{device}.bin" if executable.num_devices > 1 else f"in{number}.bin"
            (folder / name).write_bytes(block.tobytes())


def check_outputs(folder: Path, compiled: Any, results: list[Any]) -> None:
    """Files and in-process results have the same bits on every device."""
    executable = compiled.executable
    for number, (result, spec) in enumerate(zip(results, executable.results, strict=True)):
        layout = ArrayLayout.of(spec, executable.num_devices)
        whole = np.asarray(result)
        for device, position in enumerate(layout.positions):
            name = f"out{number}.{device}.bin" if executable.num_devices > 1 else f"out{number}.bin"
            block = np.frombuffer((folder / name).read_bytes(), np.uint8)
            part = layout.without_padding(block, position)
            assert part.tobytes() == np.ascontiguousarray(whole[layout.region(position)]).tobytes(), (number, device)


def run_both(folder: Path, program: AheadProgram, compiled: Any, *launcher: str) -> None:
    """The files' results against the process's. Both let OpenBLAS take the same kernels."""
    name = blas.library().scipy_openblas_get_corename
    name.restype = ctypes.c_char_p
    environment = {**os.environ, "OPENBLAS_CORETYPE": name().decode()}
    arguments = random_arguments(compiled)
    write_inputs(folder, compiled, arguments)
    command = [*launcher, str(folder / f"{program.name}_main"), str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=60, env=environment)
    check_outputs(folder, compiled, compiled.run(arguments))


@needs_cc
def test_one_device(tmp_path: Path) -> None:
    program, compiled = prepared(tmp_path, PLAIN)
    shared, _ = link(program, tmp_path)
    assert shared.name == "libplain.so"
    run_both(tmp_path, program, compiled)
    manifest = json.loads((tmp_path / "plain.json").read_text())
    assert [a["name"] for a in manifest["arguments"]] == ["x", "n"]
    assert manifest["arguments"][0]["shape"] == [7, 5]
    assert manifest["results"][1] | {"sharding": ""} == {
        "index": 1, "name": "", "dtype": "s32", "shape": [7], "global_shape": [7], "sharding": "", "bytes": 28,
    }  # fmt: skip


@needs_cc
def test_products_with_each_blas(tmp_path: Path) -> None:
    """The wheel's BLAS gives our bits; plain C the same values."""
    text = MLP.replace("[8,", "[128,").replace("6]", "96]").replace("[6,", "[96,").replace("10]", "200]")
    program, compiled = prepared(tmp_path, text)
    assert program.needs["blas"] == ["scipy_cblas_sgemm"]
    link(program, tmp_path, blas="scipy")
    run_both(tmp_path, program, compiled)
    exact = np.fromfile(tmp_path / "out1.0.bin", np.float32)
    link(program, tmp_path, blas="builtin")
    arguments = random_arguments(compiled)
    write_inputs(tmp_path, compiled, arguments)
    subprocess.run([str(tmp_path / "mlp_main"), str(tmp_path)], check=True)
    np.testing.assert_allclose(np.fromfile(tmp_path / "out1.0.bin", np.float32), exact, atol=1e-4)
    with pytest.raises(InputError, match="unknown BLAS"):
        link(program, tmp_path, blas="fast")


@needs_cc
def test_collectives_in_one_process(tmp_path: Path) -> None:
    """Of every type that is reduced in a way of its own, small and cut into blocks."""
    cases = [("f32", 8), ("f32", 5000), ("bf16", 2504), ("f16", 1304), ("s8", 404), ("u64", 300), ("f64", 604)]
    program, compiled = prepared(tmp_path, collectives(*cases))
    kinds = {c.op for c in program.executable.collectives}
    assert kinds == {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"}
    link(program, tmp_path)
    run_both(tmp_path, program, compiled)


@needs_cc
@pytest.mark.mpi
def test_collectives_over_ranks(tmp_path: Path, mpiexec: Path) -> None:
    """One device per rank, and several on some."""
    program, compiled = prepared(tmp_path, collectives(("f32", 5000), ("bf16", 24)))
    link(program, tmp_path, mpi=True)
    for ranks in (4, 3, 1):
        run_both(tmp_path, program, compiled, str(mpiexec), "-n", str(ranks))


@needs_cc
@pytest.mark.full
@pytest.mark.mpi
def test_a_training_step_over_ranks(tmp_path: Path, repository: Path, mpiexec: Path) -> None:
    """The demo's transformer, updates of all weights included."""
    text = (repository / "shardc" / "demo" / "step.hlo").read_text()
    program, compiled = prepared(tmp_path, text)
    link(program, tmp_path, mpi=True, blas="scipy")
    for ranks in (4, 2):
        run_both(tmp_path, program, compiled, str(mpiexec), "-n", str(ranks))


@needs_cc
@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
@pytest.mark.parametrize("name", ["mlp", "main"])
def test_makefile(name: str, tmp_path: Path) -> None:
    program, compiled = prepared(tmp_path, MLP.replace("HloModule mlp", f"HloModule {name}"))
    subprocess.run(["make", "-s", "-C", str(tmp_path)], check=True)
    arguments = random_arguments(compiled)
    write_inputs(tmp_path, compiled, arguments)
    subprocess.run([str(tmp_path / f"{name}_main"), str(tmp_path)], check=True)
    wanted = np.asarray(compiled.run(arguments)[0])
    np.testing.assert_allclose(np.fromfile(tmp_path / "out0.0.bin", np.float32), wanted.reshape(-1), rtol=1e-5)
    subprocess.run([str(tmp_path / f"{name}_main")], check=True, capture_output=True)
    assert program.executable.num_devices == 4


@needs_cc
def test_threads_or_not(tmp_path: Path) -> None:
    """The pool is an object of its own; results are the same without it."""
    text = "HloModule big\n\nENTRY main {\n  x = f32[1048576] parameter(0)\n  ROOT y = f32[1048576] exponential(x)\n}\n"
    program, compiled = prepared(tmp_path, text)
    assert program.needs["pool"] == ["shardc_parallel"]
    for threads in (True, False):
        link(program, tmp_path, threads=threads)
        run_both(tmp_path, program, compiled)


@pytest.mark.parametrize("cpu", sorted(CPUS))
def test_other_cpus(tmp_path: Path, cpu: str) -> None:
    """Objects for any target, with symbols from the lists only; the same bytes every time."""
    program, _ = prepared(tmp_path, MLP, cpu=cpu, name="p")
    assert set(program.needs) <= {"blas", "math", "c", "pool"}
    again = compile_ahead(shardc.load(tmp_path / "program.hlo").propagate().partition(), cpu=cpu, name="p")
    assert again.executable.objects == program.executable.objects
    assert f"compiled by shardc for {program.target}" in (tmp_path / "p.h").read_text()


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.hlo").write_text(PLAIN)
    partitioned = shardc.load(tmp_path / "p.hlo").propagate().partition()
    with pytest.raises(InputError, match="unknown target CPU 'pentium'"):
        compile_ahead(partitioned, cpu="pentium")
    with pytest.raises(InputError, match="unknown target system"):
        compile_ahead(partitioned, cpu="aarch64", system="beos")
    with pytest.raises(InputError, match="not a valid name in C"):
        compile_ahead(partitioned, name="9 lives")
    program = compile_ahead(partitioned)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_ahead(program, tmp_path / "file")
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(EnvironmentProblem, match="the C compiler 'no-such-compiler' was not found"):
        link(program, tmp_path)


def test_tuning_is_for_this_machine(tmp_path: Path) -> None:
    (tmp_path / "p.hlo").write_text(PLAIN)
    tuned = shardc.load(tmp_path / "p.hlo").tuned(0.3).partition()
    assert set(compile_ahead(tuned).executable.tuning) == {"program", "kernels"}
    with pytest.raises(InputError, match="is not this machine"):
        compile_ahead(tuned, cpu="aarch64")


def test_names() -> None:
    assert identifier("jit_train-step.1") == "jit_train_step_1"
    assert identifier("1.x") == "p1_x"
    assert identifier("--") == "program"


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from shardc.cli.app import main

    (tmp_path / "p.hlo").write_text(PLAIN)
    arguments = ["compile", str(tmp_path / "p.hlo"), "-o", str(tmp_path / "made"), "--target-cpu", "aarch64"]
    assert main([*arguments, "--name", "step", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["entry"] == "step_run" and "aarch64" in facts["target"]
    assert sorted(facts["files"]) == sorted(f.name for f in (tmp_path / "made").iterdir())
    object_code = (tmp_path / "made" / "step.o").read_bytes()
    assert object_code[:4] == b"\x7fELF" and int.from_bytes(object_code[18:20], "little") == 183  # EM_AARCH64
    assert main([*arguments[:-1], "z80"]) == 2
    assert "unknown target CPU 'z80'" in capsys.readouterr().err


CHECKED = """HloModule checked

ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  c = () custom-call(x, y), custom_call_target="check.expect_eq", custom_call_has_side_effect=true
  ROOT r = f32[4] add(x, y)
}
"""


@needs_cc
def test_a_false_check_is_told(tmp_path: Path) -> None:
    program, compiled = prepared(tmp_path, CHECKED)
    link(program, tmp_path)
    write_inputs(tmp_path, compiled, [np.ones(4, np.float32), np.zeros(4, np.float32)])
    done = subprocess.run([str(tmp_path / "checked_main"), str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "check.expect_eq is false" in done.stderr
    assert not (tmp_path / "out0.bin").exists()


@needs_cc
def test_functions_of_ones_own(tmp_path: Path) -> None:
    """A custom call is a C function that the linker finds."""
    call = 'f32[4] custom-call(x), custom_call_target="double_it"'
    text = f"HloModule own\n\nENTRY main {{\n  x = f32[4] parameter(0)\n  ROOT r = {call}\n}}\n"
    (tmp_path / "own.hlo").write_text(text)
    program = compile_ahead(shardc.load(tmp_path / "own.hlo").propagate().partition())
    write_ahead(program, tmp_path)
    assert program.needs["custom_calls"] == ["shardc_custom_call.double_it"]
    declaration = next(line for line in (tmp_path / "own.h").read_text().splitlines() if "__asm__" in line)
    body = "for (int i = 0; i < 4; i++) ((float *)out)[i] = 2 * ((float *)in[0])[i];"
    body = f"void f(void *out, const void **in) {{ {body} }}"
    (tmp_path / "own.c").write_text(f"{declaration.removeprefix(' *')}\n{body}\n")
    link(program, tmp_path, libraries=["own.c"])
    x = np.array([1, 2, 3, 4], np.float32)
    (tmp_path / "in0.bin").write_bytes(x.tobytes())
    subprocess.run([str(tmp_path / "own_main"), str(tmp_path)], check=True)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "out0.bin", np.float32), 2 * x)


def test_the_header_says_what_may_share_memory(tmp_path: Path) -> None:
    text = PLAIN.replace("HloModule plain", "HloModule plain, input_output_alias={ {0}: (0, {}, may-alias) }")
    prepared(tmp_path, text)
    header = (tmp_path / "plain.h").read_text()
    assert "result 0 may use the memory of argument 0" in header
    assert "The contents of arguments 0 are undefined after the step" in header
