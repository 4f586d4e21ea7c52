"""Everything that touches jaxlib's MLIR: parsing, and turning a module into plain data.

This file imports nothing of ours, because it also runs as a script: broken bytecode can end the whole process
that reads it, so files are read in a child (see ``child.py``), which sends back the *plain form* of the module.
The plain form holds only ints, floats, strings, bytes, bools, None, tuples and dicts, so `marshal` carries it.

===============  ===============================================================================================
``types``        tuple of ``("tensor", element, dims)`` (a dynamic dimension is -1), ``("token",)``,
                 ``("tuple", types)``, ``("other", text)``
``attributes``   tuple of attribute values, see `_Attributes`
``locations``    tuple of (name, file, line, column, end line, end column)
``meshes``       mesh name to (((axis, size), ...), device ids)
``module``       name of the module
``module_attrs`` its attributes, name to index into ``attributes``
``functions``    tuple of (name, is public, argument attributes, result attributes, region); attributes are
                 dicts of name to index into ``attributes``
region           tuple of blocks
block            (argument values, argument types, argument locations, ops)
op               (name, operand values, first result value, result types, attributes, regions, location)
===============  ===============================================================================================

Values are numbered through the module in the order they are defined; types, attributes and locations are indices
into the tables. The numbering depends on the module alone, which is how `attach` finds the ops again.
"""

from __future__ import annotations

import io
import marshal
import re
import sys
from typing import Any

#: Bump when the plain form changes: parent and child must agree.
VERSION = 1

_PORTABLE = re.compile(rb"ML\xefR.?StableHLO_v", re.DOTALL)
_BYTECODE = b"ML\xefR"


class MissingJaxlibError(Exception):
    """jaxlib, or a part of it that is needed here, cannot be imported."""


class Bindings:
    """jaxlib's MLIR bindings, imported once and checked for what this file uses."""

    def __init__(self) -> None:
        try:
            from jaxlib.mlir import ir, passmanager
            from jaxlib.mlir.dialects import chlo, func, sdy, stablehlo
        except ImportError as e:
            raise MissingJaxlibError(str(e)) from None
        self.ir, self.passmanager = ir, passmanager
        self.stablehlo, self.sdy, self.chlo, self.func = stablehlo, sdy, chlo, func
        for module, names in (
            (ir, ("Module", "Operation", "Attribute", "DenseElementsAttr", "NameLoc", "CallSiteLoc", "FusedLoc")),
            (stablehlo, ("register_dialect", "GatherDimensionNumbers", "deserialize_portable_artifact")),
            (sdy, ("register_dialect", "TensorShardingAttr", "TensorShardingPerValueAttr", "MeshAttr")),
        ):
            lacking = [n for n in names if not hasattr(module, n)]
            if lacking:
                raise MissingJaxlibError(f"this jaxlib has no {module.__name__}.{lacking[0]}")

    def context(self) -> Any:
        """A fresh context that knows the dialects JAX emits."""
        context = self.ir.Context()
        try:
            from jaxlib.mlir._mlir_libs import _jax_mlir_ext

            registry = self.ir.DialectRegistry()
            _jax_mlir_ext.register_dialects(registry)
            context.append_dialect_registry(registry)
        except (ImportError, AttributeError):
            pass  # older and newer releases load func by themselves
        for dialect in (self.stablehlo, self.chlo, self.sdy):
            dialect.register_dialect(context)
        context.load_all_available_dialects()
        return context

    def parse(self, data: bytes) -> Any:
        """A module from text, bytecode or a portable artifact, inside a fresh context."""
        with self.context() as context:
            if _PORTABLE.match(data):
                return self.stablehlo.deserialize_portable_artifact(context, data)
            return self.ir.Module.parse(data if data.startswith(_BYTECODE) else data.decode())

    def run_passes(self, module: Any, passes: str) -> None:
        """Run an MLIR pipeline on a module in place; ValueError when this jaxlib has no such pass."""
        if hasattr(self.stablehlo, "register_stablehlo_passes"):
            self.stablehlo.register_stablehlo_passes()
        with module.context:
            self.passmanager.PassManager.parse(passes).run(module.operation)


def plain_form(bindings: Bindings, module: Any) -> dict[str, Any]:
    """The plain form of an MLIR module (an ``ir.Module``); the module's ops that need it are rewritten first."""
    with module.context, bindings.ir.Location.unknown():
        _simplify_dynamism(bindings, module)
        return _Extractor(bindings).module(module.operation)


