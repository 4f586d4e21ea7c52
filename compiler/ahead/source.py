"""The C source of a program: its tables, and the functions that the header promises."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.collectives.call.call import BufferRef, CollectiveCall
from shardc.collectives.call.membership import check_call
from shardc.compiler.ahead.program import AheadProgram, c_string
from shardc.compiler.executable import ARENA_HEADER, ArraySpec
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.types import DType

__all__ = ["source"]

_SPACES = {"arena": "SHARDC_ARENA", "argument": "SHARDC_ARGUMENT", "result": "SHARDC_RESULT"}
_OPS = {
    "all-reduce": "SHARDC_ALL_REDUCE", "all-gather": "SHARDC_ALL_GATHER", "reduce-scatter": "SHARDC_REDUCE_SCATTER",
    "all-to-all": "SHARDC_ALL_TO_ALL", "collective-permute": "SHARDC_PERMUTE",
}  # fmt: skip
#: Element types that shardc_collectives.c reduces.
_REDUCED = tuple("pred s2 s4 s8 s16 s32 s64 u2 u4 u8 u16 u32 u64 bf16 f16 f32 f64 c64 c128".split())  # noqa: SIM905


def source(program: AheadProgram) -> str:
    """The text of ``name_entry.c``. Raises `UnsupportedError` for reductions of types that C has no code for."""
    name, e = program.name, program.executable
    parts = [f'#include "{name}.h"\n\n#include <string.h>\n']
    parts += _table(name, "arg", e.arguments) + _table(name, "result", e.results)
    parts.append(_messages(program))
    parts.append(_distributed(program) if program.distributed else _single(program))
    return "\n".join(parts)


def _table(name: str, kind: str, specs: Sequence[ArraySpec]) -> list[str]:
    sizes = ", ".join([*(str(s.local_shape.nbytes) for s in specs), "0"])
    names = ", ".join([*(c_string(s.name) for s in specs), '""'])
    count = f"{name.upper()}_{kind.upper()}S + 1"
    return [
        f"const size_t {name}_{kind}_bytes[{count}] = {{{sizes}}};",
        f"const char *const {name}_{kind}_names[{count}] = {{{names}}};",
    ]


def _messages(program: AheadProgram) -> str:
    checks = program.executable.checks
    texts = [f"{c.target} is false" + (f" at {c.source}" if c.source else f" (%{c.name})") for c in checks]
    rows = "".join(f"  if (code == {number + 1}) return {c_string(t)};\n" for number, t in enumerate(texts))
    if program.distributed:
        rows += '  if (code == SHARDC_DIVERGED) return "the devices took different branches";\n'
        rows += '  if (code == SHARDC_MPI_FAILED) return "MPI failed";\n'
        rows += f'  if (code == SHARDC_BAD_RANKS) return "there are more ranks than {program.macro}_DEVICES";\n'
    return f"""
const char *{program.name}_message(int code) {{
  if (code == 0) return "done";
{rows}  return "unknown code";
}}
"""


def _single(program: AheadProgram) -> str:
    name, macro = program.name, program.macro
    return f"""size_t {name}_workspace_bytes(void) {{ return {macro}_ARENA_BYTES; }}

int {name}_run(void **args, void **results, void *workspace) {{
  memset(workspace, 0, {ARENA_HEADER});
  int32_t answer = {name}_step(workspace, args, results, {name}_constants, 0);
  return answer < -1 ? -1 - answer : 0;
}}
"""


def _distributed(program: AheadProgram) -> str:
    name, e = program.name, program.executable
    groups: dict[tuple[tuple[int, ...], ...], str] = {}
    calls, operands = [], []
    for call in e.collectives:
        if call.op not in _OPS:
            raise UnsupportedError(
                f"the C runtime has no {call.op}",
                where=call.source or f"%{call.name}",
                fix="gather the rows, or exchange parts of one size with all_to_all",
            )
        members = check_call(call, e.num_devices)
        table = groups.setdefault(members, f"members{len(groups)}")
        operands.append(_operands(call))
        calls.append(_call(call, table, members))
    tables = [
        f"static const int32_t {table}[] = {{{', '.join(str(d) for row in members for d in row) or '0'}}};"
        for members, table in groups.items()
    ]
    rows = "\n".join(calls) or "    {0}"
    return (
        "\n".join(tables + operands)
        + f"""
static const shardc_call calls[] = {{
{rows}
}};

const shardc_program {name}_program = {{
    {program.macro}_DEVICES, {len(e.collectives)}, {program.macro}_ARENA_BYTES, {name}_constants, calls, {name}_step}};

size_t {name}_workspace_bytes(int rank, int ranks) {{
  return shardc_workspace_bytes(&{name}_program, rank, ranks);
}}

int {name}_run(void *const *const *args, void *const *const *results, void *workspace) {{
  return shardc_run(&{name}_program, args, results, workspace);
}}

#ifdef SHARDC_MPI
int {name}_run_mpi(MPI_Comm comm, void *const *const *args, void *const *const *results, void *workspace) {{
  return shardc_run_mpi(&{name}_program, comm, args, results, workspace);
}}
#endif
"""
    )


def _call(call: CollectiveCall, table: str, members: tuple[tuple[int, ...], ...]) -> str:
    size = len(members[0]) if members else 1
    reduction = f"SHARDC_{(call.reduction or 'add').upper()}"
    numbers = f"{len(members)}, {size}, {len(call.operands)}"
    where = f"{call.name} {call.source}".replace("*/", "* /")
    return f"    {{{_OPS[call.op]}, {reduction}, {numbers}, {table}, operands{call.index}}}, /* {where} */"


def _operands(call: CollectiveCall) -> str:
    reduces = call.op in ("all-reduce", "reduce-scatter")
    rows = []
    for o in call.operands:
        kind = _type(call, o.dtype) if reduces else "SHARDC_BYTES"
        rows.append(f"    {{{_place(o.operand)}, {_place(o.result)}, {kind}, {o.dtype.nbytes}, {o.count}}},")
    return f"static const shardc_operand operands{call.index}[] = {{\n" + "\n".join(rows) + "\n};"


def _place(ref: BufferRef) -> str:
    return f"{{{_SPACES.get(ref.space, 'SHARDC_CONSTANT')}, {ref.index}, {ref.offset}, {ref.nbytes}}}"


def _type(call: CollectiveCall, dtype: DType) -> str:
    if dtype.name not in _REDUCED:
        raise UnsupportedError(
            f"{call.op} of {dtype} is not supported ahead of time",
            where=call.source or f"%{call.name}",
            fix="reduce it as f32",
        )
    return f"SHARDC_{dtype.name.upper()}"
