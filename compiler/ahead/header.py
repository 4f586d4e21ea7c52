"""The C header of a program: sizes, what arguments and results are, the functions to call."""

from __future__ import annotations

from shardc.compiler.ahead.program import AheadProgram, array_text
from shardc.compiler.executable import ARENA_HEADER, ArraySpec
from shardc.hlo.units import count_text

__all__ = ["header"]

#: What C calls an element.
_C_TYPES = {
    "pred": "uint8_t, 0 or 1", "f32": "float", "f64": "double", "c64": "float[2]", "c128": "double[2]",
    "bf16": "uint16_t, bfloat16", "f16": "uint16_t, IEEE half",
    **{f"s{n}": f"int{n}_t" for n in (8, 16, 32, 64)}, **{f"u{n}": f"uint{n}_t" for n in (8, 16, 32, 64)},
}  # fmt: skip


_POOL = """/* After this call, large kernels run on one thread pool for all programs of the process: `workers` threads
 * and the calling thread. A thread without work spins for `spin_nanoseconds`, then sleeps. */
void shardc_pool_configure(int32_t workers, int64_t spin_nanoseconds);
"""


def header(program: AheadProgram) -> str:
    """The text of ``name.h``."""
    name, macro = program.name, program.macro
    body = [_preamble(program), _sizes(program), *_arrays(program, "ARG", program.executable.arguments)]
    body += [*_arrays(program, "RESULT", program.executable.results), _tables(program)]
    body.append(_distributed(name) if program.distributed else _single(name))
    include = '#include "shardc_collectives.h"\n' if program.distributed else ""
    if "pool" in program.needs:
        body.append(_POOL)
    if "custom_calls" in program.needs:
        body.append(_custom_calls(program))
    return (
        f"#ifndef {macro}_H\n#define {macro}_H\n\n#include <stddef.h>\n#include <stdint.h>\n{include}\n"
        '#ifdef __cplusplus\nextern "C" {\n#endif\n\n'
        + "\n".join(body)
        + f"""
/* Text for a code that a run returned. */
const char *{name}_message(int code);

/* The step itself: runs to the next collective and returns its number, -1 at the end, -2 - n when check n is false. The
 * first {ARENA_HEADER} bytes of the arena are zero before the first call. */
int32_t {name}_step(void *arena, void *const *arguments, void *const *results, const void *constants, int32_t device);
extern const unsigned char {name}_constants[];

#ifdef __cplusplus
}}
#endif
#endif
"""
    )


def _preamble(program: AheadProgram) -> str:
    e = program.executable
    devices = f" on {count_text(e.num_devices, 'device')}" if program.distributed else ""
    lines = [f"/* {e.name}{devices}, compiled by shardc for {program.target}.", " *"]
    lines.append(" * Arrays are dense and row-major; every buffer is aligned to 64 bytes and overlaps no other.")
    lines += [f" * Exception: result {r} may use the memory of argument {a}." for r, a in e.aliases]
    if e.donated:
        lines.append(f" * The contents of arguments {', '.join(map(str, e.donated))} are undefined after the step.")
    return "\n".join([*lines, " */\n"])


def _sizes(program: AheadProgram) -> str:
    e = program.executable
    lines = [f"#define {program.macro}_DEVICES {e.num_devices}", f"#define {program.macro}_ARGS {len(e.arguments)}"]
    lines.append(f"#define {program.macro}_RESULTS {len(e.results)}")
    lines.append(f"#define {program.macro}_ARENA_BYTES {max(e.arena_bytes, ARENA_HEADER)}")
    lines.append(f"#define {program.macro}_ALIGNMENT 64\n")
    return "\n".join(lines)


def _arrays(program: AheadProgram, kind: str, specs: tuple[ArraySpec, ...]) -> list[str]:
    lines = []
    for number, spec in enumerate(specs):
        shape = spec.local_shape
        prefix = f"{program.macro}_{kind}{number}"
        c_type = _C_TYPES.get(shape.dtype.name, f"{shape.dtype.nbytes} bytes each")
        lines.append(f"/* {kind.lower()} {number}: {array_text(spec)} ({c_type}) */")
        lines.append(f"#define {prefix}_BYTES {shape.nbytes}\n#define {prefix}_COUNT {shape.size}")
        lines.append(f"#define {prefix}_RANK {len(shape.dims)}")
        if shape.dims:
            lines.append(f"#define {prefix}_DIMS {{{', '.join(map(str, shape.dims))}}}")
    return [*lines, ""]


def _tables(program: AheadProgram) -> str:
    name, macro = program.name, program.macro
    lines = ["/* Bytes and names by number. */"]
    for kind in ("arg", "result"):
        count = f"{macro}_{kind.upper()}S"
        lines.append(f"extern const size_t {name}_{kind}_bytes[{count} + 1];")
        lines.append(f"extern const char *const {name}_{kind}_names[{count} + 1];")
    return "\n".join([*lines, ""])


def _custom_calls(program: AheadProgram) -> str:
    prefix = "_" if "apple" in program.target.triple else ""
    lines = ["/* Custom calls that the program makes: define each function under its assembler name, such as", " *"]
    lines += [f' *   void f(void *out, const void **in) __asm__("{prefix}{s}");' for s in program.needs["custom_calls"]]
    lines += [
        " *",
        " * with the arguments of its api_version (see shardc.CustomCall). Threads may call it at the same time. */\n",
    ]
    return "\n".join([*lines, ""])


def _single(name: str) -> str:
    return f"""/* One step: args[i] and results[i] point to arrays as above, the workspace has {name}_workspace_bytes()
 * bytes. Nothing is kept between steps. Returns 0, or a code for {name}_message. */
size_t {name}_workspace_bytes(void);
int {name}_run(void **args, void **results, void *workspace);
"""


def _distributed(name: str) -> str:
    return f"""/* The program, for the functions of shardc_collectives.h, and short forms of these. `args[d][i]` is
 * argument i of the d-th device of this rank: its part of the array, as the sharding says. */
extern const shardc_program {name}_program;

/* Bytes of one rank's workspace; (0, 1) when all devices are in one process. */
size_t {name}_workspace_bytes(int rank, int ranks);
int {name}_run(void *const *const *args, void *const *const *results, void *workspace);
#ifdef SHARDC_MPI
int {name}_run_mpi(MPI_Comm comm, void *const *const *args, void *const *const *results, void *workspace);
#endif
"""
