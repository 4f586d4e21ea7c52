"""An MLIR module as plain data: ints, floats, strings, bytes, bools, None, tuples and dicts, which `marshal` carries.

===============  ===============================================================================================
``types``        tuple of ``("tensor", element, dims)`` (a dynamic dimension is -1), ``("token",)``,
                 ``("tuple", types)``, ``("other", text)``
``attributes``   tuple of attribute values, see ``attributes.py``
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
into the tables. The numbering depends on the module alone, which is how ``attach.py`` finds the ops again.
"""

from __future__ import annotations

import re
from typing import Any

from shardc.hlo.stablehlo.mlir.attributes import AttributeReader
from shardc.hlo.stablehlo.mlir.bindings import Bindings, simplify_dynamism
from shardc.hlo.stablehlo.mlir.expansions import DEPRECATED, Expansions
from shardc.hlo.stablehlo.mlir.locations import LocationReader

__all__ = ["VERSION", "plain_form"]

#: Dictionaries whose text is kept, because the types of their numbers are part of a call's interface.
_TYPED = frozenset({"mhlo.backend_config", "backend_config", "mhlo.attributes"})

#: Bump when the plain form changes: parent and child must agree.
VERSION = 1


def plain_form(bindings: Bindings, module: Any) -> dict[str, Any]:
    """The plain form of an MLIR module (an ``ir.Module``); the module's ops that need it are rewritten first."""
    with module.context, bindings.ir.Location.unknown():
        simplify_dynamism(bindings, module)
        return _Extractor(bindings).module(module.operation)


class _InternTable:
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
        self.types, self.attributes, self.locations = _InternTable(), _InternTable(), _InternTable()
        self.read = AttributeReader(bindings, self.type_of)
        self.read_location = LocationReader(bindings)
        self.values: dict[Any, int] = {}
        self.expansions = Expansions(bindings)
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
        functions += self.expand_functions()
        attributes = self.attrs(operation)
        meshes |= self.carried_meshes(attributes)
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

    def expand_functions(self) -> list[Any]:
        """The functions of `Expansions`; numbered after all values of the module itself."""
        self.inside_expansion = True
        return [self.function(module.body.operations[0].operation) for module in self.expansions.modules]

    def dictionaries(self, attributes: Any, key: str, count: int) -> tuple[dict[str, int], ...]:
        if key not in attributes:
            return ({},) * count
        out = []
        for item in self.ir.ArrayAttr(attributes[key]):
            entries = self.ir.DictAttr(item)
            named = (entries[i] for i in range(len(entries)))
            out.append(self.with_carried_sharding({n.name: self.attribute(n.attr) for n in named}))
        return tuple(out)

    def with_carried_sharding(self, attributes: dict[str, int]) -> dict[str, int]:
        """Older exports carry Shardy's attributes as text in ``mhlo.frontend_attributes``."""
        text = self.carried(attributes, "xla.sdy.sharding")
        if text:
            attributes["sdy.sharding"] = self.attribute(self.ir.Attribute.parse(text))
        return attributes

    def carried_meshes(self, attributes: dict[str, int]) -> dict[str, Any]:
        text = self.carried(attributes, "xla.sdy.meshes")
        entries = self.ir.DictAttr(self.ir.Attribute.parse(text)) if text else ()
        named = (entries[i] for i in range(len(entries)))
        return {n.name: self.read.mesh(n.attr) for n in named}

    def carried(self, attributes: dict[str, int], key: str) -> str:
        index = attributes.get("mhlo.frontend_attributes")
        found = {} if index is None else self.attributes.entries[index]
        text = found.get(key, "") if isinstance(found, dict) else ""
        return str(text).replace('\\"', '"')

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
        if name.startswith("chlo.") or name in DEPRECATED:
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
        complex_ = self.has_complex_value(operation)
        out = {}
        for i in range(len(attributes)):
            named = attributes[i]
            if named.name == "value" and complex_:
                out["value"] = self.complex_constant(operation)
            elif named.name in _TYPED and isinstance(named.attr, self.ir.DictAttr):
                out[named.name] = self.text(str(named.attr))
            else:
                out[named.name] = self.attribute(named.attr)
        return self.with_carried_sharding(out) if "mhlo.frontend_attributes" in out else out

    def text(self, text: str) -> int:
        at = self.attributes.index.get(("text", text))
        return self.attributes.add(("text", text), ("other", text)) if at is None else at

    @staticmethod
    def has_complex_value(operation: Any) -> bool:
        """Whether an attribute ``value`` may be complex: it has the type of a result or an operand."""
        if not operation.name.endswith((".constant", "_const")):
            return False
        return any("complex<" in str(v.type) for v in (*operation.results, *operation.operands))

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
        if text.startswith("!stablehlo.future<"):
            return self.plain_type(ir.Type.parse("tuple<" + text.removeprefix("!stablehlo.future<")))
        return ("token",) if text == "!stablehlo.token" else ("other", text)

    def location(self, location: Any) -> int:
        if self.inside_expansion:
            return self.unknown
        key = location.attr
        at = self.locations.index.get(key)
        return self.locations.add(key, self.read_location(location)) if at is None else at
