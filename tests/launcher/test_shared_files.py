"""Files in shared memory that killed ranks leave are removed; those of others stay."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

import pytest

from shardc.launcher.jobs.shared_files import forget_shared_files, sweep_shared_files


def machine(tmp_path: Path) -> tuple[Path, Path]:
    """A folder of shared memory, and processes of which one has a file mapped."""
    folder, proc = tmp_path / "shm", tmp_path / "proc"
    folder.mkdir()
    (proc / "7").mkdir(parents=True)
    (proc / "self").mkdir()
    for name in ("mpich_shm_ab_0", "sm_segment.vm.0.1.0", "Intel_MPI_x", "mpich_shm_used_0", "psm_theirs", "mine"):
        (folder / name).write_bytes(b"x")
    (proc / "7" / "maps").write_text(f"7f00-7f01 rw-s 0000 00:01 5   {folder}/mpich_shm_used_0\n")
    return folder, proc


def test_sweeping(tmp_path: Path) -> None:
    folder, proc = machine(tmp_path)
    assert sweep_shared_files(time.time() + 60, folder, proc, 0) == []
    removed = sweep_shared_files(0, folder, proc, 0)
    assert sorted(p.name for p in removed) == ["Intel_MPI_x", "mpich_shm_ab_0", "sm_segment.vm.0.1.0"]
    assert sorted(p.name for p in folder.iterdir()) == ["mine", "mpich_shm_used_0", "psm_theirs"]
    assert sweep_shared_files(0, tmp_path / "none", proc, 0) == []


class Changing(type(Path())):  # type: ignore[misc]
    """Processes that have everything mapped at some looks, in turn."""

    looks: ClassVar[list[bool]] = []

    def glob(self, pattern: str) -> list[Path]:
        names = [str(p) for p in (self.parent / "shm").iterdir()] if self.looks and self.looks.pop(0) else []
        (Path(self) / "7" / "maps").write_text("\n".join(names))
        return list(Path(self).glob(pattern))


@pytest.mark.parametrize(
    ("looks", "removed"),
    [
        ([False] + 9 * [True], 0),  # a job that begins has its files a moment before it maps them
        (5 * [True], 4),  # ranks that are killed hold theirs for a while
        (10 * [True], 0),
    ],
)
def test_files_that_are_mapped_sooner_or_later(tmp_path: Path, looks: list[bool], removed: int) -> None:
    folder, proc = machine(tmp_path)
    changing = Changing(proc)
    Changing.looks = list(looks)
    assert len(sweep_shared_files(0, folder, changing, 0)) == removed


def test_forgetting(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 rw-s 0000 00:01 5  /dev/shm/other_file\n")
    assert forget_shared_files(maps) == []
    assert forget_shared_files(tmp_path / "none") == []
