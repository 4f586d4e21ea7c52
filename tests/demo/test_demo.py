"""The demo: its program, its bundled copy, its run, its picture."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from shardc.demo import export as exporting
from shardc.demo.guide import write_guide_files
from shardc.demo.run import DRAWN, ComparisonTable, run_demo
from shardc.demo.setup import MESH, ModelConfig, example_inputs, example_state, example_tokens, result_names
from shardc.hlo.errors import InputError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder, make_instruction, make_module
from shardc.hlo.ir.ir import Metadata
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import array_shape
from shardc.stages.stages import Program

SMALL = ModelConfig(layers=1, d_model=16, heads=2, d_ff=32, vocab=64, sequence=8, batch=4)


def test_the_step_means_what_jax_computes() -> None:
    from shardc.demo.model import training_step

    module = exporting.export(SMALL)
    state, tokens = example_state(3, SMALL), example_tokens(3, SMALL)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "model"))
    with jax.set_mesh(mesh):
        expected = jax.jit(training_step(SMALL))(state, tokens)
    found = evaluate(module, [np.asarray(x) for x in jax.tree.leaves((state, tokens))])
    for ours, theirs in zip(found, jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, np.asarray(theirs), rtol=2e-4, atol=1e-6)


def test_names_and_sources() -> None:
    module = exporting.export(SMALL)
    assert module.result_names == result_names(SMALL)
    assert set(module.arg_names) >= {"tokens", "state['step']"}
    files = {i.metadata.source_file for i in module.instructions() if i.metadata and i.metadata.source_file}
    assert files == {"shardc/demo/model.py"}
    assert len(module.aliases) + len(module.donors) == len(module.arg_names) - 1


def test_the_bundle_is_up_to_date() -> None:
    """Exactly, for the JAX that made it; in meaning for any other. `python -m shardc.demo.export` renews it."""
    if exporting.bundle_jax() == jax.__version__:
        assert exporting.bundle_text() == exporting.bundled_text()
    bundled, live = exporting.bundled_module(), exporting.export()
    assert bundled.mesh == live.mesh == MESH
    assert bundled.arg_names == live.arg_names
    assert bundled.result_names == live.result_names
    assert bundled.results == live.results
    assert [p.sharding for p in bundled.parameters] == [
        p.axis_sharding.as_layout if isinstance(p.sharding, Sharding) else None for p in live.parameters
    ]
    arguments = example_inputs(live.arg_names)
    for a, b in zip(evaluate(bundled, arguments), evaluate(live, arguments), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def collected(**options: Any) -> tuple[dict[str, Any], list[str | ComparisonTable]]:
    parts: list[str | ComparisonTable] = []
    return run_demo(parts.append, **options), parts


def test_the_demo_on_virtual_devices(tmp_path: Path) -> None:
    picture = tmp_path / "w1.svg"
    outcome, parts = collected(ranks=0, picture=picture, use_jax=False)
    assert outcome["agrees"]
    assert all(r["agrees"] for r in outcome["results"])
    collectives, agreement = (p for p in parts if isinstance(p, ComparisonTable))
    assert {row[0] for row in collectives.rows} <= {
        "all-reduce",
        "all-gather",
        "reduce-scatter",
        "all-to-all",
        "collective-permute",
    }
    assert all(row[5].startswith("model.py:") for row in collectives.rows)
    assert any(row[0] == "loss" for row in agreement.rows)
    assert DRAWN in picture.read_text().replace("&#x27;", "'")
    assert [p.name for p in tmp_path.iterdir()] == ["w1.svg"]


@pytest.mark.mpi
def test_the_demo_on_four_ranks() -> None:
    outcome, _ = collected(ranks=4)
    assert outcome["agrees"]
    assert outcome["ranks"] == 4


def test_the_bundle_needs_no_jax() -> None:
    code = (
        "import sys; sys.modules['jax'] = sys.modules['jaxlib'] = None\n"
        "from shardc.demo.run import run_demo\n"
        "assert run_demo(lambda part: None, ranks=0)['agrees']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_each_reduction_is_told_over_its_own_axes() -> None:
    """A sum may be partial over two axes for two reasons, and be finished in two steps: each has its own reason."""
    told = 0
    for collective in Program(exporting.bundled_module()).partition().report()["collectives"]:
        for reason in collective["reason"].split("; "):
            _, found, axes = reason.partition(" is split over ")
            if found:
                told += 1
                assert set(axes.split(" (")[0].split(" and ")) & set(collective["axes"]), collective
    assert told > 10


def test_the_guide_files_need_a_folder(tmp_path: Path) -> None:
    taken = tmp_path / "step.py"
    taken.write_text("mine")
    for folder in (taken, taken / "inside"):
        with pytest.raises(InputError, match=r"step.py is a file\n.*--write\n.*such as --write \."):
            write_guide_files(folder)


def test_lines_of_the_step_are_told_of_an_editable_install(tmp_path: Path) -> None:
    """Which finds the package through a link."""
    link = tmp_path / "shardc"
    link.symlink_to(Path(exporting.__file__).parents[1])
    builder = Builder("main")
    x = builder.parameter(array_shape("f32", 2), "x")
    place = Metadata("add", source_file=str(link / "demo" / "model.py"), source_line=7)
    entry = builder.build(builder.append(make_instruction("add", x, x).replace(metadata=place)))
    metadata = exporting._relative_sources(make_module("step", entry)).entry.root.metadata
    assert metadata is not None and metadata.source_file == "shardc/demo/model.py"
