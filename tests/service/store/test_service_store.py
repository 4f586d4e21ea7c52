"""The store: what is put is found, by other servers too; what is damaged is absent; what is half written is nothing."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from store_support import KEY, KINDS, Place, name

from shardc.hlo import files
from shardc.hlo.errors import EnvironmentProblem, InputError
from shardc.service.jobs import StoreEntry
from shardc.service.store.signature import check_signature
from shardc.service.store.storage_backend import StorageBackend
from shardc.service.store.store import NotStored, Store

FILES = {"report.json": b'{"a": 1}', "executable.shardc": bytes(range(256)) * 40, "empty.json": b""}


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Place:
    return Place("folder", tmp_path)


def test_what_is_put_is_found(place: Place) -> None:
    with place.open() as store:
        assert store.find(name(1)) is None
        entry = store.put(name(1), FILES, {"kind": "compile", "seconds": (1, 2)})
        check_signature(entry, KEY)
        assert [(a.name, a.bytes) for a in entry.artifacts] == [(n, len(FILES[n])) for n in sorted(FILES)]
        assert entry.facts == {"kind": "compile", "seconds": (1, 2)}
        assert store.find(name(1)) == entry
        assert {n: store.read(name(1), n) for n in FILES} == FILES
        found = store.statistics()
        assert (found.entries, found.programs, found.hits, found.misses) == (1, 0, 1, 1)
        assert found.bytes > sum(map(len, FILES.values()))
    with place.open(state="of another server") as other:
        assert other.find(name(1)) == entry
        assert other.read(name(1), "executable.shardc") == FILES["executable.shardc"]
        assert other.statistics().entries == 1


def test_what_is_at_hand_is_as_it_lies_there(folder: Place) -> None:
    with folder.open() as store:
        assert store.find_cached(name(1), "report.json") is None
        entry = store.put(name(1), FILES, {})
        data = store.read(name(1), "report.json")
        hits = store.statistics().hits
        found, artifact, same = store.find_cached(name(1), "report.json") or (None, None, b"")
        assert (found, same) == (entry, data) and artifact in entry.artifacts
        assert store.statistics().hits == hits + 1
        assert store.find_cached(name(1), "other.json") is None and store.find_cached("../key", "report.json") is None
        (manifest,) = Path(folder.url).rglob(f"{name(1)}.json")
        kept = manifest.read_bytes()
        manifest.write_bytes(kept.replace(b'"facts"', b'"fucts"'))
        assert store.find_cached(name(1), "report.json") is None, "it changed: it has to be checked again"
        manifest.unlink()
        assert store.find_cached(name(1), "report.json") is None


def test_what_is_there_stays(place: Place) -> None:
    with place.open() as store:
        entry = store.put(name(1), FILES, {"seconds": 1})
        assert store.put(name(1), {"report.json": b"other"}, {"seconds": 2}) == entry
        assert store.read(name(1), "report.json") == FILES["report.json"]


def test_programs_go_by_their_content(place: Place) -> None:
    with place.open() as store:
        key = store.put_program(b"HloModule m", {"kind": "hlo"})
        assert key == store.put_program(b"HloModule m")
        assert store.has_program(key)
        assert store.program(key) == b"HloModule m"
        entry = store.program_entry(key)
        assert entry is not None
        assert (entry.artifacts[0].bytes, entry.facts) == (11, {"kind": "hlo"})
        assert store.find(key) is None, "a program is no entry"
        assert not store.has_program(name(1))
        assert store.program_entry(name(1)) is None
        with pytest.raises(NotStored, match="does not have it"):
            store.program(name(1))
        assert store.put_program(b"") == name("")
        assert store.program(name("")) == b""


@pytest.mark.parametrize("key", ["", "../state/key", "/etc/passwd", "A" * 64, "a" * 63, name(1) + "\n", "é" * 64])
def test_what_can_be_no_key_is_not_stored(folder: Place, key: str) -> None:
    with folder.open() as store:
        assert store.find(key) is None
        assert not store.has_program(key)
        with store.lease(key), pytest.raises(NotStored):
            store.read(key, "report.json")
        with pytest.raises(InputError):
            store.program(key)


def test_names_are_no_paths(folder: Place) -> None:
    with folder.open() as store:
        store.put(name(1), FILES, {})
        for bad in ("../key", "report", "", "/etc/passwd", "report.json\0"):
            with pytest.raises(NotStored):
                store.read(name(1), bad)


def test_files_are_their_owners_alone(folder: Place) -> None:
    with folder.open() as store:
        store.put(name(1), FILES, {})
        store.put_program(b"x")
        with store.lease(name(1)):
            assert len(folder.files()) == 5
            assert {p.stat().st_mode & 0o077 for p in folder.files()} == {0}
            assert (folder.folder / "store").stat().st_mode & 0o077 == 0


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def nested(path: Path) -> None:
    path.write_bytes(b"[" * 100_000)


@pytest.mark.parametrize("reopened", [True, False])
@pytest.mark.parametrize("end", [".json", ".files"])
@pytest.mark.parametrize("harm", [flip, cut, empty, nested, Path.unlink])
def test_what_is_damaged_is_made_again(folder: Place, harm: object, end: str, reopened: bool) -> None:
    """In a running server, and in one that finds it so."""
    with folder.open() as store:
        store.put(name(1), FILES, {})
        program = store.put_program(b"HloModule m")
        assert store.find(name(1))
        for path in folder.files():
            if path.name.endswith(end):
                harm(path)  # type: ignore[operator]
        if not reopened:
            check_absent_then_made_again(folder, store, program)
    if reopened:
        with folder.open() as store:
            check_absent_then_made_again(folder, store, program)


def check_absent_then_made_again(folder: Place, store: Store, program: str) -> None:
    assert store.find(name(1)) is None
    assert not store.has_program(program)
    with pytest.raises(NotStored):
        store.read(name(1), "report.json")
    store._quota.rescan()
    assert store.statistics().bytes == 0
    entry = store.put(name(1), FILES, {})
    store.put_program(b"HloModule m")
    assert store.find(name(1)) == entry
    assert {n: store.read(name(1), n) for n in FILES} == FILES
    assert store.program(program) == b"HloModule m"


def test_damage_is_counted_and_removed(folder: Place) -> None:
    with folder.open() as store:
        store.put(name(1), FILES, {})
        flip(next(p for p in folder.files() if p.suffix == ".files"))
        assert store.find(name(1)) is None
        found = store.statistics()
        assert (found.damaged, found.bytes, found.entries) == (1, 0, 0)
        assert folder.files() == []


def test_damage_that_leaves_no_trace_is_found_when_read(folder: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that gives other bytes back does not change the time of a file."""
    monkeypatch.setattr("shardc.service.store.object_table._MEMORY", 0)
    with folder.open() as store:
        store.put(name(1), FILES, {})
        assert store.find(name(1))
        monkeypatch.setattr(StorageBackend, "version", lambda self, path: "the same")
        store.find(name(1))
        flip(next(p for p in folder.files() if p.suffix == ".files"))
        with pytest.raises(NotStored):
            store.read(name(1), "executable.shardc")
        assert store.find(name(1)) is None


