"""JAX's own tests on the platform shardc: those that pass on XLA:CPU, less the listed ones, pass.

A case that is listed in ``expected_failures.toml`` has to fail, and no case may abort or hang. A drawn slice is in
every run; all are in the full one. ``run_cases.py`` beside this file runs them by hand.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from case_lists import expected_failures, passing_on_cpu, read_list, write_list
from children import Children, Outcome, suite_folder

#: The release that the files are of, as far as its private parts go.
RELEASE = (0, 10)
#: How many cases of each file are in every run, and the seed that they are drawn by.
SLICE, SEED = 3, 20


class CaseFailed(AssertionError):
    """A case ended otherwise than on XLA:CPU."""


class CaseStopped(RuntimeError):
    """A case ended its process, or never ended."""


def marked_cases() -> list[object]:
    expected, found = expected_failures(), []
    for file, cases in passing_on_cpu().items():
        drawn = set(random.Random(f"{SEED} {file}").sample(cases, min(SLICE, len(cases))))
        for case in cases:
            marks = [] if case in drawn else [pytest.mark.full]
            if (file, case) in expected:
                marks.append(pytest.mark.xfail(reason=expected[file, case], raises=CaseFailed, strict=True))
            found.append(pytest.param(file, case, marks=marks, id=f"{file}-{case}"))
    return found


@pytest.fixture(scope="session")
def children() -> Iterator[Children]:
    if not suite_folder().is_dir():
        pytest.skip(f"no tests of JAX at {suite_folder()} (set SHARDC_CONFORMANCE)")
    if importlib.util.find_spec("absl") is None:
        pytest.skip("absl-py is not installed, which JAX's tests are written with")
    if jax.__version_info__[:2] != RELEASE:
        pytest.skip(
            f"the files are of JAX {RELEASE[0]}.{RELEASE[1]} and use its private parts; this is {jax.__version__}"
        )
    with Children("shardc") as found:
        yield found


@pytest.mark.parametrize(("file", "case"), marked_cases())
def test_case(file: str, case: str, children: Children) -> None:
    outcome = children.run(file, case)
    if outcome.kind in ("aborted", "hung"):
        raise CaseStopped(f"{file} {case} {outcome.kind}: {outcome.why}")
    if outcome.kind != "passed":
        raise CaseFailed(f"{file} {case} {outcome.kind}: {outcome.why}")


def test_every_expected_failure_is_a_case_that_passes_on_cpu() -> None:
    passing = passing_on_cpu()
    unknown = [
        f"{file}: {case}" for file, case in expected_failures() if "/" not in file and case not in passing.get(file, ())
    ]
    assert not unknown


def test_lists_are_read_as_they_are_written() -> None:
    cases = [
        "A.testX",
        "A.testX0",
        "A.testX1",
        "A.testX2",
        "A.testX10",
        "A.test_007",
        "A.test_P('x', 3)",
        "B.test_2d_thing",
    ]
    assert sorted(read_list(write_list({"some_test": cases}))["some_test"]) == sorted(cases)


DEADLY = """
import os, time, unittest
from absl.testing import absltest

class Deadly(absltest.TestCase):
    def test_a_passes(self): pass
    def test_b_aborts(self): os.abort()
    def test_c_fails(self): self.fail("as meant")
    def test_d_hangs(self): time.sleep(100)
    def test_e_is_skipped(self): self.skipTest("for a reason")
    def test_f_has_sub_tests(self):
        with self.subTest("one"):
            self.fail("in a sub-test")
    @unittest.expectedFailure
    def test_g_should_fail(self): pass
    def test_h_asks(self): input()
    def test_i_prints(self): print('{"outcome": "failed"}', flush=True)
"""


def test_a_case_that_aborts_or_hangs_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("absl")
    (tmp_path / "deadly_test.py").write_text(DEADLY, encoding="utf-8")
    monkeypatch.setattr("children.LIMIT", 5.0)
    with Children("cpu", tmp_path) as children:
        names = children.names("deadly_test")
        found: dict[str, Outcome] = {n.removeprefix("Deadly.test_"): children.run("deadly_test", n) for n in names}
    kinds = {name: outcome.kind for name, outcome in found.items()}
    assert kinds == {
        "a_passes": "passed", "b_aborts": "aborted", "c_fails": "failed", "d_hangs": "hung", "e_is_skipped": "skipped",
        "f_has_sub_tests": "failed", "g_should_fail": "failed", "h_asks": "failed", "i_prints": "passed",
    }  # fmt: skip
    assert "SIGABRT" in found["b_aborts"].why and "test_b_aborts" in found["b_aborts"].why
    assert "as meant" in found["c_fails"].why and "test_d_hangs" in found["d_hangs"].why
