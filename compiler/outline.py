"""A program in one line, for people at a prompt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.types import Shape
from shardc.hlo.units import count_text

if TYPE_CHECKING:
    from shardc.compiler.executable import Executable

__all__ = ["executable_outline", "outline"]

#: How many arguments, results and letters of a name are shown.
_SHOWN, _LETTERS = 6, 40


def outline(stage: str, module: Module) -> str:
    """Such as ``<Program step: x f32[8,6], w f32[6,10] -> loss f32[]; mesh data=2,model=2; 23 instructions>``."""
    results = module.results
    named = [*module.result_names, *[""] * len(results)]
    arguments = ((name, p.shape) for name, p in zip(module.argument_names, module.parameters, strict=True))
    border = f"{_values(arguments)} -> {_values(zip(named, results, strict=False))}"
    mesh = "no mesh" if module.mesh is None else f"mesh {module.mesh}"
    mesh += ", shapes of one device" if module.partitioned else ""
    count = sum(len(c.instructions) for c in module.computations)
    return f"<{stage} {_short(module.name)}: {border}; {mesh}; {count_text(count, 'instruction')}>"


def executable_outline(executable: Executable) -> str:
    """`outline` of a compiled program, with its target in place of instructions."""
    arguments, results = (
        _values((a.name or f"{kind}{n}", a.global_shape) for n, a in enumerate(arrays))
        for kind, arrays in (("arg", executable.arguments), ("out", executable.results))
    )
    border, devices = f"{arguments} -> {results}", executable.num_devices
    return f"<Compiled {_short(executable.name)}: {border}; {count_text(devices, 'device')}; {executable.target}>"


def _values(values: Iterable[tuple[str, Shape]]) -> str:
    said = [f"{_short(name)} {shape.plain}".lstrip() for name, shape in values]
    more = f", and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
    return (", ".join(said[:_SHOWN]) or "nothing") + more


def _short(name: str) -> str:
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 3]}..."