def test_an_entry_of_another_key_is_not_trusted(place: Place) -> None:
    with place.open() as store, place.open(state="other", key=bytes(32)) as stranger:
        store.put(name(1), FILES, {})
        assert stranger.find(name(1)) is None
        stranger.put(name(1), {"report.json": b"theirs"}, {})
        assert store.read(name(1), "report.json") == FILES["report.json"]
        program = stranger.put_program(b"one for all")
        assert store.program(program) == b"one for all"


def test_a_forged_entry_is_not_trusted(folder: Place) -> None:
    """Whoever can write to the storage, but has no key, cannot change what a key stands for."""
    with folder.open() as store:
        one, other = store.put(name(1), FILES, {}), store.put(name(2), {"executable.shardc": b"evil"}, {})
        first, second = (next(p for p in folder.files() if p.name == f"{e.key}.json") for e in (one, other))
        forged = json.loads(second.read_text())
        forged["entry"]["key"] = one.key
        first.write_text(json.dumps(forged))
        next(p for p in folder.files() if p.name.startswith(other.key) and p.suffix == ".files").rename(
            first.with_name(f"{one.key}.{forged['token']}.files")
        )
        assert store.find(name(1)) is None
        assert store.statistics().damaged == 1


def test_a_manifest_leads_to_no_other_file(folder: Place) -> None:
    with folder.open() as store:
        store.put(name(1), FILES, {})
        path = next(p for p in folder.files() if p.suffix == ".json")
        manifest = json.loads(path.read_text())
        path.write_text(json.dumps({**manifest, "token": "/../../../../state/key"}))
        assert store.find(name(1)) is None