_DYNAMIC = re.compile(r"stablehlo\.(dynamic_(broadcast_in_dim|conv|gather|iota|pad|reshape)|real_dynamic_slice)$")


def _simplify_dynamism(bindings: Bindings, module: Any) -> None:
    """Ops whose shape operands are constants become their static forms, where MLIR knows how."""
    names: set[str] = set()
    _collect_names(module.operation, names)
    if any(_DYNAMIC.match(n) for n in names):
        bindings.run_passes(module, "builtin.module(func.func(stablehlo-canonicalize-dynamism))")


def _collect_names(operation: Any, names: set[str]) -> None:
    names.add(operation.name)
    for region in operation.regions:
        for block in region:
            for op in block.operations:
                _collect_names(op.operation, names)


#: CHLO ops that HLO has too; the others are rewritten by MLIR's own pass, each signature once.
KEPT_CHLO = frozenset({"chlo.erf", "chlo.ragged_dot", "chlo.scan", "chlo.square", "chlo.tan", "chlo.top_k"})
_DEPRECATED = frozenset(f"stablehlo.{n}" for n in ("broadcast", "create_token", "dot", "einsum", "unary_einsum"))
_REWRITES = (
    "builtin.module(func.func(stablehlo-legalize-deprecated-ops))",
    "builtin.module(func.func(chlo-legalize-to-stablehlo))",
)


class _Expansions:
    """Functions that stand for ops HLO lacks: one per signature, ``lgamma`` of f32[4] for example."""

    def __init__(self, bindings: Bindings) -> None:
        self.bindings = bindings
        self.names: dict[str, str] = {}
        self.modules: list[Any] = []  # keeps their functions alive

    def callee(self, operation: Any) -> str | None:
        """The function that computes ``operation``; None where it is no case for this class."""
        name = operation.name
        if name not in _DEPRECATED and (not name.startswith("chlo.") or name in KEPT_CHLO):
            return None
        signature = self.signature(operation)
        if signature not in self.names:
            self.names[signature] = self.rewrite(name, signature)
        return self.names[signature] or None

    def signature(self, operation: Any) -> str:
        attributes = operation.attributes
        named = sorted(f"{attributes[i].name} = {attributes[i].attr}" for i in range(len(attributes)))
        kept = ", ".join(n for n in named if not n.startswith(("sdy.", "mhlo.")))
        arguments = ", ".join(f"%a{i}: {v.type}" for i, v in enumerate(operation.operands))
        operands = ", ".join(f"%a{i}" for i in range(len(operation.operands)))
        inputs = ", ".join(str(v.type) for v in operation.operands)
        outputs = ", ".join(str(v.type) for v in operation.results)
        count = len(operation.results)
        results = ", ".join(f"%r#{i}" for i in range(count))
        return (
            f'({arguments}) -> ({outputs}) {{\n  %r:{count} = "{operation.name}"({operands}) {{{kept}}} : '
            f"({inputs}) -> ({outputs})\n  func.return {results} : {outputs}\n}}"
        )

    def rewrite(self, op_name: str, signature: str) -> str:
        name = f"{op_name}.{len(self.names)}"
        ir = self.bindings.ir
        try:
            module = ir.Module.parse(f'func.func private @"{name}"{signature}')
            for passes in _REWRITES:
                self.bindings.run_passes(module, passes)
        except (ValueError, RuntimeError, ir.MLIRError):
            return ""
        names: set[str] = set()
        _collect_names(module.operation, names)
        if op_name in names:
            return ""
        self.modules.append(module)
        return name


