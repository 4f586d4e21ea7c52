"""The store's size: bounded, the least recently used goes first, what is in use stays, for all servers on one store."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from store_support import KINDS, Place, name

from shardc.hlo.errors import EnvironmentProblem
from shardc.service.store import leases as leases_module
from shardc.service.store.storage_backend import StorageBackend
from shardc.service.store.store import NotStored, Store

#: Bytes of a manifest in these tests, at most.
MANIFEST = 500


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def put(store: Store, number: int, size: int = 10_000) -> None:
    store.put(name(number), {"report.json": bytes([number]) * size}, {})


def there(store: Store, numbers: range) -> list[int]:
    """Which are stored, without using them."""
    return [n for n in numbers if any(name(n) in f[0] for f in store._backend.files_below("entries"))]


def test_the_oldest_goes_first(place: Place) -> None:
    with place.open(limit=3 * (10_000 + MANIFEST)) as store:
        for number in range(3):
            put(store, number)
        assert store.read(name(0), "report.json")
        put(store, 3)
        assert there(store, range(5)) == [0, 2, 3]
        assert store.find(name(1)) is None
        program = store.put_program(bytes(5_000))
        assert there(store, range(5)) == [0, 3]
        assert store.has_program(program)
        found = store.statistics()
        assert (found.evicted, found.entries, found.programs) == (2, 2, 1)
        assert found.evicted_bytes > 20_000
        assert found.bytes <= found.limit_bytes


def test_last_uses_outlive_the_server(place: Place) -> None:
    with place.open() as store:
        for number in range(3):
            put(store, number)
        store.find(name(0))
    with place.open(limit=3 * (10_000 + MANIFEST)) as store:
        put(store, 3)
        assert there(store, range(4)) == [0, 2, 3]


@pytest.mark.parametrize("states", [("state", "state"), ("state", "other")])
def test_what_another_server_uses_stays(place: Place, states: tuple[str, str]) -> None:
    with place.open(state=states[0]) as other, place.open(limit=25_000, state=states[1]) as store:
        put(other, 0)
        program = other.put_program(bytes(100))
        with other.lease(name(0), program):
            store._quota.rescan()
            put(store, 1)
            put(store, 2)
            assert there(store, range(3)) == [0, 2]
            assert other.read(name(0), "report.json") == bytes(10_000)
            assert other.program(program) == bytes(100)
            with store.lease(name(2)), pytest.raises(EnvironmentProblem, match="are in use"):
                put(store, 3)
        other._leases.renew()
        if place.kind == "far":  # leases linger there, see below
            other._leases.close()
        put(store, 3)
        put(store, 4)
        assert there(store, range(5)) == [3, 4]
        assert other.find(name(0)) is None


def test_a_lease_that_lingers_is_used_again_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place("far", tmp_path)
    with place.open() as store:
        put(store, 0)
        marks = []
        mark = StorageBackend.mark
        monkeypatch.setattr(StorageBackend, "mark", lambda self, path: (marks.append(path), mark(self, path))[1])
        for _ in range(20):
            with store.lease(name(0)):
                assert store.find(name(0))
        assert marks == [], "the lease of putting it lingers"
        assert len(store._backend.names("leases")) == 1
        assert store.statistics().in_use == 0
        monkeypatch.setattr(leases_module, "_LINGER", 0.0)
        store._leases.renew()
        assert store._backend.names("leases") == []


def test_what_is_leased_is_not_asked_for_again_far_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place("far", tmp_path)
    asked = []
    version = StorageBackend.version
    monkeypatch.setattr(StorageBackend, "version", lambda self, path: (asked.append(path), version(self, path))[1])
    with place.open() as store, place.open(state="other", limit=1) as other:
        put(store, 0)
        with store.lease(name(0)):
            store.find(name(0))
            asked.clear()
            assert all(store.find(name(0)) for _ in range(5))
            assert asked == []
        store._leases.close()
        other._quota.rescan()
        other.evict()
        assert store.find(name(0)) is None
        with store.lease(name(0)):
            assert store.find(name(0)) is None


def test_leases_that_lingered_or_ran_out_promise_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Far away, where what is leased without a gap is not asked for again."""
    place = Place("far", tmp_path)
    with place.open(limit=11_000) as store, place.open(state="other", limit=1) as other:
        put(store, 0)
        assert store.find(name(0))
        put(store, 1)
        with store.lease(name(0)):
            assert store.find(name(0)) is None
        monkeypatch.setattr(store._leases, "renew", lambda: None)
        monkeypatch.setattr(leases_module, "_SECONDS", 0.2)
        store._leases.close()
        with store.lease(name(1)):
            assert store.find(name(1))
            time.sleep(0.3)  # as if this computer had slept for minutes
            other._quota.rescan()
            other.evict()
            with store.lease(name(1)):
                assert store.find(name(1)) is None


