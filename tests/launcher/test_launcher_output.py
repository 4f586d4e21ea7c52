"""Marked output of launchers becomes whole lines, whatever the chunks in which it comes."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.launcher.jobs.launcher_output import LauncherOutput, OutputByRank

HYDRA = b"\x1e0\x1fa\x1e1\x1fb\n\x1e0\x1fc\nlauncher\n\x1e11\x1fend\x1e0\x1flast"
OPEN_MPI = b"[1,0]<stdout>: ac\n[1,1]<stdout>:b\nlauncher\n[1,11]<stdout>: end[1,0]<stdout>: last"
LINES = {
    "mpich": [b"[1] b\n", b"[0] ac\n", b"launcher\n", b"[0] last\n", b"[11] end\n"],
    "openmpi": [b"[0] ac\n", b"[1] b\n", b"launcher\n", b"[0] last\n", b"[11] end\n"],
}


@pytest.mark.parametrize(("kind", "stream"), [("mpich", HYDRA), ("openmpi", OPEN_MPI)])
def test_lines(kind: str, stream: bytes) -> None:
    for size in range(1, len(stream) + 1):
        chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert list(OutputByRank(kind).lines(chunks)) == LINES[kind]


def test_without_numbers() -> None:
    assert b"".join(OutputByRank("intel", numbered=False).lines([HYDRA])) == b"b\nac\nlauncher\nlast\nend\n"


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(min_size=1).filter(lambda b: not {30, 31} & set(b)))))
def test_no_byte_is_lost_and_no_line_is_mixed(writes: list[tuple[int, bytes]]) -> None:
    """Hydra marks each chunk, and again behind each end of line."""
    stream, told = b"", dict.fromkeys(range(4), b"")
    for rank, text in writes:
        stream += b"".join(b"\x1e%d\x1f%s" % (rank, part) for part in text.splitlines(keepends=True))
        told[rank] += text
    found = dict.fromkeys(range(4), b"")
    for line in OutputByRank("mpich").lines([stream]):
        assert line.endswith(b"\n")
        found[int(line[1:2])] += line[4:]
    for rank, text in told.items():
        assert found[rank] == text + (b"\n" if text and not text.endswith(b"\n") else b"")


ABORTS = {
    "mpich": "Abort(7) on node 2 (rank 2 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) - process 2\n",
    "openmpi": "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\n",
    "nobody": "Abort(1) on node 2 (rank 2 in comm 0): Fatal error in internal_Init: Other MPI error\n",
}


@pytest.mark.parametrize("by_rank", [False, True])
@pytest.mark.parametrize("kind", list(ABORTS))
def test_who_aborted(kind: str, by_rank: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """MPI's line is passed on, and found in whatever pieces it comes, between other output."""
    text = "begun\n" + ABORTS[kind] + "x" * 500
    script = f"import os\nfor c in {text!r}: os.write(2, c.encode())\nprint('out', flush=True)"
    output = LauncherOutput(kind, by_rank=by_rank)
    assert output.start([sys.executable, "-c", script], os.environ).wait(60) == 0
    output.join(60)
    assert output.aborted == (kind != "nobody")
    assert capfd.readouterr() == ("out\n", text + ("\n" if by_rank else ""))
