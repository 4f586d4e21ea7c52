"""Hosts of a job: notations, who runs where, and what each launcher is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.hlo.errors import InputError
from shardc.launcher.jobs.hosts import Host, parse_hosts, place_ranks, read_hostfile
from shardc.launcher.jobs.launchers import FAMILIES


def test_inline() -> None:
    assert parse_hosts("a:2, node-3.cluster") == (Host("a", 2), Host("node-3.cluster"))
    assert parse_hosts("a,b:2,a") == (Host("a", 2), Host("b", 2))


@pytest.mark.parametrize("text", ["", "a:", "a:x", "a:0", "a,,b", "a b", "-x"])
def test_not_hosts(text: str) -> None:
    with pytest.raises(InputError, match="is not a host"):
        parse_hosts(text)


def test_hostfiles_of_all_launchers(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# ours\n\na:2   # two\nb slots=4 max_slots=8\n c\n  d\tcpu=3\n")
    assert read_hostfile(path) == (Host("a", 2), Host("b", 4), Host("c"), Host("d", 3))
    path.write_text("a\na\nb\n")  # Slurm's and PBS's way
    assert read_hostfile(path) == (Host("a", 2), Host("b", 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\nb c d\n", "'b c d' is not a host"),
        ("#\n", "names no host"),
        ("a slots=two\n", "slots=two is not a number of ranks"),
        ("a slots=0\n", "slots=0 is not a number of ranks"),
        ("a slot=2\n", r"a host has no key 'slot'[^?]* did you mean slots\?"),
    ],
)
def test_bad_hostfiles(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as failure:
        read_hostfile(path)
    assert str(path) in str(failure.value)
    with pytest.raises(InputError, match="there is no hostfile"):
        read_hostfile(tmp_path / "none")


def test_places() -> None:
    assert place_ranks((), 4) == ()
    assert place_ranks(parse_hosts("a:2,b:2"), 3) == (Host("a", 2), Host("b", 1))
    assert place_ranks(parse_hosts("a:4,b:2"), 3) == (Host("a", 3),)
    assert place_ranks(parse_hosts("a,b,c"), 7) == (Host("a", 3), Host("b", 2), Host("c", 2))
    assert place_ranks(parse_hosts("a:1,b,c"), 5) == (Host("a", 1), Host("b", 2), Host("c", 2))
    with pytest.raises(InputError, match="5 ranks need more than the 4 slots of a:2, b:2"):
        place_ranks(parse_hosts("a:2,b:2"), 5)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(1, 20))
def test_every_rank_has_one_place(slots: list[int], ranks: int) -> None:
    hosts = [Host(f"h{i}", n) for i, n in enumerate(slots)]
    if all(slots) and sum(slots) < ranks:
        with pytest.raises(InputError):
            place_ranks(hosts, ranks)
        return
    found = place_ranks(hosts, ranks)
    assert sum(h.slots for h in found) == ranks
    assert all(0 < h.slots <= (dict(zip((x.name for x in hosts), slots, strict=True))[h.name] or ranks) for h in found)


def test_what_launchers_are_told(tmp_path: Path) -> None:
    hosts = parse_hosts("a:2,b:1")
    assert FAMILIES["mpich"].placing(hosts, tmp_path) == ["-hosts", "a:2,b:1"]
    assert FAMILIES["openmpi"].placing(hosts, tmp_path) == ["--host", "a:2,b:1"]
    assert FAMILIES["intel"].placing(hosts, tmp_path) == ["-machinefile", str(tmp_path / "machines")]
    assert (tmp_path / "machines").read_text() == "a:2\nb:1\n"
    assert all(not f.placing((), tmp_path) for f in FAMILIES.values())
    environ = {"SHARDC_TIMEOUT": "5", "HOME": "/root", "PATH": "/bin", "JAX_PLATFORMS": "cpu"}
    assert FAMILIES["mpich"].exporting(environ) == []
    assert FAMILIES["openmpi"].exporting(environ) == ["-x", "JAX_PLATFORMS", "-x", "PATH", "-x", "SHARDC_TIMEOUT"]
