"""Ops that HLO lacks, rewritten by MLIR's own passes into functions of ops that it has."""

from __future__ import annotations

from typing import Any

from shardc.hlo.stablehlo.mlir.bindings import Bindings, op_names

__all__ = ["DEPRECATED", "KEPT_CHLO", "Expansions"]

#: CHLO ops that HLO has too; the others are rewritten by MLIR's own pass, each signature once.
KEPT_CHLO = frozenset({"chlo.erf", "chlo.ragged_dot", "chlo.scan", "chlo.square", "chlo.tan", "chlo.top_k"})
DEPRECATED = frozenset(f"stablehlo.{n}" for n in ("broadcast", "create_token", "cross-replica-sum", "dot"))
_REWRITES = (
    "builtin.module(func.func(stablehlo-legalize-deprecated-ops))",
    "builtin.module(func.func(chlo-legalize-to-stablehlo))",
)


class Expansions:
    """Functions that stand for ops HLO lacks: one per signature, ``lgamma`` of f32[4] for example."""

    def __init__(self, bindings: Bindings) -> None:
        self.bindings = bindings
        self.names: dict[str, str] = {}
        self.modules: list[Any] = []  # keeps their functions alive

    def callee(self, operation: Any) -> str | None:
        """The function that computes ``operation``; None where it is no case for this class."""
        name = operation.name
        if name not in DEPRECATED and (not name.startswith("chlo.") or name in KEPT_CHLO):
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
        if op_name in op_names(module.operation):
            return ""
        self.modules.append(module)
        return name
