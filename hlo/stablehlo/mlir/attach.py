"""Shardings set on the ops of an MLIR module."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from shardc.hlo.stablehlo.mlir.bindings import Bindings, simplify_dynamism

__all__ = ["attach"]

#: Shardy's ops whose one result's sharding is their own attribute, and those that carry it as other ops do.
_ONE_SHARDING = frozenset({"sdy.sharding_constraint", "sdy.reshard", "sdy.data_flow_edge"})
_LIKE_OTHERS = frozenset({"sdy.constant", "sdy.propagation_barrier", "sdy.func_data_flow_edge"})


def attach(bindings: Bindings, data: bytes, request: dict[str, Any]) -> str:
    """Module text with shardings set: ``values`` maps the number of an op's first result (or of a manual computation's
    first argument) to the texts of all, ``functions`` a function's name to (argument texts, result texts) by position,
    ``meshes`` a name to a mesh's text. ``versions`` (entry first) replace all functions: each has the name, the
    function that it is a copy of, its own values and signature, and the functions that its calls are of, by the
    calls' first values. ``inserted`` maps a value's number to a constraint that all its readers see. With
    ``as_reshards`` constraints become reshards and groups go. ``rules`` are factor rules by first value, instead of
    those that are there; None leaves them."""
    module = bindings.parse(data)
    with module.context, bindings.ir.Location.unknown():
        simplify_dynamism(bindings, module)
        _set_meshes(bindings, module, request["meshes"])
        _set_devices(bindings, module, request.get("devices", 0))
        attacher = _Attacher(bindings, request)
        if request.get("versions"):
            attacher.versions(module)
        else:
            attacher.module(module.operation)
        attacher.insert_constraints()
        if request.get("as_reshards"):
            attacher.as_reshards()
        out = io.StringIO()
        module.operation.print(file=out, enable_debug_info=True)
        return out.getvalue()


def _set_devices(bindings: Bindings, module: Any, count: int) -> None:
    """The number of devices, where the module says one already: JAX's modules do."""
    attributes, name = module.operation.attributes, "mhlo.num_partitions"
    if count and name in attributes:
        attributes[name] = bindings.ir.IntegerAttr.get(attributes[name].type, count)


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


def _count_values(operation: Any) -> int:
    """How many values there are within an operation."""
    count = 0
    for region in operation.regions:
        for block in region:
            count += len(block.arguments)
            for op in block.operations:
                count += len(op.operation.results) + _count_values(op.operation)
    return count


