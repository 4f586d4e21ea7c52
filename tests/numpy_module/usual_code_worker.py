"""One rank of a job that runs usual code of NumPy's and draws random numbers, and compares with one process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy

import shardc
import shardc.numpy as snp
from shardc import Mesh, P
from tests.numpy_module.test_usual_code import CHANGES, CODE, VALUES

#: Need the whole value on this process.
OF_WHOLE_VALUES = {"item by number", "item by index", "flat", "bytes"}

#: Small draws are whole on every rank, large ones are split.
DRAWS: dict[str, Callable[[Any], Any]] = {
    "few numbers": lambda rng: rng.random(5),
    "one number": lambda rng: rng.normal(),
    "one number of an array": lambda rng: rng.random(),
    "one integer": lambda rng: rng.integers(10),
    "whole on demand": lambda rng: rng.random(500, sharding=P()),
    "many numbers": lambda rng: rng.random((640, 3)),
    "an order": lambda rng: rng.permutation(10),
    "a choice": lambda rng: rng.choice(100, 1),
    "both kinds": lambda rng: rng.random((640, 3)) * rng.uniform(1, 2, 3),
}


def draws() -> list[Any]:
    rng = snp.random.default_rng(7)
    return [numpy.asarray(shardc.gather(draw(rng))) for draw in DRAWS.values()]


def main(wanted: str) -> None:
    mesh = Mesh({"d": shardc.process_count()})
    for name in (n for n in CODE if n not in OF_WHOLE_VALUES):
        with snp.use_mesh(mesh):
            found = numpy.asarray(shardc.gather(CODE[name](shardc.array(VALUES, (mesh, P("d"))), snp)))
        numpy.testing.assert_array_equal(found, numpy.asarray(CODE[name](VALUES, numpy)), err_msg=name)
    for name, change in CHANGES.items():
        changed, expected = shardc.array(VALUES.copy(), (mesh, P("d"))), VALUES.copy()
        change(changed)
        change(expected)
        numpy.testing.assert_array_equal(shardc.gather(changed), expected, err_msg=name)
    # Without an array among its arguments, a function runs on all devices of the job.
    drawn = snp.jit(lambda rng, n: rng.random(100).sum() * n)(snp.random.default_rng(3), 2.0)
    assert 80 < float(drawn) < 120 and float(snp.jit(lambda: snp.arange(100.0).sum())()) == 4950
    assert float(snp.jit(lambda x: x.sum())(numpy.arange(100.0))) == 4950
    with numpy.load(wanted) as plain:
        for name, drawn, single in zip(DRAWS, draws(), plain.values(), strict=True):
            numpy.testing.assert_array_equal(drawn, single, err_msg=name)


if __name__ == "__main__":
    main(sys.argv[1])
    print("all agree")
