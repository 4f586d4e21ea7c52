"""Shardings set on the ops of an MLIR module."""

from __future__ import annotations

import io
from typing import Any

from shardc.hlo.stablehlo.mlir.bindings import Bindings, simplify_dynamism

__all__ = ["attach"]


def attach(bindings: Bindings, data: bytes, request: dict[str, Any]) -> str:
    """Module text with shardings set: ``values`` maps a first result's number to the attribute text of the op,
    ``functions`` a function's name to (argument texts, result texts), ``meshes`` a name to a mesh's text."""
    module = bindings.parse(data)
    with module.context, bindings.ir.Location.unknown():
        simplify_dynamism(bindings, module)
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
    """The walk of ``extract.py`` again, counting values the same way and setting ``sdy.sharding``."""

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
