"""What holds for the house as a whole: light imports, links, and no name of another language's globals."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from import_graph import circles, floor_of, imports, sources, trees

#: Folders that may hold more than twenty files, and why.
FULL_FOLDERS: dict[str, str] = {}

#: Class names that stand more than once, and why.
SHARED_CLASS_NAMES: dict[str, str] = {}

#: Words that this project used before it took the field's; docs/glossary.md has the terms.
OLD_WORDS = re.compile(
    r"(?i)(?<![a-z])(desk|hero|heroes|pains?|performers?|roll_call|verdicts?|shelf|shelves|wish|wishes|"
    r"rehears\w*|thrift|haste|patience|homes)(?![a-z])"
)

#: Plain words that say nothing as the name of a module, a class or a function.
NO_NAMES = frozenset(
    {"apart", "alike", "elsewhere", "given", "kept", "lost", "making", "medium", "placed", "room", "rounds", "script"}
    | {"seen", "hands", "sites", "specs", "standing", "way", "words", "written"}
)

HEAVY = ("jax", "jaxlib", "llvmlite", "mpi4py.MPI", "typer", "rich")


def test_importing_shardc_loads_nothing_heavy() -> None:
    code = f"import sys, shardc; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_never_loads_mpi_or_jax() -> None:
    code = (
        "import sys\n"
        "from shardc.__main__ import main\n"
        "sys.argv = ['shardc', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('jax', 'jaxlib', 'mpi4py.MPI', 'llvmlite') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_every_module_has_a_docstring(repository: Path) -> None:
    without = [name for name, tree in trees(repository).items() if not ast.get_docstring(tree)]
    assert not without


def test_every_folder_says_where_to_start(repository: Path) -> None:
    """A folder's docstring has what it is for, and a second paragraph for whoever starts reading."""
    packages = [name for name, path in sources(repository).items() if path.name == "__init__.py"]
    short = [name for name in packages if len((ast.get_docstring(trees(repository)[name]) or "").split("\n\n")) < 2]
    assert not short


def test_no_circle_of_more_than_three_files(repository: Path) -> None:
    assert [c for c in circles(imports(repository)) if len(c) > 3] == []


def test_imports_go_to_lower_floors_only(repository: Path) -> None:
    upward = []
    for module, imported in imports(repository).items():
        for other in sorted(imported):
            here, there = floor_of(module), floor_of(other)
            if there > here or (here == 1 and there == 0):
                upward.append(f"{module} -> {other}")
    assert not upward


def test_no_folder_holds_more_than_twenty_files(repository: Path) -> None:
    """Twenty modules, beside ``__init__``."""
    count = Counter(path.parent for path in sources(repository).values() if path.name != "__init__.py")
    assert {str(f.relative_to(repository)): n for f, n in count.items() if n > 20 and f.name not in FULL_FOLDERS} == {}


def test_every_class_name_stands_once(repository: Path) -> None:
    places: dict[str, list[str]] = {}
    for module, tree in trees(repository).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    assert {n: where for n, where in places.items() if len(where) > 1 and n not in SHARED_CLASS_NAMES} == {}


def test_words_are_the_fields(repository: Path) -> None:
    """No old word stands in a name, a docstring or a comment, and none that is plain English names a definition."""
    found = []
    for module, path in sources(repository).items():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found += [f"{module}:{number}: {word}" for word in OLD_WORDS.findall(line)]
    for module, tree in trees(repository).items():
        found += [f"{module}: the module's name" for part in module.split(".") if part in NO_NAMES]
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found += [f"{module}:{node.lineno}: {node.name}"] * (node.name.lower().strip("_") in NO_NAMES)
    assert not found


def test_no_code_is_written_with_numbers_of_fields(repository: Path) -> None:
    """Native code names its fields; LLVM text that counts them is nowhere."""
    counted = re.compile(r"getelementptr [^,]+, ptr %[\w.]+, i\d+ \d+, i32 \d+")
    assert [m for m, path in sources(repository).items() if counted.search(path.read_text(encoding="utf-8"))] == []
