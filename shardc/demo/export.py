"""The demo's step as a module: exported from JAX, or the copy that is bundled with the package.

``python -m shardc.demo.export`` writes the bundled copy again.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from shardc.demo.setup import MESH, ModelConfig, example_state, example_tokens, result_names, state_specs
from shardc.hlo.ir.ir import Computation, Instruction, Metadata, Module, rebuild_computation
from shardc.sharding.notations.partition_spec import P

__all__ = ["BUNDLE", "bundle_jax", "bundle_text", "bundled_module", "bundled_text", "export"]

BUNDLE = "step.hlo"
_MADE_BY = "python -m shardc.demo.export, jax"
#: An editable install finds the package through a link: files are compared by where they really are.
_PACKAGE = Path(__file__).resolve().parents[1]


def export(config: ModelConfig | None = None) -> Module:
    """The step as JAX lowers it now, for a 2x2 mesh, with shardings, names and source lines.

    Sources are relative to the package (``shardc/demo/model.py``). Raises EnvironmentProblem without JAX.
    """
    from shardc.frontends.jax.frontend import lower_function

    config = config or ModelConfig()
    program = lower_function(
        _step(config),
        MESH,
        in_shardings=(state_specs(config), P("data")),
        out_shardings=(state_specs(config), P()),
        donate_argnums=0,
        args=(example_state(0, config), example_tokens(0, config)),
    )
    return _relative_sources(program.module.with_(source_file=""))


def bundled_text() -> str:
    """The bundled HLO text."""
    return resources.files("shardc.demo").joinpath(BUNDLE).read_text(encoding="utf-8")


def bundled_module() -> Module:
    """The bundled step, read from its HLO text; needs no JAX. HLO text has no names for axes and results: they are
    those of `export`."""
    from shardc.hlo.text.reader import read_hlo
    from shardc.sharding.notations.tile_assignments import convert_to_axes

    module = read_hlo(bundled_text(), f"shardc/demo/{BUNDLE}")
    return convert_to_axes(module.with_(mesh=MESH, result_names=result_names()))


def _step(config: ModelConfig) -> Any:
    from shardc.frontends.jax.frontend import require_jax

    require_jax()
    from shardc.demo.model import training_step

    return training_step(config)


def _relative_sources(module: Module) -> Module:
    """Sources within the package relative to it; none outside (they would name this machine's folders)."""
    known: dict[Metadata | None, Metadata | None] = {None: None}
    called: dict[Any, Computation] = {}

    def place(metadata: Metadata | None) -> Metadata | None:
        if metadata is None or not metadata.source_file:
            return metadata
        if metadata not in known:
            path = Path(metadata.source_file).resolve()
            inside = path.is_relative_to(_PACKAGE)
            short = f"shardc/{path.relative_to(_PACKAGE).as_posix()}" if inside else ""
            known[metadata] = replace(metadata, source_file=short) if inside else Metadata(metadata.op_name)
        return known[metadata]

    def calls(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(called.get(v, v) if isinstance(v, Computation) else v for v in value)
        return called.get(value, value) if isinstance(value, Computation) else value

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        attrs = {k: calls(v) for k, v in old.attrs.items()}
        return old.replace(operands=operands, attrs=attrs, metadata=place(old.metadata))

    for computation in module.computations:
        called[computation] = rebuild_computation(computation, change)
    return module.with_(computations=tuple(called.values()), entry=called[module.entry])


def bundle_text() -> str:
    """What the bundled file holds when it is up to date with JAX as installed."""
    import jax

    from shardc.hlo.text.printer import print_module

    return f"// {_MADE_BY} {jax.__version__}\n{print_module(export())}"


def bundle_jax() -> str:
    """The release of JAX that made the bundled copy."""
    return bundled_text().partition("\n")[0].removeprefix(f"// {_MADE_BY} ")


def main() -> None:
    """Write the bundled copy next to this file."""
    Path(__file__).with_name(BUNDLE).write_text(bundle_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
