"""Compiling for GPUs: targets by name, code in threads, files, the cache, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
from shardc.compiler.cache.serialize import read_bytes, to_bytes
from shardc.compiler.compile import compile_module
from shardc.compiler.emit.gpu_executable import build_gpu_executable
from shardc.compiler.executable import Executable
from shardc.compiler.gpu_program import HostStep, LaunchStep, ProductStep, leaf_steps
from shardc.compiler.load.gpu import host_kernels, images_here, need_device
from shardc.compiler.targets import check_target, find_target, name_of
from shardc.hlo.config import Config
from shardc.hlo.errors import EnvironmentProblem, InputError, UnsupportedError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.text.printer import print_module
from shardc.native.gpu.assemble import can_assemble
from shardc.native.gpu.product import Product
from shardc.native.gpu.target import GpuTarget, gpu_target
from shardc.native.llvm.target import host_target
from tests.compiler.checking import assert_close, program, random_arguments
from tests.compiler.gpu.program_runner import built, hosts, run

MAPS = """
  x = f32[16,64] parameter(0)
  b = f32[64] parameter(1)
  s = f32[16,64] broadcast(b), dimensions={1}
  y = f32[16,64] add(x, s)
  e = f32[16,64] exponential(y)
  zero = f32[] constant(0)
  r = f32[16] reduce(e, zero), dimensions={1}, to_apply=sum
  d = f32[16,16] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT out = (f32[16,64], f32[16], f32[16,16]) tuple(e, r, d)
"""

FOURIER = """
  x = f32[4,16] parameter(0)
  two = f32[] constant(2)
  twos = f32[4,16] broadcast(two), dimensions={}
  y = f32[4,16] multiply(x, twos)
  f = c64[4,9] fft(y), fft_type=RFFT, fft_length={16}
  ROOT out = f32[4,9] abs(f)
"""

#: Kernels of more than one module: each its own, by its constant.
MANY = "\n".join(
    [
        "  x = f32[8,40] parameter(0)",
        *(
            f"  d{n} = f32[8,{n}] slice(x), slice={{[0:8], [0:{n}]}}\n  t{n} = f32[8,{n}] tan(d{n})\n"
            f"  p{n} = f32[8,8] dot(t{n}, t{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}"
            for n in range(20, 28)
        ),
        "  ROOT out = (" + ", ".join("f32[8,8]" for n in range(20, 28)) + ") tuple("
        + ", ".join(f"p{n}" for n in range(20, 28)) + ")",
    ]
)  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(cache_dir=tmp_path / "cache")


def launched(executable: Executable) -> list[str]:
    assert executable.gpu is not None
    return [s.symbol for s in leaf_steps(executable.gpu.steps) if isinstance(s, LaunchStep)]


@pytest.mark.parametrize("name", ["tpu", "cuda:sm_70", "cuda:", "rocm:gfx90a", "CUDA", "cpu:avx2"])
def test_unknown_targets(name: str) -> None:
    if name == "cuda:":
        check_target(name)  # the oldest kind there is
        return
    with pytest.raises(UnsupportedError, match=f"unknown compile target '{name}'"):
        check_target(name)
    with pytest.raises(UnsupportedError, match="unknown compile target"):
        compile_module(program(MAPS), target=name)


def test_targets_by_name() -> None:
    assert find_target("cuda:sm_90") == GpuTarget("nvptx", "sm_90")
    for name in ("cuda:sm_90", "cuda-emulated:sm_80"):
        assert name_of(str(find_target(name))) == name
    assert name_of(str(host_target())) == "cpu"


def test_cuda_without_a_gpu_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    from shardc.native.gpu.cuda import probe

    def nothing() -> Any:
        return probe.CudaProbe(None, problem="no NVIDIA driver is installed", fix="install a C compiler")

    monkeypatch.setattr(probe, "probe_cuda", nothing)
    with pytest.raises(EnvironmentProblem, match="no NVIDIA driver is installed"):
        compile_module(program(MAPS), target="cuda")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_code_is_assembled_and_keeps_its_text(arch: str, config: Config) -> None:
    executable = compile_module(program(MAPS), config, target=f"cuda:{arch}")
    assert executable.gpu is not None and executable.target == f"nvptx64-nvidia-cuda {arch}"
    (image,) = executable.gpu.images
    text = executable.gpu.ptx[0] if image.kind == "cubin" else image.data
    assert f".target {arch}".encode() in text
    for symbol in launched(executable):
        assert f".entry {symbol}(".encode() in text
    if can_assemble():
        assert image.kind == "cubin" and image.data.startswith(b"\x7fELF")


def test_the_same_bytes_whatever_the_threads() -> None:
    module = program(MANY)
    made = [build_gpu_executable(module, Config(num_threads=n), gpu_target("cuda-emulated")) for n in (1, 3)]
    assert made[0].gpu == made[1].gpu
    assert len(made[0].gpu.images) > 1  # type: ignore[union-attr]
    assert to_bytes(replace(made[0], seconds={})) == to_bytes(replace(made[1], seconds={}))


def test_equal_kernels_are_made_once() -> None:
    body = """
  x = f32[8,8] parameter(0)
  y = f32[8,8] parameter(1)
  a = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[8,8] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT c = f32[8,8] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
    symbols = launched(build_gpu_executable(program(body), Config(), gpu_target("cuda:sm_90")))
    assert len(symbols) >= 3 and len(set(symbols)) * 3 == len(symbols)


