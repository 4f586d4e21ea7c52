"""One test id per file of OpenXLA's public test data; without the data, one skipped test per suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance_data import conformance_folder
from xla_judge import XlaParser

from shardc.hlo.errors import UnsupportedError

#: Argument name of a test -> where its cases lie.
SUITES = {
    "stablehlo_case": ("stablehlo", ".mlir"),
    "compiled_case": ("stablehlo", ".mlir"),
    "interpret_case": ("stablehlo_interpret", ".mlir"),
    "grid_case": ("stablehlo_interpret", ".mlir"),
    "hlo_case": ("hlo", ".hlo"),
    "sharded_case": ("hlo", ".hlo"),
    "shardy_case": ("shardy/propagation", ".mlir"),
    "executable_case": ("shardy/executable", ".mlir"),
}

#: Argument name -> a word that its cases have in them.
WORDS = {"grid_case": "interpreter.run_parallel", "sharded_case": "sharding="}

#: Argument name -> cases of the full run alone: XLA takes most of a minute for a constant of five million numbers.
LONG = {"hlo_case": {"service_spmd_spmd_partitioner_test_cc_528"}}

#: Argument name -> how names of cases begin of which every fourth is in every run: 520 of 1,189 are scatters.
MANY = {"compiled_case": "scatter"}

#: What no release of shardc means to support, and why: part of the message of our error -> reason.
UNSUPPORTED = {
    "quantised": "quantised types are not among the supported types",
    "feed cannot be compiled": "compiled programs have no queue to or from the host",
    "they send each other values": "compiled programs are one program on all devices, without send and recv",
    "dynamic shape": "shapes are static",
    "this jaxlib cannot read it": "the syntax is of a newer jaxlib",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for argument, (name, suffix) in SUITES.items():
        if argument in metafunc.fixturenames:
            folder = conformance_folder() / name
            files = sorted(folder.glob(f"*{suffix}"))
            word = WORDS.get(argument, "")
            files = [f for f in files if not word or word in f.read_text(encoding="utf-8")]
            absent = pytest.param(None, marks=pytest.mark.skip(reason=f"no conformance data at {folder}"), id="absent")
            many = [f.stem for f in files if argument in MANY and f.stem.startswith(MANY[argument])]
            left = LONG.get(argument, set()) | (set(many) - set(many[::4]))
            marked = [pytest.param(f, id=f.stem, marks=pytest.mark.full if f.stem in left else ()) for f in files]
            metafunc.parametrize(argument, marked or [absent])


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Iterator[None]:
    """What stands in `UNSUPPORTED` is counted apart; any other refusal fails."""
    try:
        return (yield)
    except UnsupportedError as e:
        for words, reason in UNSUPPORTED.items():
            if words in str(e):
                pytest.skip(f"unsupported: {reason}")
        raise


@pytest.fixture(scope="session")
def xla_parser() -> Iterator[XlaParser]:
    pytest.importorskip("jaxlib._hlo")
    with XlaParser() as parser:
        yield parser
