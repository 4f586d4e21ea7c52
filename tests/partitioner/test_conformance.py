"""Sharded HLO texts from XLA's own tests: each partitions and equals the unpartitioned program."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from partition_support import integers, scatter_poisoned

from shardc.hlo.errors import ShardcError
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir import Module
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.verify import verify
from shardc.partitioner.equivalence import agree, gather_results
from shardc.partitioner.partition import partition
from shardc.sharding.propagate import propagate

#: Evaluating more bytes of arguments or more devices than this takes long and shows nothing new.
LARGEST, DEVICES = 1 << 20, 16


def sharded(folder: Path) -> list[Path]:
    return [f for f in sorted((folder / "hlo").glob("*.hlo")) if "sharding=" in f.read_text(errors="ignore")]


def annotated(path: Path) -> Module | None:
    """The propagated module, None for what earlier stages refuse or what is too large for a test."""
    try:
        module = propagate(read_hlo(path.read_text(), path.name)).module
    except (ShardcError, AssertionError):
        return None
    size = sum(p.shape.nbytes for p in module.parameters)
    loops = any(i.opcode == "while" for i in module.instructions())
    return module if module.mesh and module.mesh.size <= DEVICES and size <= LARGEST and not loops else None


def outcome(path: Path) -> str:
    """``agrees``, ``refused`` or ``left out``; anything wrong raises."""
    module = annotated(path)
    if module is None:
        return "left out"
    rng = np.random.default_rng(0)
    try:
        args = [integers(rng, leaf) for p in module.parameters for leaf in p.shape.leaves()]
        want, reference = evaluate(module, args), evaluate(module, args, float64=True)
        local = partition(module)
    except ShardcError:
        return "refused"
    verify(local)
    got = gather_results(local, evaluate_spmd(local, scatter_poisoned(local, args)))
    for g, w, r in zip(got, want, reference, strict=True):
        assert agree(g, w, r), path.name
    return "agrees"


def test_a_sample_agrees(conformance: Path) -> None:
    files = random.Random(0).sample(sharded(conformance), 60)
    outcomes = [outcome(f) for f in files]
    assert outcomes.count("agrees") >= 15
    assert outcomes.count("refused") <= 8


@pytest.mark.full
def test_all_agree(conformance: Path) -> None:
    outcomes = [outcome(f) for f in sharded(conformance)]
    assert outcomes.count("agrees") >= 200
    assert outcomes.count("refused") <= 50