def test_the_index_is_made_again(folder: Place) -> None:
    with folder.open() as store:
        store.put(name(1), FILES, {})
        store.put_program(b"HloModule m")
        before = store.statistics().bytes
    (index,) = (folder.folder / "state").glob("*.sqlite")
    for harm in (Path.unlink, empty, flip, lambda path: path.write_bytes(b"no database" * 1000)):
        harm(index)
        with folder.open() as store:
            assert store.find(name(1))
            found = store.statistics()
            assert (found.entries, found.programs, found.bytes) == (1, 1, before)


def test_an_index_damaged_while_in_use_is_made_again(folder: Place) -> None:
    with folder.open() as store:
        store.put(name(1), FILES, {})
        (index,) = (folder.folder / "state").glob("*.sqlite")
        store._index._do(lambda c: c.execute("CREATE TABLE big AS SELECT zeroblob(100000)"))
        store._index._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        data = index.read_bytes()
        index.write_bytes(b"\xff" * len(data))
        store.put(name(2), FILES, {})
        assert store.find(name(1))
        assert store.find(name(2))
        store._quota.rescan()
        assert store.statistics().entries == 2


def test_an_index_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(EnvironmentProblem, match="--state"):
        Store(str(tmp_path / "store"), tmp_path / "state", 0, KEY)


def test_storage_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    with pytest.raises(EnvironmentProblem, match="the store cannot be opened"):
        Store(str(tmp_path / "store"), tmp_path / "state", 0, KEY)
    with pytest.raises(EnvironmentProblem) as caught:
        Store("nosuch://user:secret@host/path", tmp_path / "state", 0, KEY)
    assert "secret" not in str(caught.value)


def test_what_a_dead_writer_left_is_removed_in_time(folder: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with folder.open() as store:
        entry = store.put(name(1), FILES, {})
        whole = folder.files()
        table = whole[0].parent
        (table / f"{name(1)}.0123456789abcdef.files").write_bytes(b"of a slower server")
        (table / f".{name(1)}.json.x7_.part").write_bytes(b"half")
        (table / f"{name(2)}.0123456789abcdef.files").write_bytes(b"never finished")
        (table / f".{name(2)}.0123456789abcdef.files.abc.part").write_bytes(b"never finished")
        store._quota.rescan()
        assert len(folder.files()) == 6, "they may be somebody's who is writing"
        assert store.statistics().entries == 1
        monkeypatch.setattr("shardc.service.store.quota._LEFT_OVER", -1.0)
        with store.lease(name(2)):
            store._quota.rescan()
            assert len(folder.files()) == 5
        store._quota.rescan()
        assert folder.files() == whole
        assert store.find(name(1)) == entry


def test_writers_at_the_same_time_agree(folder: Place) -> None:
    """Two servers, many threads, the same program and the same entry: one of each, the first."""
    with folder.open() as one, folder.open(state="other") as other:
        entries: list[StoreEntry] = []
        start = threading.Barrier(16)

        def work(number: int) -> None:
            store = (one, other)[number % 2]
            start.wait(30)
            with store.lease(name(1)):
                entry = store.put(name(1), {"report.json": b"%d" % number}, {"n": number})
                assert store.find(name(1)) == entry
                assert store.read(name(1), "report.json") == b"%d" % entry.facts["n"]
            assert store.program(store.put_program(b"HloModule m" * 1000))
            entries.append(entry)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(entries) == 16
        assert all(entry == one.find(name(1)) == other.find(name(1)) for entry in entries)
        assert len(folder.files()) == 4


def test_storage_that_cannot_create_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Place("memory", tmp_path).open() as store:
        pipe = store._backend._fs.pipe_file

        def pipe_file(path: str, data: bytes, mode: str = "overwrite") -> None:
            if mode == "create":
                raise NotImplementedError
            pipe(path, data)

        monkeypatch.setattr(store._backend._fs, "pipe_file", pipe_file)
        entry = store.put(name(1), FILES, {})
        assert store.find(name(1)) == entry


FULL = """
import resource, signal, sys
from pathlib import Path
from shardc.hlo.errors import EnvironmentProblem
from shardc.service.store.store import Store
root = Path(sys.argv[1])
with Store(str(root / "store"), root / "state", 0, bytes(range(32))) as store:
    store.put("a" * 64, {"report.json": b"before"}, {})
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
    for attempt in (lambda: store.put("b" * 64, {"report.json": bytes(1_000_000)}, {}),
                    lambda: store.put_program(bytes(1_000_000))):
        try:
            attempt()
        except EnvironmentProblem as e:
            print(e.what)
    print(store.find("b" * 64), store.read("a" * 64, "report.json"), store.statistics().entries)
    print(store.put("c" * 64, {"report.json": b"after"}, {}).key[:3])
"""


def test_what_cannot_be_written_whole_is_not_there(folder: Place) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, folder.folder], capture_output=True, text=True, timeout=120, check=True
    )
    large = "the store cannot be written: File too large"
    assert done.stdout.splitlines() == [large, large, "None b'before' 1", "ccc"]
    assert sorted({re.split(r"[.]", p.name)[0][:3] for p in folder.files()}) == ["aaa", "ccc"]
    assert not [p for p in folder.folder.rglob("*") if p.suffix == ".part"]


