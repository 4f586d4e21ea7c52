"""Sharded HLO texts: each partitions, and equals the unpartitioned program if that has a value."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from shardc.hlo.errors import ShardcError
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.ir import Module
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.verify import verify
from shardc.partitioner.equivalence import agree, gather_results
from shardc.partitioner.partition import partition
from shardc.partitioner.prepare.adopt_partitioned import adopt
from shardc.sharding.propagate import propagate

sys.path.append(str(Path(__file__).parents[1] / "partitioner"))

from partition_support import integers, scatter_poisoned

#: More bytes of arguments, elements anywhere, or devices take long and show nothing new, and what is
#: manual from its parameters on has no unpartitioned program: these only partition.
BYTES, ELEMENTS, DEVICES = 1 << 20, 1 << 22, 16

#: Part of the message of our refusal -> why the text has no global program, or none that this project means to take.
REFUSED = {
    "feed cannot": "one device alone would exchange data with its host",
    "recv cannot": "transfers are between devices of a partitioned program",
    "send cannot": "transfers are between devices of a partitioned program",
    "but others cover": "shardings over different numbers of devices",
    "names devices": "a collective with a channel in a global program",
    "the manual axes": "the border's shapes do not fit its sharding: the text was never run",
    "members": "groups do not fit the shapes: the text was never run",
    "device 1 does not exist": "groups name devices that its shardings do not have",
}

#: Part of the message when the unpartitioned program has no value.
NO_VALUE = {
    "unknown custom call": "a custom call without a meaning",
    "calls back into Python": "a callback of a process that is gone",
    "the infeed has no more": "nobody feeds the evaluator",
    "does not exist": "device numbers have a meaning on devices only",
    "groups of": "groups have a meaning on devices only",
    "do not take part": "groups have a meaning on devices only",
}


def test_case(sharded_case: Path) -> None:
    module = read_hlo(sharded_case.read_text(encoding="utf-8"), sharded_case.name)
    try:
        if adopt(module) is not module:
            pytest.skip("unsupported: a program that is partitioned already")
        whole = propagate(module).module
        local = partition(whole)
        verify(local)
    except ShardcError as e:
        _skip(e, REFUSED)
        raise
    if _is_large(whole) or _is_manual(whole):
        return
    args = [integers(np.random.default_rng(0), x) for p in whole.parameters for x in p.shape.leaves()]
    try:
        want, reference = evaluate(whole, args), evaluate(whole, args, float64=True)
    except ShardcError as e:
        _skip(e, NO_VALUE)
        raise
    got = gather_results(local, evaluate_spmd(local, scatter_poisoned(local, args)))
    for g, w, r in zip(got, want, reference, strict=True):
        assert agree(g, w, r)


def _is_manual(module: Module) -> bool:
    return any(s.manual for p in module.parameters for s in p.leaf_shardings())


def _skip(error: ShardcError, reasons: dict[str, str]) -> None:
    for words, reason in reasons.items():
        if words in str(error):
            pytest.skip(f"unsupported: {reason}")


def _is_large(module: Module) -> bool:
    assert module.mesh is not None
    sizes = [leaf for i in module.instructions() for leaf in i.shape.leaves() if leaf.is_array]
    return (
        module.mesh.size > DEVICES
        or sum(p.shape.nbytes for p in module.parameters) > BYTES
        or any(int(np.prod(s.dims, dtype=np.int64)) > ELEMENTS for s in sizes)
        or any(i.opcode == "while" for i in module.instructions())
    )
