"""MPI libraries to start jobs with: Python's own, and those below the folders that `SHARDC_TEST_MPI` names."""

from __future__ import annotations

import os
from pathlib import Path

from shardc.launcher.jobs.mpi_environment import MpiLibrary, find_library

__all__ = ["FOLDERS", "LIBRARIES", "environment", "library_below"]

FOLDERS = [p for p in os.environ.get("SHARDC_TEST_MPI", "").split(os.pathsep) if p]
#: Folders, empty for Python's own library.
LIBRARIES = ["", *FOLDERS]


def library_below(folder: Path) -> MpiLibrary | None:
    """The library in one of the places where wheels, distributions and builds put it."""
    places = [folder / "lib", *folder.glob("lib/*-linux-gnu"), folder / "lib64"]
    return find_library({"MPI4PY_LIBMPI": os.pathsep.join(map(str, places))})


def environment(folder: str, repository: Path) -> dict[str, str]:
    """The environment for a job with the library below ``folder``, where ``tests`` and ``shardc`` can be imported."""
    path = os.pathsep.join(filter(None, (str(repository), os.environ.get("PYTHONPATH"))))
    out = {**os.environ, "PYTHONPATH": path}
    if folder:
        library = library_below(Path(folder))
        assert library is not None, f"no MPI library below {folder}"
        out["MPI4PY_LIBMPI"] = str(library.path)
    return out