def test_files_and_the_cache(config: Config, tmp_path: Path) -> None:
    module = program(FOURIER)
    made = compile_module(module, config, target="cuda-emulated")
    assert read_bytes(to_bytes(made)) == made
    again = compile_module(module, config, target="cuda-emulated")
    assert again.seconds == {"cache": 0.0} and again.gpu == made.gpu
    other = compile_module(module, config, target="cuda-emulated:sm_90")
    assert "cache" not in other.seconds
    exact = compile_module(module, replace(config, tf32=True), target="cuda-emulated")
    assert "cache" not in exact.seconds
    on_cpu = compile_module(module, config)
    assert on_cpu.gpu is None and "cache" not in on_cpu.seconds


def test_what_has_no_gpu_code_runs_on_the_host() -> None:
    module = program(FOURIER)
    executable = built(module)
    assert len(hosts(executable)) == 1
    assert executable.gpu is not None and executable.gpu.host == str(host_target())
    arguments = random_arguments(module)
    assert_close(run(executable, [arguments])[0], evaluate(module, arguments))
    for_gpus = build_gpu_executable(module, Config(), gpu_target("cuda:sm_90"))
    assert for_gpus.gpu is not None and for_gpus.features == host_target().features
    (step,) = (s for s in leaf_steps(for_gpus.gpu.steps) if isinstance(s, HostStep))
    assert set(host_kernels(for_gpus).functions) == {step.symbol}


def test_no_host_code_where_nothing_runs_there() -> None:
    executable = build_gpu_executable(program(MAPS), Config(), gpu_target("cuda:sm_90"))
    assert executable.gpu is not None
    assert (executable.gpu.host_objects, executable.gpu.host, executable.features) == ((), "", "")
    assert host_kernels(executable).functions == {}


def test_products_of_libraries_where_the_target_has_them() -> None:
    module = program(
        """
  x = f32[64,96] parameter(0)
  y = f32[32,96] parameter(1)
  ROOT d = f32[64,32] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}"""
    )
    target = gpu_target("cuda:sm_90", libraries=True)
    executable = build_gpu_executable(module, Config(), target)
    assert executable.gpu is not None and not executable.gpu.images
    (step,) = (s for s in leaf_steps(executable.gpu.steps) if isinstance(s, ProductStep))
    assert step.product == Product(64, 32, 96, transpose_b=True)
    assert (step.a.index, step.b.index, step.d.space, step.bias) == (0, 1, "result", None)
    assert step.workspace.offset + step.workspace.nbytes == executable.arena_bytes
    without = build_gpu_executable(module, Config(), replace(target, libraries=False))
    assert executable.memory["peak_bytes"] - without.memory["peak_bytes"] >= step.workspace.nbytes


def test_devices_that_cannot_run_it() -> None:
    executable = build_gpu_executable(program(MAPS), Config(), gpu_target("cuda:sm_80"))
    program_ = executable.gpu
    assert program_ is not None
    assert images_here(program_, gpu_target("cuda:sm_86")) == program_.images
    if can_assemble():
        assert {i.kind for i in images_here(program_, gpu_target("cuda:sm_90"))} == {"ptx"}
    newer = build_gpu_executable(program(MAPS), Config(), gpu_target("cuda:sm_90"))
    with pytest.raises(
        EnvironmentProblem, match=r"was compiled for .* sm_90, but the device of this machine is .* sm_80"
    ):
        need_device(newer, gpu_target("cuda:sm_80"))
    with pytest.raises(EnvironmentProblem, match="but the device of this machine is emulated"):
        need_device(newer, gpu_target("cuda-emulated"))


