"""Rebuilding modules: what calls a computation that was rebuilt calls the new one, also where it was replaced."""

from __future__ import annotations

from pathlib import Path

import shardc
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_module
from shardc.hlo.text.reader import read_hlo

_TEXT = """
HloModule m, num_partitions=4

inner {
  p = f32[8]{0} parameter(0), sharding={devices=[4]<=[4]}
  ROOT n = f32[8]{0} negate(p), sharding={devices=[4]<=[4]}
}

outer {
  q = f32[8]{0} parameter(0), sharding={devices=[4]<=[4]}
  ROOT c = f32[8]{0} call(q), to_apply=inner, sharding={devices=[4]<=[4]}
}

ENTRY main {
  x = f32[8]{0} parameter(0), sharding={devices=[4]<=[4]}
  ROOT y = f32[8]{0} call(x), to_apply=outer, sharding={devices=[4]<=[4]}
}
"""


def _foreign(module: Module) -> list[str]:
    """Instructions that call what the module does not have."""
    have = set(module.computations)
    called = [(i, v) for i in module.instructions() for v in i.attrs.values() if isinstance(v, Computation)]
    return [i.name for i, v in called if v not in have]


def test_calls_in_replacements_go_to_the_new_computations() -> None:
    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        return old.replace(operands=operands, sharding=None) if old.opcode != "parameter" else None

    module = read_hlo(_TEXT)
    rebuilt = rebuild_module(module, change)
    assert rebuilt is not module and not _foreign(rebuilt)
    (inner,) = (c for c in rebuilt.computations if c.name == "inner")
    assert inner.root.sharding is None


def test_text_with_nested_calls_is_propagated_and_partitioned(tmp_path: Path) -> None:
    (tmp_path / "nested.hlo").write_text(_TEXT)
    propagated = shardc.load(tmp_path / "nested.hlo").propagate()
    assert not _foreign(propagated.module)
    assert "call" not in {i.opcode for i in propagated.partition().module.instructions()}
