"""Reading StableHLO: MLIR text, bytecode and portable artifacts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from shardc.hlo.errors import Location, ParseError, UnsupportedError, VerificationError
from shardc.hlo.ir.build import make_module, reachable_computations
from shardc.hlo.ir.ir import Alias, Computation, Module
from shardc.hlo.stablehlo.child import missing_jaxlib, parse_error, read_plain
from shardc.hlo.stablehlo.converter import Converter
from shardc.hlo.stablehlo.entry import EntryFunction, convert_entry, convert_others
from shardc.hlo.stablehlo.mlir.bindings import Bindings, MissingJaxlibError, shared_context
from shardc.hlo.stablehlo.mlir.extract import plain_form
from shardc.hlo.stablehlo.ops import HANDLERS
from shardc.hlo.stablehlo.tables import Tables

__all__ = ["module_from_bytes", "module_from_mlir", "module_from_plain", "plain_from_bytes", "read_stablehlo"]

log = logging.getLogger("shardc")


def read_stablehlo(data: bytes | str, file: str = "", *, every_function: bool = False) -> Module:
    """A module from StableHLO, as text, MLIR bytecode or a portable artifact.

    ``file`` names the input in messages. The entry is ``@main`` (or the only public function); its root is always
    a tuple of the results, whose shardings are on it. Names of arguments and results, source locations, ``sdy``
    and GSPMD shardings, and donated arguments are kept. ``every_function`` is as in `module_from_plain`.

    Raises ParseError (with line and column) for what is not StableHLO, UnsupportedError for ops and types without
    a counterpart here, EnvironmentProblem when jaxlib is not installed. Needs the extra ``shardc[jax]``.
    """
    plain = read_plain(data.encode() if isinstance(data, str) else data, file)
    module, located = module_from_plain(plain, file, every_function=every_function)
    if not located:
        log.warning(
            "%s has no source locations, so messages cannot name your code; export it with "
            "lowered.as_text(debug_info=True)",
            file or "this StableHLO module",
        )
    return module


def module_from_mlir(mlir_module: Any, file: str = "", *, own_folders: tuple[str, ...] = ()) -> Module:
    """A module from an MLIR module object of jaxlib's bindings, such as ``lowered.compiler_ir("stablehlo")``.

    Locations in ``own_folders`` (of who called JAX) are left out: they are nobody's source.
    """
    try:
        bindings = Bindings()
    except MissingJaxlibError as e:
        raise missing_jaxlib(str(e)) from None
    return module_from_plain(plain_form(bindings, mlir_module), file, own_folders)[0]


def module_from_bytes(data: bytes, file: str = "", *, own_folders: tuple[str, ...] = ()) -> Module:
    """A module from bytes that jaxlib made in this process, see `plain_from_bytes`; ``own_folders`` as in
    `module_from_mlir`."""
    return module_from_plain(plain_from_bytes(data, file), file, own_folders)[0]


def plain_from_bytes(data: bytes, file: str = "") -> dict[str, Any]:
    """The plain form of bytes that jaxlib made in this process, such as the program that a PJRT client compiles.

    They are read here: there is no damage from which another process would have to save this one. The errors are those
    of `read_stablehlo`.
    """
    try:
        shared = shared_context()
    except MissingJaxlibError as e:
        raise missing_jaxlib(str(e)) from None
    try:
        with shared.parse(data) as mlir_module:
            return plain_form(shared.bindings, mlir_module)
    except (ValueError, shared.bindings.ir.MLIRError) as e:
        raise parse_error(str(e), file, data) from None


def convert(
    plain: dict[str, Any],
    file: str,
    op_names: dict[int, tuple[str, ...]] | None = None,
    own_folders: tuple[str, ...] = (),
    *,
    every_function: bool = False,
    inherit_results: bool = True,
) -> tuple[Converter, EntryFunction, tuple[Computation, ...]]:
    """The converter, the entry function and, where they are wanted, the other public functions. ``op_names`` collects
    the names of the instructions that each op became, by the op's first value."""
    tables = Tables(plain, file, own_folders)
    converter = Converter(tables, HANDLERS, inherit_results=inherit_results, op_names=op_names)
    entry = convert_entry(converter, _entry_name(plain, file, several=every_function))
    return converter, entry, convert_others(converter, entry.name) if every_function else ()


def module_from_plain(
    plain: dict[str, Any],
    file: str,
    own_folders: tuple[str, ...] = (),
    *,
    every_function: bool = False,
    inherit_results: bool = True,
) -> tuple[Module, bool]:
    """The module of a plain form (``mlir/extract.py``), and whether any location names a source file.

    With ``every_function`` the public functions besides the entry are there, too, as computations that nobody calls;
    without a function @main the first public one is the entry. With ``inherit_results`` a call that has no shardings
    takes those of the function's results.
    """
    converter, entry, others = convert(
        plain, file, own_folders=own_folders, every_function=every_function, inherit_results=inherit_results
    )
    tables = converter.tables
    attributes = converter.functions[entry.name][2]
    argument_attrs = [tables.attributes(attributes[position]) for position in entry.arguments]
    mesh = tables.mesh
    declared = tables.attributes(plain["module_attrs"])
    module = make_module(
        plain["module"] or "main",
        entry.computation,
        mesh=mesh,
        num_partitions=mesh.size if mesh else _count(declared, "mhlo.num_partitions", file),
        replica_count=_count(declared, "mhlo.num_replicas", file),
        arg_names=entry.arg_names,
        result_names=entry.result_names,
        aliases=_aliases(entry, argument_attrs, file),
        donors=tuple(i for i, a in enumerate(argument_attrs) if a.get("jax.buffer_donor")),
        source_file=file,
    )
    if others:
        callees = dict.fromkeys(c for root in others for c in reachable_computations(root))
        more = [c for c in callees if c not in module.computations]
        module = module.with_(computations=(*more, *module.computations))
    return module, tables.found_user_source


def _count(declared: Mapping[str, Any], name: str, file: str) -> int:
    """A number of devices that the module declares."""
    value = declared.get(name, 1)
    if not isinstance(value, int) or value < 1:
        raise VerificationError(f"{name} must be a positive number, not {value!r}", where=Location(file))
    return value


def _aliases(entry: EntryFunction, attributes: Sequence[Mapping[str, Any]], file: str) -> tuple[Alias, ...]:
    """Which result an argument's buffer is given to."""
    results = {position: k for k, position in enumerate(entry.results)}
    out = []
    for i, given in enumerate(attributes):
        position = given.get("tf.aliasing_output")
        if position is None:
            continue
        if not isinstance(position, int) or position not in results:
            places = entry.computation.parameters[i].metadata
            where = ", ".join((f"argument {i} of @{entry.name}", *(places.places if places else (file,))))
            raise VerificationError(f"tf.aliasing_output is {position!r}, but there is no such result", where=where)
        out.append(Alias((results[position],), i))
    return tuple(out)


def _entry_name(plain: dict[str, Any], file: str, *, several: bool = False) -> str:
    public = [f[0] for f in plain["functions"] if f[1]]
    others = [f[0] for f in plain["functions"] if f[1] is None]
    if others:
        raise UnsupportedError(f"{others[0]} at the top level of a module is not supported", where=Location(file))
    if "main" in [f[0] for f in plain["functions"]]:
        return "main"
    if len(public) == 1 or (public and several):
        return str(public[0])
    if not public:
        raise ParseError("the module has no public function", where=Location(file), fix="name the entry @main")
    raise VerificationError(
        f"the module has several public functions: {', '.join(public)}",
        where=Location(file),
        fix="name the entry @main, or make the others private",
    )