def test_clocks_and_tuning_are_refused(config: Config) -> None:
    module = program(MAPS)
    with pytest.raises(UnsupportedError, match="only CPU targets can be tuned"):
        compile_module(module, replace(config, tune=1.0), target="cuda-emulated")


def test_ahead_of_time(tmp_path: Path) -> None:
    from shardc.analysis.ahead import write_gpu_ahead

    source = tmp_path / "step.hlo"
    source.write_text(print_module(program(MAPS)))
    partitioned = shardc.load(source).partition()
    compiled = partitioned.compile("cuda:sm_90")
    written = {p.name: p for p in write_gpu_ahead(compiled.executable, tmp_path / "out", name="my step")}
    manifest = json.loads(written["my_step.json"].read_text())
    assert manifest["target"] == "nvptx64-nvidia-cuda sm_90" and set(manifest["files"]) == {
        *written.keys() - {"my_step.json"}
    }
    assert written["my_step_0.ptx"].read_bytes().lstrip().startswith(b"//")
    symbols = [s["symbol"] for s in manifest["steps"] if s["step"] == "Launch"]
    assert symbols == launched(compiled.executable)
    again = shardc.load_executable(written["my_step.shardc"]).executable
    assert again.gpu == compiled.executable.gpu
    with pytest.raises(InputError, match="use compile_ahead"):
        write_gpu_ahead(partitioned.compile().executable, tmp_path)


def test_loaded_programs_need_their_device(tmp_path: Path) -> None:
    source = tmp_path / "step.hlo"
    source.write_text(print_module(program(MAPS)))
    shardc.load(source).compile("cuda-emulated").save(tmp_path / "x.shardc")
    loaded = shardc.load_executable(tmp_path / "x.shardc")
    arguments = random_arguments(program(MAPS))
    got = [np.asarray(r) for r in loaded.run(arguments)]
    assert_close(got, evaluate(program(MAPS), arguments))
    assert "dot" in str(loaded.executable.gpu)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from shardc.cli.app import main

    source, out = tmp_path / "step.hlo", tmp_path / "out"
    source.write_text(print_module(program(MAPS)))
    assert main(["compile", str(source), "-o", str(out), "--target", "cuda:sm_80", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["target"] == "nvptx64-nvidia-cuda sm_80" and {p.name for p in out.iterdir()} == set(facts["files"])
    refused = (
        (["--target", "tpu"], "unknown compile target 'tpu'"),
        (["--target", "cuda:sm_80", "--link"], "--link applies only to CPU targets"),
    )
    for options, message in refused:
        assert main(["compile", str(source), "-o", str(tmp_path / "no"), *options]) == 2
        assert message in capsys.readouterr().err and not (tmp_path / "no").exists()


def test_sites_for_profiles(config: Config) -> None:
    module = program(FOURIER)
    timed = compile_module(module, config, target="cuda-emulated", profile=True)
    assert timed.gpu is not None and timed.profile is not None
    steps = list(leaf_steps(timed.gpu.steps))
    assert len(timed.gpu.sites) == len(steps)
    for step, number in zip(steps, timed.gpu.sites, strict=True):
        if isinstance(step, LaunchStep | HostStep):
            assert timed.profile.sites[number].name == step.name
    assert {timed.profile.sites[n].kernel for n, s in zip(timed.gpu.sites, steps, strict=True) if hosts(timed)} >= {
        s.symbol for s in steps if isinstance(s, HostStep)
    }
    plain = compile_module(module, config, target="cuda-emulated")
    assert plain.profile is None and plain.gpu is not None and not plain.gpu.sites


def test_without_an_assembler_the_driver_gets_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    from shardc.compiler.gpu import compilation
    from shardc.native.gpu.problems import GpuFault, GpuProblem

    def refuse(problem: Exception) -> None:
        def assemble(ptx: bytes, arch: str) -> None:
            raise problem

        monkeypatch.setattr(compilation, "assemble", assemble)

    refuse(GpuProblem("no assembler"))
    made = build_gpu_executable(program(MAPS), Config(), gpu_target("cuda:sm_90")).gpu
    assert made is not None and {i.kind for i in made.images} == {"ptx"} and not made.ptx
    refuse(GpuFault("the assembler refuses the text"))
    with pytest.raises(GpuFault, match="refuses"):
        build_gpu_executable(program(MAPS), Config(), gpu_target("cuda:sm_90"))
