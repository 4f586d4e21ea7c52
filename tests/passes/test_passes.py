"""Every pass alone: what it does to HLO text, and that programs mean the same before and after."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from shardc.frontends.load import load_program
from shardc.hlo.config import Config
from shardc.hlo.errors import ShardcError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.text.carried import print_state
from shardc.passes.opt import prepare_module, read_passes, run_passes
from shardc.passes.options import options_of
from shardc.passes.pipelines import PIPELINES
from shardc.passes.table import PASSES
from tests.file_check import file_check
from tests.passes.pass_examples import FOLDER, Case, cases_of, of_all_devices, results

FLOORS = (
    *("native", "hlo", "sharding", "costs", "collectives", "partitioner", "compiler", "launcher"),
    *("frontends", "analysis", "service"),
)
#: Passes that change every program that they take: they have no example that they leave alone.
ALWAYS = frozenset({"partition"})
#: Passes that write down what they find, be it what was there.
REWRITING = frozenset({"propagate", "propagate-once"})
#: Fields that text cannot give, by pass.
NOT_IN_TEXT = {
    "simplify": {"rules"},  # functions; those of one family for tests
    "expand-custom-calls": {"custom_calls"},  # Python functions of the user
    "tidy": {"steps"},  # which other passes it consists of
    "partition": {"chosen"},  # a plan, by the instructions of one program
}


FILES = {file.stem.replace("_", "-"): file for file in sorted(FOLDER.rglob("*.hlo"))}
CASES = [case for file in FILES.values() for case in cases_of(file)]


def test_every_pass_has_its_file_and_every_file_its_pass() -> None:
    assert not PASSES.keys() - FILES.keys(), "passes without examples"
    assert not FILES.keys() - PASSES.keys(), "examples of no pass"
    for name, given in PASSES.items():
        module = type(given).__module__.removeprefix("shardc.")
        wanted = FOLDER.joinpath(*module.split(".")).with_suffix(".hlo")
        assert FILES[name] == wanted, f"git mv {FILES[name].relative_to(FOLDER)} {wanted.relative_to(FOLDER)}"


def pass_classes(repository: Path) -> set[tuple[str, str]]:
    """Module and name of every class with ``name``, ``why`` and ``run`` on any floor."""
    found = set()
    for floor in FLOORS:
        for path in sorted((repository / floor).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.ClassDef) or any("Protocol" in ast.unparse(b) for b in node.bases):
                    continue
                fields = {
                    s.target.id for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
                }
                methods = {s.name for s in node.body if isinstance(s, ast.FunctionDef)}
                if {"name", "why"} <= fields and "run" in methods:
                    found.add((".".join(path.relative_to(repository).with_suffix("").parts), node.name))
    return found


def test_the_list_has_every_pass_of_the_tree(repository: Path) -> None:
    listed = {(type(p).__module__.removeprefix("shardc."), type(p).__name__) for p in PASSES.values()}
    assert listed == pass_classes(repository)


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_is_named_as_its_file_and_its_class(name: str) -> None:
    given = PASSES[name]
    assert type(given).__module__.rpartition(".")[2] == name.replace("-", "_")
    assert type(given).__name__ == "".join(w.title() for w in name.split("-")) or name == "partition"
    assert type(given).__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert given.why[0].islower() or given.why.split()[0].isupper() or given.why.startswith("XLA")
    assert not given.why.endswith(".")
    known = {f.name for f in fields(given) if f.name not in ("name", "why")}  # type: ignore[arg-type]
    assert known - {o.name.replace("-", "_") for o in options_of(type(given))} == NOT_IN_TEXT.get(name, set())


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_what_comes_out_is_what_the_example_says(case: Case, tmp_path: Path) -> None:
    file = tmp_path / case.file.name
    file.write_text(case.text, encoding="utf-8")
    assert "// CHECK" in case.text
    complaint = file_check(file, print_state(case.modules()[1]))
    assert not complaint, complaint


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_programs_mean_the_same(case: Case) -> None:
    before, after = map(of_all_devices, case.modules()) if case.about_devices else case.modules()
    for seed in range(2):
        like = before if before.partitioned else None
        for got, wanted in zip(results(after, seed, like), results(before, seed), strict=True):
            if case.exact:
                np.testing.assert_array_equal(got, wanted)
            else:
                finite = np.abs(wanted[np.isfinite(wanted)])
                np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5 * finite.max(initial=0))


@pytest.mark.parametrize("case", [c for c in CASES if "partitioner" in c.file.parts], ids=lambda c: c.name)
def test_results_lie_as_before(case: Case) -> None:
    before, after = case.modules()
    if before.partitioned:
        assert after.entry.root.sharding == before.entry.root.sharding


def numbered(text: str) -> str:
    """A text with numbers in place of names, which a reader may have to make unique."""
    seen: dict[str, int] = {}
    return re.sub(r"%[\w.-]+", lambda name: f"%{seen.setdefault(name.group(), len(seen))}", text)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_text_carries_what_a_pass_leaves(case: Case) -> None:
    """A pass behind this one finds the same program whether it runs in the same command or in the next one.

    Programs that ask for their device before they are partitioned, or that say which replicas meet, are left out: as
    text they look like partitioned ones.
    """
    before, after = case.modules()
    if (
        case.about_devices or before.replica_count > 1
    ):  # what asks for its device, or says which meet, reads as partitioned
        return
    read = prepare_module(load_program(print_state(after).encode(), "").module, {}, None)
    assert numbered(print_state(read)) == numbered(print_state(prepare_module(after, {}, None)))
    assert (read.mesh, read.partitioned, read.arg_names) == (after.mesh, after.partitioned, after.arg_names)
    for key in ("global_parameters", "global_results", "device_orders"):
        assert read.attrs.get(key) == after.attrs.get(key), key
    like = before if before.partitioned else None
    for got, wanted in zip(results(read, 0, like), results(after, 0, like), strict=True):
        np.testing.assert_array_equal(got, wanted)


STEP = """HloModule step
ENTRY main {
  x = f32[8,4] parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
  w = f32[4,6] parameter(1), sharding={devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}
  zero = f32[] constant(0)
  zeros = f32[8,6] broadcast(zero), dimensions={}
  d = f32[8,6] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  m = f32[8,6] maximum(d, zeros)
  t = f32[6,8] transpose(m), dimensions={1,0}
  u = f32[8,6] transpose(t), dimensions={1,0}
  ROOT g = f32[4,6] dot(x, u), lhs_contracting_dims={0}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_do_something_and_programs_mean_the_same(name: str) -> None:
    given = prepare_module(load_program(STEP.encode(), "").module, {}, Mesh({"x": 2, "y": 2}))
    needs = {"prepare-pipeline": "propagate", "partition-pipeline": "propagate"}
    before = run_passes(given, read_passes(needs.get(name, "propagate,partition")), Config())
    after = run_passes(before, read_passes(name), Config())
    if name not in ("prepare-pipeline", "xla-form-pipeline"):
        assert print_state(after) != print_state(before)
    like = before if before.partitioned else None
    for got, wanted in zip(results(after, 0, like), results(before, 0, like), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5 * np.abs(wanted).max())


@pytest.mark.full
@pytest.mark.parametrize("name", PASSES)
def test_any_pass_on_any_program(name: str) -> None:
    """Programs that a pass was not made for: it refuses them with an error of ours, or they mean the same."""
    for case in CASES:
        for module in case.modules():
            try:
                after = run_passes(module, [PASSES[name]], Config())
            except ShardcError:
                continue
            if after is module or case.about_devices:
                continue
            like = module if module.partitioned and name != "partition" else None
            for got, wanted in zip(results(after, 0, like), results(module, 0, like), strict=True):
                finite = np.abs(wanted[np.isfinite(wanted)])
                np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5 * finite.max(initial=0))


@pytest.mark.parametrize("name", PASSES)
def test_examples_show_a_pass_acting_and_leaving_alone(name: str) -> None:
    cases = [c for c in CASES if c.file == FILES[name]]
    acted = [print_state(c.modules()[0]) != print_state(c.modules()[1]) for c in cases]
    assert any(acted), "no example in which the pass does something"
    assert not all(acted) or name in ALWAYS, "no example in which the pass does nothing"
    for case, did in zip(cases, acted, strict=True):
        before, after = case.modules()
        assert did or after is before or name in REWRITING, f"{case.name}: nothing changed, but it is another module"
        assert read_passes(case.passes)[-1].name == name, f"{case.name} is about another pass"
