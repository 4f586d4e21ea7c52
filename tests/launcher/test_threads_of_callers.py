"""Several threads of a process that call programs at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardc
import shardc.numpy as snp
from shardc import Mesh, P

ROWS = np.arange(32.0).reshape(8, 4)


def sums(x: Any) -> Any:
    return (x * 2).sum(axis=0)


def compiled(devices: int) -> Callable[[Any], Any]:
    return shardc.trace(sums, ROWS, mesh=Mesh({"d": devices}), in_shardings=(P("d"),)).compile()


@pytest.mark.parametrize(
    "make",
    [lambda: compiled(1), lambda: compiled(4), lambda: lambda x: sums(snp.asarray(x)), lambda: snp.jit(sums)],
    ids=["one device", "four devices", "arrays", "jit"],
)
def test_threads_get_their_own_results(make: Callable[[], Callable[[Any], Any]]) -> None:
    function = make()
    wrong: list[Any] = []

    def run(number: int) -> None:
        for _ in range(100):
            given = ROWS + number
            found = np.asarray(function(given))
            if not np.array_equal(found, sums(given)):
                wrong.append((number, found))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