def small_disk(place: Place, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the storage have room for ``size`` bytes."""

    @contextmanager
    def replacing(path: Path, mode: int | None = None) -> Iterator[IO[bytes]]:
        with files.replacing(path, mode) as file:
            yield file
            file.flush()
            if place.nbytes() > size:
                raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shardc.service.store.storage_backend.replacing", replacing)


def test_a_full_disk_costs_only_what_was_to_be_written(folder: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with folder.open(limit=10**9) as store:
        store.put(name(1), FILES, {})
        small_disk(folder, 20_000, monkeypatch)
        with store.lease(name(1)):
            before = folder.files()
            for attempt in (lambda: store.put(name(2), FILES, {}), lambda: store.put_program(bytes(30_000))):
                with pytest.raises(EnvironmentProblem, match="disk is full") as caught:
                    attempt()
                assert "--store-size" in (caught.value.fix or "")
                assert folder.files() == before
            assert {n: store.read(name(1), n) for n in FILES} == FILES
        assert store.statistics().entries == 1


def test_what_was_used_long_ago_gives_way_on_a_full_disk(folder: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with folder.open(limit=10**9) as store:
        for number in range(3):
            store.put(name(number), {"report.json": bytes(5_000)}, {})
        store.find(name(0))
        small_disk(folder, 18_000, monkeypatch)
        store.put(name(3), {"report.json": bytes(5_000)}, {})
        assert [n for n in range(4) if store.find(name(n))] == [0, 2, 3]
        with pytest.raises(EnvironmentProblem, match="disk is full"):
            store.put_program(bytes(20_000))
        assert [n for n in range(4) if store.find(name(n))] == [0, 2, 3], "that would not have helped"


WRITER = """
import sys
from pathlib import Path
from shardc.service.store.store import Store
root = Path(sys.argv[1])
with Store(str(root / "store"), root / "state", 400_000, bytes(range(32))) as store:
    print("open", flush=True)
    number = 0
    while True:
        key = f"{number % 40:064x}"
        with store.lease(key):
            store.put(key, {"report.json": b"%d" % (number % 40) * 9000, "other.json": b"x"}, {"n": number})
        number += 1
"""


def test_servers_that_are_killed_while_they_write_leave_nothing_half(folder: Place) -> None:
    """Two processes write, evict and are killed, a few times; what can be found afterwards is whole."""
    for turn in range(3):
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, folder.folder], stdout=subprocess.PIPE) for _ in range(2)
        ]
        try:
            for writer in writers:
                assert writer.stdout
                assert writer.stdout.readline() == b"open\n"
            time.sleep(0.3 + 0.2 * turn)
        finally:
            for writer in writers:
                writer.kill()
                writer.communicate()
        with folder.open(limit=0) as store:
            keys = [f"{number:064x}" for number in range(40)]
            found = [key for key in keys if store.find(key)]
            assert found, "nothing survived"
            for number, key in enumerate(keys):
                if key in found:
                    assert store.read(key, "report.json") == b"%d" % number * 9000
            assert store.statistics().damaged == 0


def test_storage_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(EnvironmentProblem, match="needs a package: Install s3fs"):
        StorageBackend("s3://bucket/prefix")
