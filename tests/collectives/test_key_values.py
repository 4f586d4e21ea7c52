"""Exchanges through a store of values by name."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from shardc.collectives.shared_memory.key_values import KeyValueMessages
from shardc.hlo.errors import RunError


class Store:
    """A store for threads."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.changed = threading.Condition()

    def put(self, name: str, value: bytes) -> None:
        with self.changed:
            assert name not in self.values
            self.values[name] = value
            self.changed.notify_all()

    def get(self, name: str, seconds: float) -> bytes | None:
        with self.changed:
            self.changed.wait_for(lambda: name in self.values, min(seconds, 0.05))
            return self.values.get(name)


def exchange_all(messages: KeyValueMessages) -> tuple[list[object], list[int], np.ndarray]:
    me = messages.process_index
    first = messages.exchange_objects({"rank": me}, doing="greetings")
    sizes = [len(b) for b in messages.exchange_objects(bytes(me * 900_000))]
    block = np.full(me + 1, me, np.uint8)
    return first, sizes, messages.concatenate(block, [1, 2, 3])


def test_everybody_has_everybody_s_values() -> None:
    store = Store()
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(exchange_all, [KeyValueMessages(store, rank, 3) for rank in range(3)]))
    for first, sizes, bytes_ in found:
        assert first == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
        assert sizes == [0, 900_000, 1_800_000]
        assert bytes_.tolist() == [0, 1, 1, 2, 2, 2]


def test_a_missing_process_is_named() -> None:
    messages = KeyValueMessages(Store(), 0, 2, timeout=0.1)
    start = time.monotonic()
    with pytest.raises(RunError, match=r"rank 0 waited 0\.1 s in greetings for rank 1"):
        messages.exchange_objects(1, doing="greetings")
    assert time.monotonic() - start < 5


def test_some_of_the_processes_exchange_among_themselves() -> None:
    """In an order of their own, and under their numbers in the job."""
    store = Store()
    jobs = [KeyValueMessages(store, rank, 3, timeout=0.1 if rank == 2 else 60) for rank in range(3)]
    groups = [{m: jobs[rank].among(m) for m in ((0, 2), (1, 2)) if rank in m} for rank in range(3)]
    assert [groups[2][m].process_index for m in ((0, 2), (1, 2))] == [1, 1]
    assert (groups[2][1, 2].ranks, groups[2][1, 2].job) == ((1, 2), jobs[2])
    with ThreadPoolExecutor(2) as pool:
        near = pool.submit(groups[1][1, 2].exchange_objects, "one")
        assert groups[2][1, 2].exchange_objects("two") == near.result() == ["one", "two"]
    with pytest.raises(RunError, match=r"rank 2 waited 0\.1 s in greetings for rank 0"):
        groups[2][0, 2].exchange_objects("two", doing="greetings")


def test_different_exchanges_are_told() -> None:
    store = Store()
    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(KeyValueMessages(store, 1, 2).exchange_objects, 1, doing="loading a program")
        with pytest.raises(RunError, match="rank 1 is in loading a program, but rank 0 is in greetings"):
            KeyValueMessages(store, 0, 2).exchange_objects(1, doing="greetings")
        assert isinstance(other.exception(), RunError)
