"""The demo's training step without any annotation, and specs that were found pasted into it.

As a program: runs the pasted step on this job's devices, and saves what it gives.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import shardc.demo.model
from shardc.demo.setup import ModelConfig, example_state, example_tokens

CONFIG = ModelConfig(layers=1)
_GIVEN = re.compile(r'jax\.lax\.with_sharding_constraint\(x, PartitionSpec\("data", None, None\)\)')
_PLACE = re.compile(r"(.*):(\d+):(\d+)-(\d+)")


def write_model(path: Path) -> None:
    """The demo's model with its constraints taken out."""
    text = Path(shardc.demo.model.__file__).read_text()
    bare, count = _GIVEN.subn("x", text)
    assert count == 1
    path.write_text(bare)


def paste(path: Path, specs: Iterable[tuple[str, str]]) -> None:
    """Put a constraint around the expression at each (place, spec), as the plan says."""
    lines = path.read_text().splitlines()
    places = [(match, spec) for place, spec in specs if (match := _PLACE.fullmatch(place))]
    for match, spec in sorted(places, key=lambda p: (int(p[0][2]), -int(p[0][3]))):
        assert Path(match[1]) == path
        line, begin, end = int(match[2]) - 1, int(match[3]), int(match[4])
        was = lines[line]
        call = f"plan.constrained({was[begin:end]}, {spec})"
        lines[line] = was[:begin] + call + was[end:]
    text = "\n".join(lines) + "\n"
    path.write_text(text.replace("from jax.sharding import PartitionSpec\n", "import plan\nfrom plan import P\n", 1))


def load_step(path: Path) -> Callable[..., Any]:
    names: dict[str, Any] = {"__name__": "model_of_the_demo"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    step: Callable[..., Any] = names["training_step"](CONFIG)
    return step


def inputs() -> tuple[Any, Any]:
    return example_state(0, CONFIG), example_tokens(0, CONFIG)


@contextmanager
def importable(folder: Path) -> Iterator[Any]:
    """The plan of a folder, as its model imports it."""
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("plan")
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("plan", None)


def shardings(plan: Any, step: Callable[..., Any], state: Any, tokens: Any) -> dict[str, Any]:
    """The plan's shardings as `jax.jit` takes them."""
    into = plan.in_shardings(state=state, tokens=tokens)
    if not hasattr(plan, "out_shardings"):
        return {"in_shardings": into}
    return {"in_shardings": into, "out_shardings": plan.out_shardings(step, state, tokens)}


def main(folder: Path) -> None:
    """Run the step of ``folder`` with the shardings of its plan, and save all results from process 0."""
    import jax
    from jax.experimental import multihost_utils

    state, tokens = inputs()
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (state, tokens))
    with importable(folder) as plan:
        step = load_step(folder / "model.py")
        compiled = jax.jit(step, **shardings(plan, step, state, tokens)).lower(*shapes).compile()
    placed = jax.device_put((state, tokens), compiled.input_shardings[0])  # what has no spec lies as the compiler says
    found = jax.tree.leaves(compiled(*placed))
    whole = {f"out{n}": np.asarray(multihost_utils.process_allgather(x, tiled=True)) for n, x in enumerate(found)}
    if jax.process_index() == 0:
        np.savez(folder / "found.npz", devices=len(jax.devices()), **whole)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