class _Attacher:
    """The walk of ``extract.py`` again, counting values the same way and setting ``sdy.sharding``."""

    def __init__(self, bindings: Bindings, request: dict[str, Any]) -> None:
        self.ir, self.sdy = bindings.ir, bindings.sdy
        self.values, self.functions = request["values"], request["functions"]
        self.request = request
        self.inserted: dict[int, str] = request.get("inserted", {})
        self.followed: list[tuple[Any, str]] = []
        self.rules: dict[int, str] | None = request.get("rules")
        self.callees: dict[int, str] = {}
        self.before: dict[int, tuple[str, ...]] = {}
        self.reduced: dict[int, tuple[str, str]] = {}
        self.constraints: list[Any] = []
        self.groups: list[Any] = []
        self.count = 0

    def module(self, operation: Any) -> None:
        for op in operation.regions[0].blocks[0].operations:
            if op.operation.name == "func.func":
                self.region(op.operation.regions[0])
                name = self.ir.StringAttr(op.operation.attributes["sym_name"]).value
                if name in self.functions:
                    self.signature(op.operation, *self.functions[name])

    def versions(self, module: Any) -> None:
        """Copies of functions take the place of the functions."""
        ir, starts = self.ir, {}
        sources = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
        for operation in sources:
            starts[ir.StringAttr(operation.attributes["sym_name"]).value] = operation, self.count
            self.count += _count_values(operation)
        entry, *others = self.request["versions"]
        made = []
        for version in (*others, entry):
            operation, self.count = starts[version["source"]]
            if version["public"] and version is not entry:
                operation.move_before(starts[entry["source"]][0])
            elif version is not entry:
                operation = operation.clone(ir.InsertionPoint(module.body)).operation
                operation.attributes["sym_name"] = ir.StringAttr.get(version["name"])
            made.append(operation)
            self.values, self.callees = version["values"], version["callees"]
            self.before, self.inserted = version["before"], {**version["behind"]}
            self.reduced = version["reduced"]
            if version is entry:
                self.inserted |= self.request["inserted"]
            self.region(operation.regions[0])
            self.signature(operation, *version["signature"], instead=version is not entry)
        for operation in sources:
            if operation not in made:
                operation.erase()

    def as_reshards(self) -> None:
        """Groups and constraints have done their work: what remains is to move data."""
        for operation in self.groups:
            operation.erase()
        for operation in reversed(self.constraints):
            if not list(operation.results[0].uses):
                operation.erase()
                continue
            attributes = {"sharding": operation.attributes["sharding"]}
            new = self.ir.Operation.create(
                "sdy.reshard",
                results=[r.type for r in operation.results],
                operands=list(operation.operands),
                attributes=attributes,
                ip=self.ir.InsertionPoint(operation),
                loc=operation.location,
            )
            operation.results[0].replace_all_uses_with(new.results[0])
            operation.erase()

    def signature(
        self, operation: Any, arguments: dict[int, str], results: dict[int, str], *, instead: bool = False
    ) -> None:
        """Set the shardings of arguments and results, ``instead`` of all that are there."""
        type_ = self.ir.FunctionType(self.ir.TypeAttr(operation.attributes["function_type"]).value)
        for key, texts, count in (
            ("arg_attrs", arguments, len(type_.inputs)),
            ("res_attrs", results, len(type_.results)),
        ):
            attributes = operation.attributes
            old = list(self.ir.ArrayAttr(attributes[key])) if key in attributes else []
            new = []
            for i in range(count):
                entries = self.ir.DictAttr(old[i]) if i < len(old) else ()
                kept = {entries[k].name: entries[k].attr for k in range(len(entries))}
                if instead:
                    kept.pop("sdy.sharding", None)
                if i in texts:
                    kept["sdy.sharding"] = self.ir.Attribute.parse(texts[i])
                    kept.pop("mhlo.sharding", None)
                new.append(self.ir.DictAttr.get(kept))
            if new:
                attributes[key] = self.ir.ArrayAttr.get(new)

    def region(self, region: Any) -> None:
        for block in region:
            self.see(block.arguments)
            self.count += len(block.arguments)
            for op in block.operations:
                operation = op.operation
                self.arguments(operation)
                if operation.name == "sdy.sharding_constraint":
                    self.constraints.append(operation)
                if operation.name in _ONE_SHARDING and self.count in self.reduced:
                    self.reduce_operand(operation, *self.reduced[self.count])
                if operation.name == "sdy.sharding_group":
                    self.groups.append(operation)
                if operation.name == "func.call" and self.count in self.callees:
                    operation.attributes["callee"] = self.ir.FlatSymbolRefAttr.get(self.callees[self.count])
                    self.reshard_operands(operation, self.before.get(self.count, ()))
                for inner in operation.regions:
                    self.region(inner)
                self.rule(operation)
                texts = self.values.get(self.count)
                if texts and len(operation.results):
                    self.results(operation, texts)
                self.see(operation.results)
                self.count += len(operation.results)

    def rule(self, operation: Any) -> None:
        """The rule that was used, or none; a user's own rule for a custom call stays."""
        known = "sdy.sharding_rule" in operation.attributes
        if self.rules is None or (known and str(operation.attributes["sdy.sharding_rule"]).endswith("custom>")):
            return
        text = self.rules.get(self.count) if len(operation.results) else None
        if text is not None:
            operation.attributes["sdy.sharding_rule"] = self.ir.Attribute.parse(f"#sdy.op_sharding_rule<{text}>")
        elif known:
            del operation.attributes["sdy.sharding_rule"]

    def reduce_operand(self, operation: Any, axes: str, sharding: str) -> None:
        """Sum up what is partial before it moves."""
        ir, value = self.ir, operation.operands[0]
        attributes = {
            "reduction_axes": ir.Attribute.parse(f"#sdy<axis_ref_list{{{axes}}}>"),
            "out_sharding": ir.Attribute.parse(f"#sdy.sharding{sharding}"),
        }
        new = ir.Operation.create(
            "sdy.all_reduce",
            results=[value.type],
            operands=[value],
            attributes=attributes,
            ip=ir.InsertionPoint(operation),
        )
        operation.operands[0] = new.results[0]

    def reshard_operands(self, operation: Any, texts: Sequence[str]) -> None:
        """Bring what a call takes into the layout in which the function wants it."""
        for k, text in enumerate(texts):
            if text:
                value, place = operation.operands[k], self.ir.InsertionPoint(operation)
                attributes = {"sharding": self.ir.Attribute.parse(f"#sdy.sharding{text}")}
                new = self.ir.Operation.create(
                    "sdy.reshard", results=[value.type], operands=[value], attributes=attributes, ip=place
                )
                operation.operands[k] = new.results[0]

    def see(self, values: Any) -> None:
        """Note the values that get a constraint."""
        for number, value in enumerate(values if self.inserted else (), self.count):
            if number in self.inserted:
                self.followed.append((value, self.inserted[number]))

    def insert_constraints(self) -> None:
        """A constraint after each of the noted values, which all its readers see."""
        ir = self.ir
        for value, text in self.followed:
            owner = value.owner
            if isinstance(owner, ir.Block):
                place = ir.InsertionPoint.at_block_begin(owner)
            else:
                place = ir.InsertionPoint.after(owner.operation)
            attributes = {"sharding": ir.Attribute.parse(f"#sdy.sharding{text}")}
            new = ir.Operation.create(
                "sdy.sharding_constraint", results=[value.type], operands=[value], attributes=attributes, ip=place
            )
            value.replace_all_uses_except(new.results[0], new)
            self.constraints.append(new)

    def arguments(self, operation: Any) -> None:
        """What enters a manual computation."""
        if operation.name == "sdy.manual_computation" and len(operation.operands):
            given = self.sdy.TensorShardingPerValueAttr(operation.attributes["in_shardings"]).shardings
            texts = []
            for n, old in enumerate(given, self.count):
                texts += self.values.get(n, (str(old).removeprefix("#sdy.sharding"),))
            operation.attributes["in_shardings"] = self.per_value(texts)

    def results(self, operation: Any, texts: tuple[str, ...]) -> None:
        name = operation.name
        if name in _ONE_SHARDING:
            operation.attributes["sharding"] = self.ir.Attribute.parse(f"#sdy.sharding{texts[0]}")
        elif name == "sdy.manual_computation":
            operation.attributes["out_shardings"] = self.per_value(texts)
        elif not name.startswith("sdy.") or name in _LIKE_OTHERS:
            operation.attributes["sdy.sharding"] = self.per_value(texts)

    def per_value(self, texts: Sequence[str]) -> Any:
        return self.ir.Attribute.parse(f"#sdy.sharding_per_value<[{', '.join(texts)}]>")
