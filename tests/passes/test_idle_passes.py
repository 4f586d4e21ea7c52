"""Passes that are not run, since a program has nothing for them, would have changed nothing."""

from __future__ import annotations

import pytest

from shardc.compiler.lower.pipeline import PASSES as LOWERING
from shardc.compiler.lower.pipeline import lower
from shardc.hlo import passes as runner
from shardc.hlo.config import Config
from shardc.hlo.errors import ShardcError
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.opset import OPS
from shardc.hlo.passes import PassTimes, run_pipeline
from shardc.hlo.text.carried import print_state
from shardc.passes.table import PASSES
from tests.compiler.checking import program
from tests.passes.pass_examples import FOLDER, cases_of

CASES = [case for file in sorted(FOLDER.rglob("*.hlo")) for case in cases_of(file)]
LOOKING = {name: p.looks_at for name, p in PASSES.items() if hasattr(p, "looks_at")}


def opcodes(module: Module) -> set[str]:
    return {i.opcode for i in module.instructions()}


def lowered(module: Module) -> str:
    """The program that is emitted, or why there is none."""
    try:
        return print_state(lower(module).module)
    except ShardcError as e:
        return str(e)


@pytest.mark.parametrize("name", LOOKING)
def test_a_program_without_its_opcodes_stays_as_it_is(name: str) -> None:
    """Every example of every pass that has none of them; and its own examples have some, where it acts."""
    looks_at = LOOKING[name]
    assert looks_at <= OPS.keys()
    left = 0
    for case in CASES:
        before, after = case.modules()
        if looks_at.isdisjoint(opcodes(before)):
            assert print_state(PASSES[name].run(before)) == print_state(before), case.name
            left += 1
        if case.file.stem.replace("_", "-") == name and after is not before:
            assert looks_at & opcodes(before)
    assert left > 100


def test_lowering_is_the_same_with_all_passes_run(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [case.modules()[0] for case in CASES[::3]]
    found = [lowered(m) for m in modules]
    monkeypatch.setattr(runner._IdlePasses, "is_idle", lambda *_: False)
    assert [lowered(m) for m in modules] == found


def test_most_passes_have_nothing_to_do_in_a_small_program(monkeypatch: pytest.MonkeyPatch) -> None:
    module = program("x = f32[4] parameter(0)\nROOT r = f32[4] add(x, x)")
    ran = []
    note = runner._IdlePasses.ran
    monkeypatch.setattr(runner._IdlePasses, "ran", lambda self, p, *m: (ran.append(p.name), note(self, p, *m)))
    times = PassTimes()
    run_pipeline(module, LOWERING, Config(), times=times)
    assert set(times.seconds) == {p.name for p in LOWERING}
    assert len(ran) == len(set(ran)) <= len(LOWERING) / 2, ran
