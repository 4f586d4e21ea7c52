"""What holds for the house as a whole: light imports, links, and no name of another language's globals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
    folders = (
        "native",
        "hlo",
        "sharding",
        "costs",
        "collectives",
        "partitioner",
        "compiler",
        "launcher",
        "frontends",
        "analysis",
        "service",
        "shardc",
    )
    for folder in folders:
        for path in (repository / folder).rglob("*.py"):
            assert path.read_text(encoding="utf-8").lstrip().startswith(('"""', 'r"""')), path