def test_a_lease_is_renewed_while_it_is_used(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases_module, "_SECONDS", 0.4)
    with place.open() as store, place.open(limit=1, state="other") as other:
        put(store, 0)
        with store.lease(name(0)):
            (first,) = store._backend.names("leases")
            until = time.monotonic() + 0.8
            while time.monotonic() < until:
                store._leases.renew()
                assert other._leases.in_use([name(0)]) == {name(0)}
                time.sleep(0.02)
            (last,) = store._backend.names("leases")
            assert first != last
        assert store._leases.count() == 0


def test_leases_of_a_dead_server_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with place.open() as store:
        put(store, 0)
        for name_of_file in (f"{name(0)}.dead.0.{int(1000 * time.time()) - 1000}", "no lease"):
            store._backend.mark(f"leases/{name_of_file}")
        assert store._leases.in_use([name(0)]) == set()
        store._backend.mark(f"leases/{name(0)}.dead.1.{int(1000 * time.time()) + 100_000}")
        assert store._leases.in_use([name(0)]) == {name(0)}
        monkeypatch.setattr(leases_module, "_SECONDS", 0.0)
        store._leases.in_use([])
        assert len([n for n in store._backend.names("leases") if "dead.0" in n]) == 0


def test_who_takes_a_lease_in_the_last_moment_keeps_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server begins to use something when it is chosen to go, just before the warning is up."""
    with place.open(state="other") as other, place.open(limit=11_000) as store, ExitStack() as uses:
        put(other, 0)
        other._leases.close()
        store._quota.rescan()
        create = store._backend.create
        found = []

        def hook(path: str, data: bytes) -> bool:
            if path == f"evicting/{name(0)}":
                uses.enter_context(other.lease(name(0)))
                found.append(other.find(name(0)))
            return create(path, data)

        monkeypatch.setattr(store._backend, "create", hook)
        with pytest.raises(EnvironmentProblem, match="are in use"):
            put(store, 1)
        assert len(found) == 1
        assert found[0] is not None
        assert other.read(name(0), "report.json") == bytes(10_000)
        assert store.statistics().evicted == 0
        assert store._backend.names("evicting") == []


def test_who_is_later_waits_until_it_is_gone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server wants to use something, and one to put it, when the warning is up and it is being removed."""
    with place.open(state="other") as other, place.open(limit=11_000) as store:
        put(other, 0)
        other._leases.close()
        store._quota.rescan()
        found: list[object] = []
        remove = store._backend.remove

        def use() -> None:
            with other.lease(name(0)):
                found.append(other.find(name(0)))
                put(other, 0)
                found.append(other.find(name(0)))

        def hook(path: str) -> None:
            if path.endswith(f"{name(0)}.json"):
                user.start()
                user.join(0.1)
                assert user.is_alive()
                assert found == []
            remove(path)

        user = threading.Thread(target=use)
        monkeypatch.setattr(store._backend, "remove", hook)
        put(store, 1)
        user.join(60)
        assert found[0] is None
        assert found[1] is not None
        assert other.read(name(0), "report.json") == bytes(10_000)


def test_warnings_of_a_dead_server_end(place: Place) -> None:
    with place.open(limit=11_000) as store:
        put(store, 0)
        store._backend.create(f"evicting/{name(0)}", str(int(1000 * time.time()) - 1).encode())
        with store.lease(name(0)):
            assert store.find(name(0))
        put(store, 1)
        assert there(store, range(2)) == [1]


