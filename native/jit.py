"""From LLVM IR to an object file, and from an object file to callable addresses in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from shardc.native.symbols import addresses_for
from shardc.native.target import Target, host_target, target_machine

__all__ = ["Loaded", "compile_ir", "emit_assembly", "load_object", "new_module", "undefined_symbols"]


def new_module(name: str, target: Target | None = None) -> ir.Module:
    """An empty IR module for ``target`` (default: this machine)."""
    module = ir.Module(name)
    module.triple = (target or host_target()).triple
    return module


def compile_ir(module: ir.Module | str, target: Target | None = None, *, opt: int = 2, verify: bool = True) -> bytes:
    """The object file of an IR module or text.

    Kernels are explicit vector code, so a short list of passes is enough (inlining, promotion of stack slots, common
    subexpressions, peepholes); LLVM's loop vectoriser is never asked. The bytes depend on the IR text, the target
    and LLVM's version only.
    """
    parsed, machine = _optimised(module, target, opt, verify)
    return bytes(machine.emit_object(parsed))


def emit_assembly(module: ir.Module | str, target: Target | None = None, *, opt: int = 2) -> str:
    """The assembly text of what `compile_ir` would make, for people."""
    parsed, machine = _optimised(module, target, opt, True)
    return str(machine.emit_assembly(parsed))


def _optimised(module: ir.Module | str, target: Target | None, opt: int, verify: bool) -> tuple[Any, Any]:
    machine = target_machine(target, opt=opt)
    parsed = llvm.parse_assembly(str(module), llvm.create_context())
    parsed.triple = (target or host_target()).triple
    parsed.data_layout = str(machine.target_data)
    if verify:
        parsed.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(0))
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(parsed, builder)
    return parsed, machine


class Loaded:
    """An object file linked into this process; its code lives as long as this value.

    Example: ``load_object(compile_ir(module), ["step"]).address("step")``.
    """

    def __init__(self, jit: Any, tracker: Any, addresses: Mapping[str, int], keep: Sequence[object]) -> None:
        self._jit = jit
        self._tracker = tracker
        self._addresses = dict(addresses)
        self._keep = tuple(keep)

    def address(self, name: str) -> int:
        """The address of an exported function; KeyError for a name that was not asked for."""
        return self._addresses[name]


def load_object(
    code: bytes, exports: Sequence[str], symbols: Mapping[str, int] | None = None, target: Target | None = None
) -> Loaded:
    """Link object bytes into this process and find ``exports``.

    Symbols that the object needs are resolved from ``symbols`` (name to address) and then from the whitelist in
    `shardc.native.symbols`; anything else is a LookupError.
    """
    needed = undefined_symbols(code)
    given = dict(symbols or {})
    known, keep = addresses_for([n for n in needed if n not in given])
    missing = [n for n in needed if n not in given and n not in known]
    if missing:
        raise LookupError(f"the object needs symbols that it may not have: {', '.join(missing)}")
    jit = llvm.create_lljit_compiler(target_machine(target), use_jit_link=True)
    library = llvm.JITLibraryBuilder().add_object_img(code)
    for name, address in sorted({**known, **given}.items()):
        library.import_symbol(name, address)
    for name in exports:
        library.export_symbol(name)
    tracker = library.link(jit, "shardc")
    return Loaded(jit, tracker, {name: tracker[name] for name in exports}, keep)


def undefined_symbols(code: bytes) -> list[str]:
    """Names that an ELF64 or Mach-O object needs from outside, sorted, with a leading underscore on Mach-O.

    Empty for other formats: the linker then reports.
    """
    if code[:5] == b"\x7fELF\x02":
        return sorted(_undefined_in_elf(code) - {"_GLOBAL_OFFSET_TABLE_"})
    if code[:4] == b"\xcf\xfa\xed\xfe":
        return sorted(_undefined_in_macho(code))
    return []


def _number_at(code: bytes, at: int, nbytes: int) -> int:
    return int.from_bytes(code[at : at + nbytes], "little")


def _undefined_in_macho(code: bytes) -> set[str]:
    u32 = partial(_number_at, code, nbytes=4)
    names: set[str] = set()
    command = 32
    for _ in range(u32(16)):
        if u32(command) == 2:  # LC_SYMTAB
            symbols, count, strings = u32(command + 8), u32(command + 12), u32(command + 16)
            for symbol in range(symbols, symbols + count * 16, 16):
                kind = code[symbol + 4]
                if kind & 0xE0 == 0 and kind & 0x0F == 1:  # no debugger's entry; undefined and external
                    begin = strings + u32(symbol)
                    names.add(code[begin : code.index(b"\0", begin)].decode())
        command += u32(command + 4)
    return names


def _undefined_in_elf(code: bytes) -> set[str]:
    u16, u32, u64 = (partial(_number_at, code, nbytes=n) for n in (2, 4, 8))
    sections, entry_size, count = u64(0x28), u16(0x3A), u16(0x3C)
    names: set[str] = set()
    for number in range(count):
        header = sections + number * entry_size
        if u32(header + 4) != 2:  # SHT_SYMTAB
            continue
        strings = u64(sections + u32(header + 40) * entry_size + 24)
        start, size = u64(header + 24), u64(header + 32)
        for symbol in range(start, start + size, 24):
            if u16(symbol + 6) == 0 and u32(symbol):  # SHN_UNDEF with a name
                begin = strings + u32(symbol)
                names.add(code[begin : code.index(b"\0", begin)].decode())
    return names
