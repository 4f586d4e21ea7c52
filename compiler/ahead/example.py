"""A program that runs one step from raw files, and the commands that build it: one Makefile, or `link`."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from shardc.compiler.ahead.program import AheadProgram
from shardc.hlo.errors import EnvironmentProblem, InputError

__all__ = ["BLAS", "c_file", "example", "link", "link_command", "makefile"]

#: Where products come from: our plain C, any CBLAS library (``LIBS=-lopenblas``), or the wheel that shardc itself uses.
BLAS = ("builtin", "cblas", "scipy")
_FLAGS = "-O3 -std=gnu11 -ffp-contract=off -fPIC"

_THREADS = """  /* Pool threads, in addition to this one. */
  shardc_pool_configure((int32_t)sysconf(_SC_NPROCESSORS_ONLN) - 1, 40000);
"""
_DECLARATION = "#include <unistd.h>\n"


def c_file(name: str) -> str:
    """The text of one of the C files that come along as they are."""
    return (files("shardc.compiler.ahead") / "c" / name).read_text(encoding="utf-8")


def example(program: AheadProgram) -> str:
    """The text of ``main.c``."""
    text = c_file("example_devices.c" if program.distributed else "example.c")
    pooled = "pool" in program.needs
    values = {
        "name": program.name,
        "NAME": program.macro,
        "threads": _THREADS if pooled else "",
        "threads_declaration": _DECLARATION if pooled else "",
    }
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def link_command(program: AheadProgram, blas: str = "builtin", *, threads: bool = True) -> list[str]:
    """What follows the compiler's name, its flags and ``-shared -o libNAME.so``: sources, objects, libraries."""
    name = program.name
    inputs = [f"{name}_entry.c", f"{name}.o", f"{name}_constants.o"]
    libraries = ["-lm"]
    if program.distributed:
        inputs.append("shardc_collectives.c")
    if "blas" in program.needs and blas != "scipy":
        inputs.append(f"shardc_blas_{blas}.c")
    if "pool" in program.needs:
        inputs.append("shardc_pool.o" if threads else "shardc_serial.c")
        libraries.append("-lpthread")
    return [*inputs, *libraries]


def makefile(program: AheadProgram) -> str:
    """A Makefile with the choices as variables."""
    name, suffix = program.name, _suffix(program)
    inputs = [w for w in link_command(program) if not w.startswith(("-l", "shardc_blas", "shardc_pool"))]
    lines = [f"# make: lib{name}{suffix} and the example {name}_main."]
    if "blas" in program.needs or "lapack" in program.needs:
        lines.append(
            "# BLAS=builtin (plain C), cblas (any CBLAS: LIBS=-lopenblas) or scipy (LIBS=... of shardc's own wheel,"
        )
        lines.append("# scipy_openblas32, which shardc uses; LAPACK's routines are taken from there only).")
        lines.append("BLAS = builtin")
    if "pool" in program.needs:
        lines += ["# POOL=threads or serial.", "POOL = threads"]
    if program.distributed:
        lines += ["# make MPI=1: over MPI ranks, by mpicc; otherwise all devices are in one process.", "MPI ="]
        lines += ["CC := $(if $(MPI),mpicc,$(CC))", f"CFLAGS = {_FLAGS} $(if $(MPI),-DSHARDC_MPI)"]
    else:
        lines.append(f"CFLAGS = {_FLAGS}")
    extra = "$(if $(filter scipy,$(BLAS)),,shardc_blas_$(BLAS).c)" if "blas" in program.needs else ""
    if "pool" in program.needs:
        extra += " $(if $(filter serial,$(POOL)),shardc_serial.c,shardc_pool.o -lpthread)"
    # Make must not compile main.c to main.o, which is the object of a program called main.
    lines += ["LIBS =", "", ".SUFFIXES:", "", f"{name}_main: main.c lib{name}{suffix}"]
    lines.append(f"\t$(CC) $(CFLAGS) -o $@ main.c -L. -l{name} {_rpath(program)} $(LIBS) -lm\n")
    lines.append(f"lib{name}{suffix}: {' '.join(inputs)}")
    lines.append(f"\t$(CC) $(CFLAGS) -shared -o $@ {' '.join(inputs)} {extra} $(LIBS) -lm\n")
    return "\n".join(lines)


def _suffix(program: AheadProgram) -> str:
    return ".dylib" if "apple" in program.target.triple else ".so"


def _rpath(program: AheadProgram) -> str:
    return "-Wl,-rpath,@loader_path" if "apple" in program.target.triple else "-Wl,-rpath,'$$ORIGIN'"


def link(
    program: AheadProgram,
    folder: Path,
    *,
    blas: str = "builtin",
    threads: bool = True,
    mpi: bool = False,
    libraries: Sequence[str] = (),
) -> list[Path]:
    """Build the shared library and the example in ``folder`` by ``$CC`` (default cc; mpicc with ``mpi``).

    `InputError` for an unknown ``blas``, `EnvironmentProblem` without a compiler or when it fails.
    """
    if blas not in BLAS:
        raise InputError(f"unknown BLAS {blas!r}", fix=f"use one of {', '.join(BLAS)}")
    compiler = _compiler(mpi)
    flags = [*_FLAGS.split(), *(["-DSHARDC_MPI"] if mpi else [])]
    shared, main = f"lib{program.name}{_suffix(program)}", f"{program.name}_main"
    inputs = link_command(program, blas, threads=threads)
    own = [*libraries, *_scipy_libraries()] if blas == "scipy" else list(libraries)
    _call([*compiler, *flags, "-shared", "-o", shared, *inputs, *own], folder)
    rpath = _rpath(program).replace("$$", "$").replace("'", "")
    _call([*compiler, *flags, "-o", main, "main.c", "-L.", f"-l{program.name}", rpath, *own, "-lm"], folder)
    return [folder / shared, folder / main]


def _scipy_libraries() -> list[str]:
    from shardc.native.llvm.blas import library

    path = Path(library()._name)
    return [str(path), f"-Wl,-rpath,{path.parent}"]


def _compiler(mpi: bool) -> list[str]:
    words = shlex.split(os.environ.get("MPICC" if mpi else "CC", "")) or ["mpicc" if mpi else "cc"]
    if shutil.which(words[0]) is None:
        variable = "MPICC" if mpi else "CC"
        raise EnvironmentProblem(
            f"the C compiler {words[0]!r} was not found",
            fix=f"install a C compiler, name it in ${variable}, or link the files elsewhere with their Makefile",
        )
    return words


def _call(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EnvironmentProblem(
            f"the C compiler failed: {' '.join(command)}\n{done.stderr.strip()[-2000:]}",
            fix="link the files by hand with the libraries that the manifest lists",
        )
