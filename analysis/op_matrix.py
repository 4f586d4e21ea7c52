"""The op x concern matrix, read from the tables of each package."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from shardc.hlo.ir.opset import OPS, Op

__all__ = ["CONCERNS", "OpRow", "op_matrix"]

#: Column names, in order.
CONCERNS = ("shape", "meaning", "propagation", "partitioning", "cpu", "gpu")


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op: a few words per concern; those that start with ``-`` say why there is nothing."""

    opcode: str
    family: str
    shape: str
    meaning: str
    propagation: str
    partitioning: str
    cpu: str
    gpu: str

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def op_matrix() -> list[OpRow]:
    """One row per op of the op set, in its order."""
    return [
        OpRow(op.opcode, op.family, _shape(op), _meaning(op), _propagation(op), _partitioning(op), _cpu(op), _gpu(op))
        for op in OPS.values()
    ]


def _shape(op: Op) -> str:
    from shardc.hlo.ir.infer import RULES

    row = RULES.get(op.opcode)
    if row is None:
        return "- no rule"
    if row.infer is None:
        return f"- {row.why}" if row.why else "given"
    return "inferred"


def _meaning(op: Op) -> str:
    from shardc.hlo.evaluate import ROWS

    row = ROWS.get(op.opcode)
    if row is None or (row.local is None and row.lockstep is None):
        return f"- {row.why}" if row is not None else _by_its_caller(op)
    return "yes"


def _by_its_caller(op: Op) -> str:
    return "yes" if op.opcode == "parameter" else "- no meaning"


def _propagation(op: Op) -> str:
    from shardc.sharding.rules import RULES
    from shardc.sharding.rules.signature import DataFlow, Replicate, Unsupported

    row: Any = RULES.get(op.opcode)
    match row:
        case None:
            return "- no rule"
        case DataFlow():
            return "data flow"
        case Replicate():
            return f"whole ({row.why})"
        case Unsupported():
            return f"- {row.why}"
        case _:
            return "factors"


def _partitioning(op: Op) -> str:
    from shardc.partitioner.rules import RULES
    from shardc.partitioner.strategy.rule import Local, Refused

    row: Any = RULES.get(op.opcode)
    if row is None:
        return "- no rule"
    if isinstance(row, Local):
        return "; or ".join(s.summary for s in row.strategies)
    return f"- {row.why}" if isinstance(row, Refused) else str(row.summary)


#: Ops that are gone before code is made, and what becomes of them.
_GONE = {
    **dict.fromkeys(("call", "fusion"), "inlined"),
    **dict.fromkeys(("async-start", "async-done"), "step, for collectives; else inlined"),
    "async-update": "removed",
    "collective-broadcast": "as all-gathers",
    **dict.fromkeys(("send", "recv", "send-done", "recv-done"), "as a collective-permute; not with the host"),
    **dict.fromkeys(("optimization-barrier", "domain", "add-dependency", "copy", "copy-start", "copy-done"), "removed"),
}
#: Ops of the step function itself; the transports do the collectives among them.
_STEP = frozenset(
    {
        *("parameter", "constant", "tuple", "get-tuple-element", "reshape", "bitcast", "after-all"),
        *("while", "conditional", "partition-id", "replica-id"),
        *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"),
        "ragged-all-to-all",
        *(f"{op}-{end}" for op in ("all-reduce", "all-gather", "collective-permute") for end in ("start", "done")),
    }
)


def _cpu(op: Op) -> str:
    from shardc.compiler.cpu.kernel import SPECIAL
    from shardc.compiler.elements.rules import RULES
    from shardc.compiler.lower.expand.ops import EXPANSIONS

    if op.opcode in EXPANSIONS:
        return "as simpler ops"
    if op.opcode in _GONE:
        return _GONE[op.opcode]
    if op.opcode in _STEP:
        return "step"
    if op.opcode == "custom-call":
        return "known targets only"
    if op.opcode in ("infeed", "outfeed"):
        return "- a compiled step talks to its host by arguments and results only"
    return "kernel" if op.opcode in SPECIAL or op.opcode in RULES else "- no native code yet"


def _gpu(op: Op) -> str:
    """Who makes a typical kernel of the op, or the host; what becomes of other ops is the CPU's way."""
    from shardc.compiler.gpu.support import kernel_emitter_name
    from shardc.compiler.lower.expand.expand_ops import expansion_of

    cpu = _cpu(op)
    if op.opcode == "custom-call":
        return f"host (small factors and solves: kernels), {cpu}"
    if expansion_of(op.opcode, batch_norm=True) is not None:
        return "as simpler ops"
    if op.opcode == "ragged-all-to-all":
        return "as all-gathers"
    if cpu != "kernel":
        return cpu
    emitter = kernel_emitter_name(op.opcode)
    return "host" if emitter is None else f"kernel: {emitter}"
