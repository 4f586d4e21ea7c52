"""From LLVM IR to an object file, and from an object file to callable addresses in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from shardc.native.llvm.symbols import addresses_for
from shardc.native.llvm.target import Target, borrow_target_machine, host_target, target_machine
from shardc.native.llvm.unlocked import emit_object, run_passes

__all__ = [
    "Loaded", "TargetModule", "compile_ir", "defined_symbols", "emit_assembly", "load_object", "new_module",
    "undefined_symbols",
]  # fmt: skip


class TargetModule(ir.Module):  # type: ignore[misc]
    """An IR module that knows what it is made for, so that emitters may use what its CPU has.

    ``has_libm``: it may call the C library's mathematics.
    """

    has_libm: bool = True

    def __init__(self, name: str, target: Target) -> None:
        super().__init__(name)
        self.target = target
        self.triple = target.triple


def new_module(name: str, target: Target | None = None) -> TargetModule:
    """An empty IR module for ``target`` (default: this machine)."""
    return TargetModule(name, target or host_target())


def compile_ir(module: ir.Module | str, target: Target | None = None, *, opt: int = 2, verify: bool = True) -> bytes:
    """The object file of an IR module or text.

    Kernels are explicit vector code, so a short list of passes is enough (inlining, promotion of stack slots, common
    subexpressions, peepholes); LLVM's loop vectoriser is never asked. The bytes depend on the IR text, the target
    and LLVM's version only.
    """
    with borrow_target_machine(target, opt=opt) as machine:
        return emit_object(machine, _optimised(module, machine, target, verify=verify))


def emit_assembly(module: ir.Module | str, target: Target | None = None, *, opt: int = 2) -> str:
    """The assembly text of what `compile_ir` would make, for people."""
    with borrow_target_machine(target, opt=opt) as machine:
        return str(machine.emit_assembly(_optimised(module, machine, target)))


def _optimised(module: ir.Module | str, machine: Any, target: Target | None, *, verify: bool = True) -> Any:
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
    run_passes(passes, parsed, builder)
    return parsed


class Loaded:
    """An object file linked into this process; its code lives as long as this value.

    Example: ``load_object(compile_ir(module), ["step"]).address("step")``.
    """

    def __init__(self, jit: Any, tracker: Any, addresses: Mapping[str, int], keep: Sequence[object]) -> None:
        self._tracker = tracker  # the first to go
        self._jit = jit
        self._addresses = dict(addresses)
        self._keep = tuple(keep)

    def address(self, name: str) -> int:
        """The address of an exported function; KeyError for a name that was not asked for."""
        return self._addresses[name]


class Compilation:
    """Modules that compile in threads while more of them are made.

    Example: ``with Compilation(target, threads=2) as c: c.add(one); objects = c.objects(last)``.
    """

    def __init__(self, target: Target, threads: int) -> None:
        self._target = target
        self._helpers = ThreadPoolExecutor(threads - 1) if threads > 1 else None
        self._texts: list[str] = []
        self._futures: list[Future[bytes]] = []

    def add(self, module: ir.Module) -> None:
        """Start to compile a module, which is complete."""
        self._texts.append(str(module))
        if self._helpers is not None:
            self._futures.append(self._helpers.submit(compile_ir, self._texts[-1], self._target))

    def objects(self, last: ir.Module) -> tuple[bytes, ...]:
        """The object files by module, as `compile_ir` gives them; that of ``last``, which this thread compiles, behind
        all others. A program of one module meets no other thread."""
        made = {len(self._texts): compile_ir(last, self._target)}
        for n in reversed(range(len(self._texts))):
            if self._helpers is None or self._futures[n].cancel():  # not begun: this thread has nothing else to do
                made[n] = compile_ir(self._texts[n], self._target)
        return tuple(made[n] if n in made else self._futures[n].result() for n in range(len(self._texts) + 1))

    def __enter__(self) -> Compilation:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._helpers is not None:
            self._helpers.shutdown(cancel_futures=True)


def load_object(
    code: bytes | Sequence[bytes],
    exports: Sequence[str],
    symbols: Mapping[str, int] | None = None,
    target: Target | None = None,
) -> Loaded:
    """Link one object or several into this process and find ``exports``.

    Symbols that the objects need besides each other's are resolved from ``symbols`` (name to address) and then from
    the whitelist in `shardc.native.llvm.symbols`; anything else is a LookupError.
    """
    objects = [code] if isinstance(code, bytes) else list(code)
    needed = undefined_symbols(*objects)
    given = dict(symbols or {})
    known, keep = addresses_for([n for n in needed if n not in given])
    missing = [n for n in needed if n not in given and n not in known]
    if missing:
        raise LookupError(f"the object needs symbols that it may not have: {', '.join(missing)}")
    library = llvm.JITLibraryBuilder()
    for each in objects:
        library.add_object_img(each)
    for name, address in sorted({**known, **given}.items()):
        library.import_symbol(name, address)
    for name in exports:
        library.export_symbol(name)
    jit, tracker = _linker(target or host_target()).link(library)
    return Loaded(jit, tracker, {name: tracker[name] for name in exports}, keep)


class _Linker:
    """LLVM's linker for a target: to make one takes longer than to link a small object. It keeps some bytes of every
    library that it ever linked, so it is made anew after `most` of them, and goes with the last of its libraries."""

    most = 256

    def __init__(self, target: Target) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._jit: Any = None
        self._count = 0

    def link(self, library: Any) -> tuple[Any, Any]:
        """The linker and the tracker of ``library``, linked under a name of its own."""
        with self._lock:
            if self._jit is None or self._count >= self.most:
                self._jit, self._count = llvm.create_lljit_compiler(target_machine(self._target), use_jit_link=True), 0
            self._count += 1
            jit, name = self._jit, f"shardc.{self._count}"
        return jit, library.link(jit, name)


@lru_cache(maxsize=8)
def _linker(target: Target) -> _Linker:
    return _Linker(target)


def undefined_symbols(*objects: bytes) -> list[str]:
    """Names that ELF64 or Mach-O objects need from outside, sorted, with a leading underscore on Mach-O.

    What one of them defines for the others is not among them. Empty for other formats: the linker then reports.
    """
    pairs = [pair for code in objects for pair in _symbols(code)]
    defined = {name for name, is_defined in pairs if is_defined}
    return sorted({name for name, _ in pairs} - defined - {"_GLOBAL_OFFSET_TABLE_"})


def defined_symbols(*objects: bytes) -> list[str]:
    """Names that ELF64 or Mach-O objects define for others, sorted, as they were given in IR."""
    found = {
        name.removeprefix("_") if code[:4] == _MACHO else name
        for code in objects
        for name, is_defined in _symbols(code)
        if is_defined
    }
    return sorted(found)


_MACHO = b"\xcf\xfa\xed\xfe"


def _symbols(code: bytes) -> Iterable[tuple[str, bool]]:
    """Names that an object shares with others, and whether it defines them."""
    if code[:5] == b"\x7fELF\x02":
        return _symbols_of_elf(code)
    return _symbols_of_macho(code) if code[:4] == _MACHO else ()


def _number_at(code: bytes, at: int, nbytes: int) -> int:
    return int.from_bytes(code[at : at + nbytes], "little")


def _symbols_of_macho(code: bytes) -> Iterator[tuple[str, bool]]:
    """External symbols, and whether the object defines them."""
    u32 = partial(_number_at, code, nbytes=4)
    command = 32
    for _ in range(u32(16)):
        if u32(command) == 2:  # LC_SYMTAB
            symbols, count, strings = u32(command + 8), u32(command + 12), u32(command + 16)
            for symbol in range(symbols, symbols + count * 16, 16):
                kind = code[symbol + 4]
                if kind & 0xE1 == 1:  # external, and no debugger's entry
                    begin = strings + u32(symbol)
                    yield code[begin : code.index(b"\0", begin)].decode(), kind & 0x0E != 0
        command += u32(command + 4)


def _symbols_of_elf(code: bytes) -> Iterator[tuple[str, bool]]:
    """Global symbols, and whether the object defines them."""
    u16, u32, u64 = (partial(_number_at, code, nbytes=n) for n in (2, 4, 8))
    sections, entry_size, count = u64(0x28), u16(0x3A), u16(0x3C)
    for number in range(count):
        header = sections + number * entry_size
        if u32(header + 4) != 2:  # SHT_SYMTAB
            continue
        strings = u64(sections + u32(header + 40) * entry_size + 24)
        start, size = u64(header + 24), u64(header + 32)
        for symbol in range(start, start + size, 24):
            if code[symbol + 4] >> 4 and u32(symbol):  # not local, and with a name
                begin = strings + u32(symbol)
                yield code[begin : code.index(b"\0", begin)].decode(), u16(symbol + 6) != 0
