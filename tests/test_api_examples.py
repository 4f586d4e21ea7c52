"""The reference of the Python API: every public name is on its page, and has an example that runs."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
import shardc.numpy
import shardc.service
import shardc.torch
from shardc.cli.app import main
from tests.service.service_harness import TOKEN, Service

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "api.md"
#: Modules whose docstring has the lines that examples continue, the longest name first.
MODULES = ("shardc.numpy", "shardc.service", "shardc.torch", "shardc")
#: What shardc's own floors call: methods by which arrays are computed, cells of tables, checks of answers.
INNER = frozenset(
    (
        "become",
        "blocks_under",
        "computed",
        "make_view",
        "take_computed",
        "candidate_rows",
        "check_entry",
        "fetch_stored",
        "of",
        "within",
        "failed_rows",
        "scaling_rows",
    )
)
#: Examples for which an optional package must be there.
NEEDED = {
    "shardc.numpy.from_hdf5": "h5py",
    "shardc.numpy.from_zarr": "zarr",
    "shardc.from_torch": "torch",
    "shardc.from_tensorflow": "tensorflow",
}
#: Modules of which every example needs a package.
OF_PACKAGES = {"shardc.torch": "torch"}


def named(path: str) -> Any:
    """The object that a directive of the page names."""
    first, *rest = path.split(".")
    found: Any = importlib.import_module(first)
    for at, part in enumerate(rest, 2):
        if not hasattr(found, part):
            importlib.import_module(".".join((first, *rest)[:at]))
        found = getattr(found, part)
    return found


def directives() -> list[str]:
    return re.findall(r"^\.\. auto(?!module)\w+:: ([\w.]+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def documented(path: str) -> Iterator[tuple[str, str]]:
    """Name and docstring of what a directive shows, a class before its methods; NumPy documents methods of arrays."""
    value = named(path)
    yield path, inspect.getdoc(value) or ""
    for name in sorted(dir(value)) if inspect.isclass(value) else ():
        found = inspect.getattr_static(value, name)
        found = getattr(found, "__func__", found)
        text = inspect.getdoc(getattr(value, name)) or ""
        ours = inspect.isfunction(found) and not name.startswith("_") and name not in INNER
        if ours and not hasattr(np.ndarray, name) and not text.startswith("``numpy.ndarray."):
            yield f"{path}.{name}", text


def test_every_public_name_is_on_the_page() -> None:
    on_page = set(directives())
    assert {f"shardc.{name}" for name in shardc.__all__} <= on_page | {"shardc.PartitionSpec"}
    assert {f"shardc.numpy.{name}" for name in shardc.numpy.__all__ if name != "random"} <= on_page
    assert {f"shardc.service.{name}" for name in shardc.service.__all__} <= on_page
    assert {f"shardc.torch.{name}" for name in shardc.torch.__all__} <= on_page
    assert {f"shardc.numpy.random.{name}" for name in shardc.numpy.random.__all__} <= on_page


def test_every_callable_has_an_example() -> None:
    shown = [entry for path in directives() for entry in documented(path)]
    assert len(shown) > 140
    assert not [name for name, text in shown if ">>>" not in text]


@pytest.fixture(scope="module")
def scopes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], dict[str, Any]]]:
    """What the lines of a module define, in a folder where the demo was written."""
    with ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).chdir(tmp_path_factory.mktemp("examples"))
        assert main(["demo", "--write", "."]) == 0

        @cache
        def scope_of(module: str) -> dict[str, Any]:
            scope: dict[str, Any] = {"__name__": "examples"}
            with pytest.MonkeyPatch.context() as patch:
                if module == "shardc.service":
                    service = stack.enter_context(Service(tmp_path_factory.mktemp("service")))
                    patch.setenv("SHARDC_SERVER", service.url)
                    patch.setenv("SHARDC_TOKEN", TOKEN)
                for example in doctest.DocTestParser().get_examples(inspect.getdoc(named(module)) or ""):
                    exec(example.source, scope)
            return scope

        yield scope_of


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", directives())
def test_examples_run(path: str, scopes: Callable[[str], dict[str, Any]]) -> None:
    """Those of a class and its methods, which continue it."""
    if path in NEEDED:
        pytest.importorskip(NEEDED[path])
    module = next(module for module in MODULES if path.startswith(f"{module}."))
    if module in OF_PACKAGES:
        pytest.importorskip(OF_PACKAGES[module])
    scope = scopes(module)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    wrong: list[str] = []
    for name, text in documented(path):
        test = doctest.DocTestParser().get_doctest(text, scope, name, None, 0)
        runner.run(test, out=wrong.append, clear_globs=False)
        scope = test.globs
    assert not wrong, "".join(wrong)
