"""Annotations that are found: what they come to is what is told, whoever pastes them, and what is kept stays."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plugin_environment import plugin_environment

import shardc
from shardc import Mesh, P
from shardc.analysis.auto.find_plan import PlanSearch
from shardc.analysis.auto.found_plan import FoundPlan
from shardc.analysis.auto.written_plan import PlanSpec, WrittenPlan
from shardc.cli.app import main
from shardc.hlo.errors import AnnotationError, InputError, UnsupportedError
from shardc.sharding.notations.annotate import parse_spec, read_annotations

MACHINE = "host"


def layer(x: Any, w: Any, v: Any) -> Any:
    return np.tanh(np.tanh(x @ w) @ v)


def array(*dims: int) -> Any:
    return np.ones(dims, np.float32)


def program(**annotations: Any) -> shardc.Program:
    traced = shardc.trace(layer, array(512, 128), array(128, 512), array(512, 128))
    return traced.annotate(annotations, mesh=Mesh({"data": 2, "model": 2}))


def simulated(given: shardc.Program, machine: str = MACHINE, **options: Any) -> float:
    """The seconds of a step."""
    return given.partition(machine=machine, **options).simulate(machine).step_seconds


@pytest.fixture(scope="module")
def found() -> FoundPlan:
    return shardc.auto(program(), machine=MACHINE)


def test_a_step_is_shorter_with_few_annotations(found: FoundPlan) -> None:
    """Four devices do a quarter each, and nothing but the batch need be said for that."""
    assert 1 <= len(found.written.specs) <= 2
    assert found.simulation.step_seconds < 0.4 * simulated(program(), plan="propagated")
    assert found.simulation.step_seconds < found.given.step_seconds == simulated(program())
    assert found.simulation.peak_bytes <= found.memory
    assert {m.step_seconds for m in found.meshes} == {found.simulation.step_seconds}


def test_what_is_told_is_what_the_annotations_give(found: FoundPlan, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    found.save(path)
    (tmp_path / "step.py").write_text("import jax\n")
    with pytest.raises(InputError, match="would overwrite the Python file"):
        found.save(tmp_path / "step.py")
    read = read_annotations(path)
    assert read.mesh == found.written.mesh
    again = program().annotate(read.specs).partition(machine=MACHINE)
    assert again.as_text() == found.partitioned.as_text()
    assert repr(found) == str(found) == found.as_text()
    assert again.simulate(MACHINE).step_seconds == found.simulation.step_seconds
    assert found.plan.taken and found.plan.judged.cost == (found.simulation.step_seconds,)
    assert found.plan.moved
    told = json.loads(json.dumps(found.to_dict()))
    assert told["step_seconds"] == found.simulation.step_seconds
    assert {n for s in told["specs"] for n in s["names"]} == set(found.annotations)


def test_all_meshes_of_so_many_devices_are_weighed() -> None:
    found = shardc.auto(
        shardc.trace(layer, array(512, 128), array(128, 512), array(512, 128)), machine=MACHINE, devices=8
    )
    assert {tuple(m.mesh.values()) for m in found.meshes} == {(8, 1), (4, 2), (2, 4)}
    best = min(m.step_seconds for m in found.meshes if m.step_seconds is not None)
    assert found.simulation.step_seconds == best
    assert all(m.step_seconds is not None or m.bound > best for m in found.meshes), "what may win is carried out"
    assert found.written.mesh.size == 8


def test_annotations_that_only_harm_are_left_out() -> None:
    """Weights in parts that every product gathers; the step without them is the measure from then on."""
    source = shardc.trace(layer, array(512, 128), array(128, 512), array(512, 128)).annotate({}, mesh={"d": 4})
    search = PlanSearch.begin(source, "h100-dgx", 1e12)
    assert source.mesh is not None
    harms, helps = (
        PlanSpec(
            "argument", (name,), parse_spec(text, source.mesh, source.module.parameters[n].shape), follow_bytes=n + 1
        )
        for n, name, text in ((1, "w", "d"), (0, "x", "d"))
    )
    both = search.annotated(WrittenPlan(source.mesh, (helps, harms), source.arg_names))
    found = search.shorten(both)
    assert found.simulation.step_seconds < both.simulation.step_seconds
    assert found.simulation.step_seconds < search.as_given().simulation.step_seconds
    assert [s.names for s in found.written.specs] == [("x",)]


def iterated(a: Any, b: Any) -> Any:
    for _ in range(3):
        b = b / np.sqrt(b @ b)
        b = a @ b
    return b


def test_what_costs_the_same_whole_and_in_parts_is_held_in_parts() -> None:
    """A device reads its rows of a matrix from the whole of it as fast as from its rows alone."""
    given = shardc.trace(iterated, array(4096, 4096), array(4096)).annotate({}, mesh={"d": 4})
    found = shardc.auto(given, machine="h100-dgx")
    assert found.annotations["a"].split(",").count("d") == 1
    assert found.simulation.step_seconds < 0.8 * simulated(given, "h100-dgx", plan="propagated")
    assert found.simulation.step_seconds < 0.9 * found.given.step_seconds
    assert found.simulation.peak_bytes < 0.3 * found.given.peak_bytes


def test_annotations_stay_unless_others_are_kept() -> None:
    """Weights by their contracted dimension are a bad start; only with them released does a step get short."""
    bad = program(w=P("data", None), v=P("model", None))
    stays = shardc.auto(bad, machine=MACHINE)
    assert [str(p.sharding) for p in stays.program.module.parameters[1:]] == [
        str(p.sharding) for p in bad.module.parameters[1:]
    ]
    assert {n for s in stays.written.given for n in s.names} == {"w", "v"}
    freed = shardc.auto(bad, machine=MACHINE, keep=["v"])
    assert freed.simulation.step_seconds <= stays.simulation.step_seconds
    assert "w" in freed.annotations
    again = bad.annotate(freed.annotations).partition(machine=MACHINE)
    assert again.as_text() == freed.partitioned.as_text()
    with pytest.raises(AnnotationError, match="no argument or result is named 'weights'"):
        shardc.auto(bad, machine=MACHINE, keep="weights")


def test_too_little_memory_says_how_much_is_missing() -> None:
    with pytest.raises(InputError, match=r"20\.0 KiB.* too much; the largest values at the peak are f32") as told:
        shardc.auto(program(), machine=MACHINE, memory=20 * 1024)
    assert told.value.fix


def test_questions_that_make_no_sense() -> None:
    bare = shardc.trace(layer, array(8, 8), array(8, 8), array(8, 8))
    with pytest.raises(InputError, match="no mesh, and the number of devices is missing"):
        shardc.auto(bare, machine=MACHINE)
    with pytest.raises(InputError, match="devices= and mesh= exclude each other"):
        shardc.auto(bare, machine=MACHINE, devices=4, mesh={"x": 4})
    with pytest.raises(InputError, match="devices is 0"):
        shardc.auto(bare, machine=MACHINE, devices=0)
    with pytest.raises(InputError, match="memory is -1"):
        shardc.auto(bare, machine=MACHINE, devices=4, memory=-1)
    with pytest.raises(InputError, match="is not a program"):
        shardc.auto(layer, machine=MACHINE, devices=4)
    with pytest.raises(InputError, match="machine"):
        shardc.auto(bare, machine="abacus", devices=4)
    done = program(x=P("data")).partition()
    with pytest.raises(UnsupportedError, match="already partitioned"):
        shardc.auto(shardc.Program(done.module), machine=MACHINE)


def test_the_command_prints_specs_and_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step, plan = tmp_path / "step.hlo", tmp_path / "plan.py"
    step.write_text(program().as_text())
    line = ["auto", str(step), "--machine", MACHINE, "--mesh", "data=2,model=2"]
    assert main([*line, "-o", str(plan), "--picture", str(tmp_path / "plan.svg")]) == 0
    shown = capsys.readouterr()
    assert "P(" in shown.out
    assert "values follow from it" in shown.out
    assert str(plan) in shown.err and "as planned" in (tmp_path / "plan.svg").read_text()
    compile(plan.read_text(), str(plan), "exec")
    assert main([*line, "-q", "-o", str(plan)]) == 0  # an earlier plan is replaced
    (tmp_path / "own.py").write_text(plan.read_text() + "train()\n")
    capsys.readouterr()
    assert main([*line, "-o", str(tmp_path / "own.py")]) == 2
    assert "would overwrite the Python file" in capsys.readouterr().err
    assert main([*line, "-v"]) == 0
    assert "decided values have another layout than propagation gave them" in capsys.readouterr().out
    assert main([*line, "--json", "-q"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["mesh"] == {"data": 2, "model": 2}
    assert told["jax"] == plan.read_text()
    for wrong in (["--memory", "much"], ["--devices", "4"], ["-o", str(tmp_path / "plan.txt")], ["--keep", "nobody"]):
        assert main([*line, *wrong]) == 2
        assert capsys.readouterr().err.count("error:") == 1


def test_axes_are_those_that_annotations_speak_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a program without a mesh, for a number of devices; `data` and `model` where they speak of fewer than two."""
    step = tmp_path / "step.hlo"
    step.write_text(shardc.trace(layer, array(64, 128), array(128, 64), array(64, 128)).as_text())
    line = [str(step), "--machine", MACHINE, "--devices", "4", "--json", "-q"]
    assert main(["auto", *line, "--annotate", "x=batch"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [list(m["mesh"]) for m in told["meshes"]] == [["batch", "model"]] * len(told["meshes"])
    assert len(told["meshes"]) == 3 and '"x": P("batch")' in told["jax"]
    assert main(["sweep", *line, "--auto"]) == 0
    assert {tuple(c["mesh"]) for c in json.loads(capsys.readouterr().out)["candidates"]} == {("data", "model")}
    assert main(["sweep", *line, "--annotate", "x=rows"]) == 0
    assert {tuple(c["mesh"]) for c in json.loads(capsys.readouterr().out)["candidates"]} == {("rows",)}


def test_a_sweep_finds_annotations_for_each_mesh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They beat the batch alone, which is another set; what is told of them is what they come to."""
    step, sets = tmp_path / "step.hlo", tmp_path / "sets.toml"
    step.write_text(shardc.trace(layer, array(512, 128), array(128, 512), array(512, 128)).as_text())
    sets.write_text('[axes]\ndata = "1.."\nmodel = "1.."\n[sets.weights.annotate]\n"w" = "data,model"\n')
    over = ["--over", f"mesh,{sets}", "--auto", "--refine", "1"]
    assert main(["sweep", str(step), "--machine", MACHINE, "--devices", "2,4", *over, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    for count, best in told["best"].items():
        assert best["set"] == "auto", count
        again = shardc.load(step).annotate(best["annotations"], mesh=best["mesh"]).partition(machine=MACHINE)
        assert again.simulate(MACHINE).step_seconds == best["step_seconds"]
    assert {c["set"] for c in told["candidates"]} == {"auto", "weights"}
    assert main(["sweep", str(step), "--machine", MACHINE, "--devices", "2", "--auto", "--server", "http://x"]) == 2


@pytest.fixture(scope="module")
def pasted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FoundPlan]:
    """A folder with the model, which has the constraints of the plan beside it."""
    jax = pytest.importorskip("jax")
    import demo_without_annotations as demo

    folder = tmp_path_factory.mktemp("pasted")
    model, step = folder / "model.py", folder / "step.mlir"
    demo.write_model(model)
    lowered = jax.jit(demo.load_step(model), donate_argnums=0).trace(*demo.inputs())
    text = lowered.lower(lowering_platforms=("cpu",)).as_text(debug_info=True)
    step.write_text(text)
    found = shardc.auto(step, machine=MACHINE, mesh={"data": 2, "model": 2})
    found.save(folder / "plan.py")
    demo.paste(model, [(s.place, s.partition_spec) for s in found.written.specs if s.kind == "value"])
    return folder, found


def test_the_pasted_program_is_the_one_that_was_told_of(
    pasted: tuple[Path, FoundPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read from JAX again, it sends the same bytes and takes the same step. No process has its devices here."""
    import demo_without_annotations as demo
    import jax

    monkeypatch.setattr(jax, "make_mesh", jax.sharding.AbstractMesh)
    folder, found = pasted
    given = shardc.load(folder / "step.mlir").annotate({}, mesh={"data": 2, "model": 2})
    assert found.simulation.step_seconds < 0.4 * simulated(given, plan="propagated")
    assert found.simulation.step_seconds < found.given.step_seconds == simulated(given)
    with demo.importable(folder) as plan:
        step, (state, tokens) = demo.load_step(folder / "model.py"), demo.inputs()
        jitted = jax.jit(step, donate_argnums=0, **demo.shardings(plan, step, state, tokens))
        again = shardc.from_jax(jitted, state, tokens).partition(machine=MACHINE)
    assert again.report()["wire_bytes"] == found.partitioned.report()["wire_bytes"]
    assert again.simulate(MACHINE).step_seconds == found.simulation.step_seconds


@pytest.mark.mpi
def test_four_ranks_compute_the_same_numbers(pasted: tuple[Path, FoundPlan], tmp_path: Path) -> None:
    """As the program without annotations on JAX's own CPU backend."""
    pytest.importorskip("mpi4py")
    import demo_without_annotations as demo
    import jax

    folder, _ = pasted
    script = str(Path(demo.__file__))
    line = [sys.executable, "-m", "shardc", "mpiexec", "-n", "4", sys.executable, script, str(folder)]
    environment = plugin_environment("shardc", folder, 1)
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = np.load(folder / "found.npz")
    assert results["devices"] == 4
    bare = tmp_path / "model.py"
    demo.write_model(bare)
    wanted = jax.tree.leaves(jax.jit(demo.load_step(bare))(*demo.inputs()))
    for n, w in enumerate(map(np.asarray, wanted)):
        error = np.abs(results[f"out{n}"] - w).max() / max(np.abs(w).max(), 1e-30)
        assert error < 5e-6, (n, error)
