"""Examples of passes: ``.hlo`` files with what goes in, and comments for FileCheck about what comes out.

A file begins with ``// RUN:`` and the options of `shardc opt`; the last pass there is the one that the file is about.
Cases are separated by ``// -----``; one with its own ``// RUN:`` has other options. ``// RESULTS: close`` says that a
pass may round otherwise in this case; else results are the same bits. ``// RESULTS: of all devices`` partitions both
programs before they are evaluated: what they say is about devices.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from shardc.cli.options import given_annotations
from shardc.frontends.load import load_program
from shardc.hlo.config import Config
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.ir import Module
from shardc.launcher.run.random_inputs import random_arguments
from shardc.partitioner.equivalence import gather_results, scatter_arguments
from shardc.passes.opt import prepare_module, read_passes, run_passes

__all__ = ["FOLDER", "Case", "cases_of", "of_all_devices", "results"]

FOLDER = Path(__file__).parent
_RUN = re.compile(r"// RUN: shardc opt %s(.*)")
_CUT = re.compile(r"^// -----$", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One example: a program as text, and the command's options."""

    file: Path
    number: int
    text: str
    passes: str
    mesh: str = ""
    annotate: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        return "// RESULTS: close" not in self.text

    @property
    def about_devices(self) -> bool:
        return "// RESULTS: of all devices" in self.text

    @property
    def name(self) -> str:
        return f"{self.file.relative_to(FOLDER).with_suffix('')}[{self.number}]"

    @cache  # noqa: B019 (as many as there are cases)
    def modules(self) -> tuple[Module, Module]:
        """The program before and after the last pass."""
        specs, mesh = given_annotations(self.mesh, self.annotate, None)
        given = prepare_module(load_program(self.text.encode(), self.name).module, specs, mesh)
        *others, last = read_passes(self.passes)
        before = run_passes(given, others, Config())
        return before, run_passes(before, [last], Config())


def cases_of(file: Path) -> Iterator[Case]:
    """All cases of a file, in order."""
    options: dict[str, Any] = {}
    for number, text in enumerate(_CUT.split(file.read_text(encoding="utf-8"))):
        found = _RUN.search(text)
        options = _options(found.group(1)) if found is not None else options
        assert options, f"{file} does not begin with // RUN: shardc opt %s --passes=..."
        yield Case(file, number, text, **options)


def _options(text: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for word in shlex.split(text):
        name, _, value = word.removeprefix("--").partition("=")
        if name == "annotate":
            out[name] = (*out.get(name, ()), value)
        else:
            out[name] = value
    return out


def of_all_devices(module: Module) -> Module:
    return run_passes(module, read_passes("propagate,partition-pipeline"), Config())


def results(module: Module, seed: int, like: Module | None = None) -> Sequence[np.ndarray[Any, Any]]:
    """What a module at any stage gives for seeded whole arguments: whole results, or those of all devices.

    Results lie as the root of ``like`` says, a module before it was lowered, which drops that. Where neither says it
    they are those of all devices.
    """
    if module.partitioned:
        shapes = [leaf for s in module.attrs["global_parameters"] for leaf in s.leaves()]
        each = evaluate_spmd(module, scatter_arguments(module, random_arguments(shapes, seed)))
        said = like or module
        if said.entry.root.sharding is None:
            return [x for device in each for x in device]
        return gather_results(said, each)
    leaves = [leaf for p in module.parameters for leaf in p.shape.leaves() if leaf.is_array]
    if module.replica_count > 1:
        devices = module.replica_count * module.num_partitions
        each = [random_arguments(leaves, seed + d) for d in range(devices)]
        return [x for device in evaluate_spmd(module, each) for x in device]
    return evaluate(module, random_arguments(leaves, seed))
