"""Random programs, random meshes, random shardings: partitioned equals unpartitioned, exactly.

``fuzz_cases.make_case`` makes the program of a seed. A failing seed prints the program made small, as text that can
be a file in ``regressions/``, where every bug that was found is kept. To look for more:
``python tests/partitioner/test_fuzz.py FIRST LAST``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fuzz_cases import check_case, check_compiled, check_plans, failure, make_case
from fuzz_minimise import case_text, minimise, read_case

from shardc.hlo.ir.ir import Instruction, Module

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.hlo"))
BLOCK = 50


def explain(seed: int) -> str:
    """The failure of a seed and its program made small; empty when it is right."""
    module = make_case(seed)
    what = failure(module, seed)
    if not what:
        return ""
    small = minimise(module, lambda m: failure(m, seed) == what)
    return f"seed {seed}: {what}\n\n{case_text(small)}"


def run_block(block: int) -> None:
    for seed in range(BLOCK * block, BLOCK * (block + 1)):
        module = make_case(seed)
        if failure(module, seed):
            pytest.fail(explain(seed), pytrace=False)


@pytest.mark.parametrize("block", range(5))
def test_random_programs(block: int) -> None:
    run_block(block)


@pytest.mark.full
@pytest.mark.parametrize("block", range(5, 320))
def test_many_random_programs(block: int) -> None:
    run_block(block)


@pytest.mark.parametrize("seed", range(50_000, 50_040))
def test_compiled_programs(seed: int) -> None:
    check_compiled(make_case(seed), seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(51_000, 51_400))
def test_many_compiled_programs(seed: int) -> None:
    check_compiled(make_case(seed), seed)


@pytest.mark.parametrize("seed", [267, *range(60_000, 60_006)])  # 267: a loop that is called twice
def test_plans(seed: int) -> None:
    check_plans(make_case(seed), seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(61_000, 61_400))
def test_many_plans(seed: int) -> None:
    check_plans(make_case(seed), seed)


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda p: p.stem)
def test_regressions(path: Path) -> None:
    check_case(read_case(path.read_text(), path.name))


def _has(module: Module, wanted: str) -> Instruction | None:
    return next((i for i in module.instructions() if i.opcode == wanted), None)


@pytest.mark.parametrize("opcode", ["while", "convolution", "scatter", "conditional"])
def test_a_failure_is_made_small(opcode: str) -> None:
    """A made-up bug, an op that is split over the mesh, keeps little but that op; its text is the same program."""

    def wrong(module: Module) -> bool:
        op = _has(module, opcode)
        shardings = op.leaf_shardings() if op is not None else ()
        return any(s.used_axes() for s in shardings)

    seed = next(s for s in range(1, 2000, 2) if wrong(make_case(s)) and len(list(make_case(s).entry)) > 20)
    module = make_case(seed)
    small = minimise(module, wrong)
    assert wrong(small)
    assert len(list(small.entry)) <= 7 < len(list(module.entry))
    assert small.mesh is not None and len(small.mesh.axes) == 1
    again = read_case(case_text(small))
    assert case_text(again) == case_text(small)
    assert wrong(again)
    check_case(again)


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        if text := explain(number):
            print(text)