def test_nothing_goes_when_nobody_knows_what_is_in_use(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network fails just after the warning was put up."""
    with place.open(limit=11_000) as store:
        put(store, 0)
        names, asked = store._backend.names, []

        def fail(folder: str) -> list[str]:
            asked.append(folder)
            if len(asked) == 2:
                raise EnvironmentProblem("the network is away")
            return names(folder)

        monkeypatch.setattr(store._backend, "names", fail)
        monkeypatch.setattr(store._quota, "evict", lambda: None)
        monkeypatch.setattr(store._quota, "rescan", lambda: None)
        with pytest.raises(EnvironmentProblem, match="away"):
            put(store, 1)
        assert store.read(name(0), "report.json") == bytes(10_000)
        assert store.statistics().evicted == 0
        put(store, 1)
        assert there(store, range(2)) == [1]


def test_what_can_never_fit_is_refused(place: Place) -> None:
    with place.open(limit=10_000) as store:
        put(store, 0, 5_000)
        with pytest.raises(EnvironmentProblem, match="its limit is 10,000") as caught:
            put(store, 1)
        assert "--store-size" in (caught.value.fix or "")
        with pytest.raises(EnvironmentProblem):
            store.put_program(bytes(20_000))
        assert store.statistics().bytes <= 10_000


def test_a_smaller_limit_is_kept_from_the_start(place: Place) -> None:
    with place.open() as store:
        for number in range(4):
            put(store, number)
    with place.open(limit=21_500) as store:
        store.evict()
        assert there(store, range(4)) == [2, 3]
        assert store.evict().number == 0


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=40), st.integers(1, 6))
def test_it_is_a_cache_of_the_last_used(steps: list[tuple[int, bool]], fit: int) -> None:
    """Against a dictionary in the order of last uses, with things of equal size."""
    with TemporaryDirectory() as folder:
        kept: OrderedDict[int, None] = OrderedDict()
        with Place("memory", Path(folder)).open(limit=fit * (2_000 + MANIFEST)) as store:
            for number, wanted in steps:
                if wanted:
                    assert (store.find(name(number)) is not None) == (number in kept)
                else:
                    put(store, number, 2_000)
                if number in kept or not wanted:
                    kept[number] = None
                    kept.move_to_end(number)
                while len(kept) > fit:
                    kept.popitem(last=False)
                assert there(store, range(8)) == sorted(kept)


class Servers(RuleBasedStateMachine):
    """Two servers, with an index in common or not, in any order: what is in use stays, and the size is bounded."""

    limit = 12_000

    @initialize(kind=st.sampled_from(("memory", "far")), shared=st.booleans())
    def open(self, kind: str, shared: bool) -> None:
        self.exits = ExitStack()
        place = Place(kind, Path(self.exits.enter_context(TemporaryDirectory())))
        states = ("state", "state" if shared else "other")
        self.servers = [self.exits.enter_context(place.open(self.limit, state)) for state in states]
        self.uses: dict[tuple[int, int], ExitStack] = {}
        self.shared = shared
        self.promised: set[int] = set()

    def teardown(self) -> None:
        if hasattr(self, "exits"):
            for use in self.uses.values():
                use.close()
            self.exits.close()

    @rule(server=st.integers(0, 1), number=st.integers(0, 9), size=st.integers(0, 3_000))
    def put(self, server: int, number: int, size: int) -> None:
        try:
            put(self.servers[server], number, size)
        except EnvironmentProblem as e:
            assert "are in use" in e.what
            assert self.uses or self.servers[1 - server]._leases._held, "nothing is in use"
        else:
            if any(used == number for _, used in self.uses):
                self.promised.add(number)

    @rule(server=st.integers(0, 1), number=st.integers(0, 9))
    def use(self, server: int, number: int) -> None:
        if (server, number) in self.uses:
            return
        use = self.uses[server, number] = ExitStack()
        use.enter_context(self.servers[server].lease(name(number)))
        if self.servers[server].find(name(number)):
            self.promised.add(number)

    @precondition(lambda self: self.uses)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        server, number = data.draw(st.sampled_from(sorted(self.uses)))
        self.uses.pop((server, number)).close()
        if not any(used == number for _, used in self.uses):
            self.promised.discard(number)

    @rule(server=st.integers(0, 1), number=st.integers(0, 9))
    def read(self, server: int, number: int) -> None:
        try:
            data = self.servers[server].read(name(number), "report.json")
        except NotStored:
            assert number not in self.promised
        else:
            assert set(data) <= {number}

    @rule(server=st.integers(0, 1))
    def keep_house(self, server: int) -> None:
        self.servers[server]._leases.renew()
        self.servers[server]._quota.rescan()
        self.servers[server].evict()

    @invariant()
    def what_is_in_use_is_there(self) -> None:
        for number in getattr(self, "promised", ()):
            for server in self.servers:
                assert server.find(name(number))

    @invariant()
    def the_size_is_bounded(self) -> None:
        """Servers that do not share their index learn of each other's writing when they look."""
        if hasattr(self, "servers"):
            total = sum(
                size for part in ("entries", "programs") for _, size, _ in self.servers[0]._backend.files_below(part)
            )
            assert total <= (self.limit if self.shared else 2 * self.limit)


Servers.TestCase.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
TestServers = Servers.TestCase


@pytest.mark.full
def test_servers_for_longer() -> None:
    run_state_machine_as_test(Servers, settings=settings(max_examples=100, stateful_step_count=50, deadline=None))
