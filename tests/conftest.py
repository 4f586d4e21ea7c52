"""Options and helpers for all tests."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest
from conformance_data import conformance_folder, suite_summary
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-full", action="store_true", help="also run tests marked `full`")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # What JAX computes is compared with, not measured: XLA need not optimise it.
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As in the background of a shell: what tests start and interrupt would inherit it, and never end.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Machines that do other things beside are slow; that says nothing about what is tested.
    settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("patient")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--run-full"):
        for item in items:  # what goes on at length; parts of the full run have limits of their own
            if item.get_closest_marker("full") and not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(3600))
        return
    dropped = [i for i in items if i.get_closest_marker("full")]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [i for i in items if not i.get_closest_marker("full")]


def pytest_collection_finish() -> None:
    """Modules and thousands of tests stay: a tenth of the time of the tests was looking for garbage among them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


@pytest.fixture(scope="session")
def repository() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def conformance() -> Path:
    """The folder with OpenXLA's public test data; the test is skipped where there is none."""
    folder = conformance_folder()
    if not folder.is_dir():
        pytest.skip(f"no conformance data at {folder} (set SHARDC_CONFORMANCE)")
    return folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = suite_summary(terminalreporter.stats)
    if lines:
        terminalreporter.section("conformance")
    for line in lines:
        terminalreporter.write_line(line)