class _Table:
    """Distinct entries in order of first use."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.index: dict[Any, int] = {}

    def add(self, key: Any, value: Any) -> int:
        at = self.index[key] = len(self.entries)
        self.entries.append(value)
        return at


class _Extractor:
    """One walk over a module. MLIR shares equal types, attributes and locations, so each is looked into once."""

    def __init__(self, bindings: Bindings) -> None:
        self.ir, self.sdy = bindings.ir, bindings.sdy
        self.types, self.attributes, self.locations = _Table(), _Table(), _Table()
        self.read = _Attributes(bindings, self.type_of)
        self.values: dict[Any, int] = {}
        self.expansions = _Expansions(bindings)
        self.unknown = self.locations.add(None, ("", "", 0, 0, 0, 0))
        self.inside_expansion = False

    def module(self, operation: Any) -> dict[str, Any]:
        meshes: dict[str, Any] = {}
        functions: list[Any] = []
        for op in operation.regions[0].blocks[0].operations:
            kind = op.operation.name
            if kind == "sdy.mesh":
                name = self.ir.StringAttr(op.operation.attributes["sym_name"]).value
                meshes[name] = self.read.mesh(op.operation.attributes["mesh"])
            elif kind == "func.func":
                functions.append(self.function(op.operation))
            else:
                functions.append((kind, None, (), (), ()))  # not a function: the reader names it
        functions += self.expanded()
        attributes = self.attrs(operation)
        name = attributes.pop("sym_name", None)
        return {
            "version": VERSION,
            "module": "" if name is None else self.attributes.entries[name],
            "module_attrs": attributes,
            "types": tuple(self.types.entries),
            "attributes": tuple(self.attributes.entries),
            "locations": tuple(self.locations.entries),
            "meshes": meshes,
            "functions": tuple(functions),
        }

    def function(self, operation: Any) -> tuple[Any, ...]:
        attributes = operation.attributes
        name = self.ir.StringAttr(attributes["sym_name"]).value
        public = "sym_visibility" not in attributes or attributes["sym_visibility"].value == "public"
        blocks = self.region(operation.regions[0])
        count = len(blocks[0][0]) if blocks else 0
        results = self.ir.FunctionType(self.ir.TypeAttr(attributes["function_type"]).value).results
        return (
            name,
            public,
            self.dictionaries(attributes, "arg_attrs", count),
            self.dictionaries(attributes, "res_attrs", len(results)),
            blocks,
        )

    def expanded(self) -> list[Any]:
        """The functions of `_Expansions`; numbered after all values of the module itself."""
        self.inside_expansion = True
        return [self.function(module.body.operations[0].operation) for module in self.expansions.modules]

    def dictionaries(self, attributes: Any, key: str, count: int) -> tuple[dict[str, int], ...]:
        if key not in attributes:
            return ({},) * count
        out = []
        for item in self.ir.ArrayAttr(attributes[key]):
            entries = self.ir.DictAttr(item)
            named = (entries[i] for i in range(len(entries)))
            out.append({n.name: self.attribute(n.attr) for n in named})
        return tuple(out)

    def region(self, region: Any) -> tuple[Any, ...]:
        return tuple(self.block(b) for b in region)

    def block(self, block: Any) -> tuple[Any, ...]:
        values = self.values
        first = len(values)
        types, places = [], []
        for argument in block.arguments:
            values[argument] = len(values)
            types.append(self.type_of(argument.type))
            places.append(self.location(argument.location) if hasattr(argument, "location") else 0)
        numbers = tuple(range(first, len(values)))
        return (numbers, tuple(types), tuple(places), tuple(self.op(o.operation) for o in block.operations))

    def op(self, operation: Any) -> tuple[Any, ...]:
        values = self.values
        operands = tuple([values[v] for v in operation.operands])
        name, attributes = operation.name, self.attrs(operation)
        if name.startswith("chlo.") or name in _DEPRECATED:
            callee = self.expansions.callee(operation)
            if callee is not None:
                kept = {k: v for k, v in attributes.items() if k.startswith(("sdy.", "mhlo."))}
                name, attributes = "func.call", {**kept, "callee": self.symbol(callee)}
        regions = operation.regions
        inner = tuple([self.region(r) for r in regions]) if len(regions) else ()
        first = len(values)
        types = []
        for result in operation.results:
            values[result] = len(values)
            types.append(self.type_of(result.type))
        return (name, operands, first, tuple(types), attributes, inner, self.location(operation.location))

    def symbol(self, name: str) -> int:
        at = self.attributes.index.get(name)
        return self.attributes.add(name, name) if at is None else at

    def attrs(self, operation: Any) -> dict[str, int]:
        attributes = operation.attributes
        # The bindings cannot hold a complex constant: touching it may even end the process.
        complex_ = operation.name.endswith(".constant") and "complex<" in str(operation.results[0].type)
        out = {}
        for i in range(len(attributes)):
            named = attributes[i]
            if named.name == "value" and complex_:
                out["value"] = self.complex_constant(operation)
            else:
                out[named.name] = self.attribute(named.attr)
        return out

    def complex_constant(self, operation: Any) -> int:
        text = operation.get_asm(print_generic_op_form=True, enable_debug_info=False)
        found = re.search(r"value = dense<(.*)> : (tensor<[^>]*>>)", text, re.DOTALL)
        if found is None:
            raise ValueError(f"a constant of {operation.name} that jaxlib's bindings cannot read")
        type_ = self.type_of(self.ir.Type.parse(found.group(2)))
        value = ("dense_text", self.types.entries[type_], found.group(1))
        return self.attributes.index[value] if value in self.attributes.index else self.attributes.add(value, value)

    def attribute(self, attribute: Any) -> int:
        at = self.attributes.index.get(attribute)
        return self.attributes.add(attribute, self.read(attribute)) if at is None else at

    def type_of(self, type_: Any) -> int:
        at = self.types.index.get(type_)
        return self.types.add(type_, self.plain_type(type_)) if at is None else at

    def plain_type(self, type_: Any) -> tuple[Any, ...]:
        ir = self.ir
        if isinstance(type_, ir.RankedTensorType):
            dims = tuple(-1 if type_.is_dynamic_dim(i) else type_.shape[i] for i in range(type_.rank))
            return ("tensor", str(type_.element_type), dims)
        if isinstance(type_, ir.TupleType):
            parts = tuple(self.plain_type(type_.get_type(i)) for i in range(type_.num_types))
            return ("tuple", parts)
        text = str(type_)
        return ("token",) if text == "!stablehlo.token" else ("other", text)

    def location(self, location: Any) -> int:
        if self.inside_expansion:
            return self.unknown
        key = location.attr
        at = self.locations.index.get(key)
        return self.locations.add(key, self.place(location)) if at is None else at

    def place(self, location: Any) -> tuple[Any, ...]:
        """(name, file, line, column, end line, end column): outermost name, innermost frame."""
        ir = self.ir
        if not isinstance(location, ir.Location) or type(location) is ir.Location:
            location = _downcast_location(ir, location)
        if isinstance(location, ir.NameLoc):
            return (location.name_str.rstrip(":"), *self.place(location.child_loc)[1:])
        if isinstance(location, ir.FileLineColLoc):
            return (
                "",
                location.filename,
                location.start_line,
                location.start_col,
                location.end_line,
                location.end_col,
            )
        if isinstance(location, ir.CallSiteLoc):
            callee = self.place(location.callee)
            return callee if callee[1] else self.place(location.caller)
        if isinstance(location, ir.FusedLoc):
            parts = [self.place(part) for part in location.locations]
            name = next((p[0] for p in parts if p[0]), "")
            return (name, *next((p[1:] for p in parts if p[1]), ("", 0, 0, 0, 0)))
        return ("", "", 0, 0, 0, 0)


def _downcast_location(ir: Any, location: Any) -> Any:
    for kind in (ir.NameLoc, ir.FileLineColLoc, ir.CallSiteLoc, ir.FusedLoc):
        try:
            return kind(location)
        except (TypeError, ValueError):
            continue
    return None


class _Attributes:
    """Attribute values in the plain form.

    Numbers, strings, bools and types are themselves (a type is an index into the type table, as ``("type", i)``),
    arrays are tuples, dictionaries and dimension numbers are dicts, enumerations and symbol references strings.
    Constants are ``("dense", type, bytes, is splat)``, the bytes of one element for a splat, or
    ``("dense_text", type, text)`` for element types without a buffer. A sharding is ``("sharding", mesh, dims,
    replicated, unreduced, reduction)``: mesh a name or a mesh, dims of (axes, closed, priority), an axis
    (name, pre, size). Anything else is ``("other", text)``.
    """

    def __init__(self, bindings: Bindings, type_of: Any) -> None:
        self.bindings, self.ir, self.sdy = bindings, bindings.ir, bindings.sdy
        self.type_of = type_of
        s = bindings.stablehlo
        self.records: dict[str, tuple[Any, str]] = {
            "#stablehlo.gather<": (
                s.GatherDimensionNumbers,
                "offset_dims collapsed_slice_dims operand_batching_dims start_indices_batching_dims start_index_map "
                "index_vector_dim",
            ),
            "#stablehlo.scatter<": (
                s.ScatterDimensionNumbers,
                "update_window_dims inserted_window_dims input_batching_dims scatter_indices_batching_dims "
                "scattered_dims_to_operand_dims index_vector_dim",
            ),
            "#stablehlo.dot<": (
                s.DotDimensionNumbers,
                "lhs_batching_dimensions rhs_batching_dimensions lhs_contracting_dimensions rhs_contracting_dimensions",
            ),
            "#stablehlo.conv<": (
                s.ConvDimensionNumbers,
                "input_batch_dimension input_feature_dimension input_spatial_dimensions "
                "kernel_input_feature_dimension kernel_output_feature_dimension kernel_spatial_dimensions "
                "output_batch_dimension output_feature_dimension output_spatial_dimensions",
            ),
            "#stablehlo.channel_handle<": (s.ChannelHandle, "handle channel_type"),
            "#stablehlo.output_operand_alias<": (
                s.OutputOperandAlias,
                "output_tuple_indices operand_index operand_tuple_indices",
            ),
            "#stablehlo.dot_algorithm<": (
                getattr(s, "DotAlgorithm", None),
                "lhs_precision_type rhs_precision_type accumulation_type lhs_component_count rhs_component_count "
                "num_primitive_operations allow_imprecise_accumulation",
            ),
        }

    def __call__(self, attribute: Any) -> Any:
        ir = self.ir
        if isinstance(attribute, (ir.IntegerAttr, ir.FloatAttr, ir.BoolAttr, ir.StringAttr, ir.FlatSymbolRefAttr)):
            return attribute.value
        if isinstance(attribute, (ir.DenseI64ArrayAttr, ir.DenseI32ArrayAttr, ir.DenseBoolArrayAttr)):
            return tuple(attribute)
        if isinstance(attribute, ir.DenseElementsAttr):
            return self.dense(attribute)
        if isinstance(attribute, ir.ArrayAttr):
            return tuple(self(a) for a in attribute)
        if isinstance(attribute, ir.DictAttr):
            named = (attribute[i] for i in range(len(attribute)))
            return {n.name: self(n.attr) for n in named}
        if isinstance(attribute, ir.TypeAttr):
            return ("other", str(attribute.value))
        if isinstance(attribute, ir.UnitAttr):
            return True
        return self.from_dialect(attribute)

    def from_dialect(self, attribute: Any) -> Any:
        sdy, text = self.sdy, str(attribute)
        if text.startswith("#sdy.sharding<"):
            return self.sharding(sdy.TensorShardingAttr(attribute))
        if text.startswith("#sdy.sharding_per_value<"):
            return tuple(self(a) for a in sdy.TensorShardingPerValueAttr(attribute).shardings)
        if text.startswith("#sdy.mesh<"):
            return self.mesh(attribute)
        if text.startswith("#sdy<manual_axes"):
            axes = sdy.ManualAxesAttr(attribute)
            return tuple(axes[i] for i in range(len(axes)))
        enumeration = re.fullmatch(r"#\w+<\w+ (\w+)>", text)
        if enumeration:
            return enumeration.group(1)
        for prefix, (cast, fields) in self.records.items():
            if cast is not None and text.startswith(prefix):
                record = cast(attribute)
                return {f: self.field(getattr(record, f)) for f in fields.split()}
        return ("other", text)

    def field(self, value: Any) -> Any:
        if isinstance(value, (int, bool, str)):
            return value
        return tuple(value) if isinstance(value, (list, tuple)) else str(value)

    def dense(self, attribute: Any) -> tuple[Any, ...]:
        type_ = attribute.type
        dims = tuple(type_.shape)
        plain = ("tensor", str(type_.element_type), dims)
        splat = bool(attribute.is_splat) and len(attribute) > 0
        try:
            if splat and dims:
                scalar = self.ir.RankedTensorType.get([], type_.element_type)
                attribute = self.ir.DenseElementsAttr.get_splat(scalar, attribute.get_splat_value())
            return ("dense", plain, memoryview(attribute).tobytes(), splat)
        except (BufferError, TypeError, ValueError):
            text = re.fullmatch(r"dense<(.*)> : [^:]*", str(attribute), re.DOTALL)
            return ("dense_text", plain, text.group(1)) if text else ("other", str(attribute))

    def mesh(self, attribute: Any) -> tuple[Any, ...]:
        mesh = self.sdy.MeshAttr(attribute)
        axes = (self.sdy.MeshAxisAttr(a) for a in mesh.axes)
        return (tuple((a.name, a.size) for a in axes), tuple(mesh.device_ids))

    def sharding(self, sharding: Any) -> tuple[Any, ...]:
        reference = sharding.mesh_or_ref
        named = isinstance(reference, self.ir.FlatSymbolRefAttr)
        dims = []
        for d in sharding.dimension_shardings:
            dim = self.sdy.DimensionShardingAttr(d)
            dims.append((self.axes(dim.axes), bool(dim.is_closed), dim.priority))
        kind = str(getattr(sharding, "reduction_op", "sum")).rsplit(".", 1)[-1].lower()
        return (
            "sharding",
            reference.value if named else self.mesh(reference),
            tuple(dims),
            self.axes(sharding.replicated_axes),
            self.axes(getattr(sharding, "unreduced_axes", ())),
            kind,
        )

    def axes(self, axes: Any) -> tuple[Any, ...]:
        out = []
        for a in axes:
            axis = self.sdy.AxisRefAttr(a)
            part = axis.sub_axis_info
            info = None if part is None else self.sdy.SubAxisInfoAttr(part)
            out.append((axis.name, 1, 0) if info is None else (axis.name, info.pre_size, info.size))
        return tuple(out)


def attach(bindings: Bindings, data: bytes, request: dict[str, Any]) -> str:
    """Module text with shardings set: ``values`` maps a first result's number to the attribute text of the op,
    ``functions`` a function's name to (argument texts, result texts), ``meshes`` a name to a mesh's text."""
    module = bindings.parse(data)
    with module.context, bindings.ir.Location.unknown():
        _simplify_dynamism(bindings, module)
        _set_meshes(bindings, module, request["meshes"])
        _Attacher(bindings, request).module(module.operation)
        out = io.StringIO()
        module.operation.print(file=out, enable_debug_info=True)
        return out.getvalue()


def _set_meshes(bindings: Bindings, module: Any, meshes: dict[str, str]) -> None:
    ir, missing = bindings.ir, dict(meshes)
    for op in module.body.operations:
        if op.operation.name == "sdy.mesh":
            name = ir.StringAttr(op.operation.attributes["sym_name"]).value
            if name in missing:
                op.operation.attributes["mesh"] = ir.Attribute.parse(f"#sdy.mesh{missing.pop(name)}")
                if "stablehlo.mesh" in op.operation.attributes:
                    del op.operation.attributes["stablehlo.mesh"]
    for name, text in missing.items():
        mesh = ir.Operation.parse(f"sdy.mesh @{name} = {text}")
        ir.InsertionPoint.at_block_begin(module.body).insert(mesh)


class _Attacher:
    """The walk of `_Extractor` again, counting values the same way and setting ``sdy.sharding``."""

    def __init__(self, bindings: Bindings, request: dict[str, Any]) -> None:
        self.ir = bindings.ir
        self.values, self.functions = request["values"], request["functions"]
        self.count = 0

    def module(self, operation: Any) -> None:
        for op in operation.regions[0].blocks[0].operations:
            if op.operation.name == "func.func":
                self.region(op.operation.regions[0])
                name = self.ir.StringAttr(op.operation.attributes["sym_name"]).value
                if name in self.functions:
                    self.signature(op.operation, *self.functions[name])

    def signature(self, operation: Any, arguments: tuple[str, ...], results: tuple[str, ...]) -> None:
        for key, texts in (("arg_attrs", arguments), ("res_attrs", results)):
            attributes = operation.attributes
            old = list(self.ir.ArrayAttr(attributes[key])) if key in attributes else []
            new = []
            for i, text in enumerate(texts):
                entries = self.ir.DictAttr(old[i]) if i < len(old) else ()
                kept = {entries[k].name: entries[k].attr for k in range(len(entries))}
                if text:
                    kept["sdy.sharding"] = self.ir.Attribute.parse(text)
                    kept.pop("mhlo.sharding", None)
                new.append(self.ir.DictAttr.get(kept))
            if new:
                attributes[key] = self.ir.ArrayAttr.get(new)

    def region(self, region: Any) -> None:
        for block in region:
            self.count += len(block.arguments)
            for op in block.operations:
                operation = op.operation
                for inner in operation.regions:
                    self.region(inner)
                text = self.values.get(self.count)
                results = len(operation.results)
                if text and results and not operation.name.startswith("sdy."):
                    operation.attributes["sdy.sharding"] = self.ir.Attribute.parse(text)
                self.count += results


def main() -> None:
    """The child: one request on stdin, ``("ok", answer)`` or ``(kind of failure, message)`` on stdout."""
    request = marshal.load(sys.stdin.buffer)
    sys.path[:] = request["path"]
    stdout, sys.stdout = sys.stdout.buffer, sys.stderr
    try:
        bindings = Bindings()
        if request["do"] == "read":
            answer: Any = ("ok", plain_form(bindings, bindings.parse(request["data"])))
        else:
            answer = ("ok", attach(bindings, request["data"], request["attach"]))
    except MissingJaxlibError as e:
        answer = ("missing", str(e))
    except Exception as e:
        answer = ("failed", f"{e}")
    marshal.dump(answer, stdout)
    stdout.flush()


if __name__ == "__main__":
    main()
