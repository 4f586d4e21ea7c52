"""NVIDIA's libraries, found in their wheels or on the system and called by their C interface.

The C interfaces have kept names and arguments for years, where Python bindings of them changed theirs with every
version (and import much that nobody here needs).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shardc.native.gpu.problems import GpuFault, GpuProblem

__all__ = ["CLibrary", "find_library", "open_library"]


def find_library(places: Sequence[str], name: str) -> str | None:
    """The file of a library: one of ``places`` in NVIDIA's wheels (globs below ``nvidia/``), or what the system calls
    ``name``. Loads nothing."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(p) for p in (spec.submodule_search_locations or ())] if spec is not None else []
    found = [sorted(str(file) for folder in folders for file in folder.glob(place)) for place in places]
    return next((files[-1] for files in found if files), None) or ctypes.util.find_library(name)


def open_library(title: str, path: str | None, fix: str) -> Any:
    """The loaded library; GpuProblem when it is not there, or does not load."""
    if path is None:
        raise GpuProblem(f"{title} is not installed", fix=fix)
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise GpuProblem(f"{title} cannot be loaded: {error}", where=path, fix=fix) from None


class CLibrary:
    """Functions of a library that answer a status, each answer looked at.

    ``functions`` gives each one's argument types, ``passing`` the statuses that are no errors, and ``words`` says what
    another means. GpuProblem when the library lacks a function.
    """

    def __init__(
        self,
        title: str,
        library: Any,
        functions: Mapping[str, Sequence[Any]],
        words: Callable[[int], str],
        *,
        passing: Sequence[int] = (0,),
        fix: str = "",
    ) -> None:
        self.title = title
        self._passing = frozenset(passing)
        self._words = words
        self._functions: dict[str, Any] = {}
        for name, arguments in functions.items():
            function = getattr(library, name, None)
            if function is None:
                raise GpuProblem(f"this {title} lacks {name}", fix=fix)
            function.argtypes, function.restype = list(arguments), ctypes.c_int
            self._functions[name] = function

    def call(self, name: str, *arguments: Any) -> None:
        """GpuFault, with the library's words, when the function fails."""
        status = self._functions[name](*arguments)
        if status not in self._passing:
            raise self.fault(name, status)

    def is_failure(self, status: int) -> bool:
        return status not in self._passing

    def fault(self, what: str, status: int) -> GpuFault:
        """What a status means."""
        return GpuFault(f"{self.title}: {what} failed: {self._words(status)}")
