"""What `shardc bench` says of a ragged exchange: the bytes of the rows that were sent, not of the padded arrays."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

#: Device d sends j rows of 512 bytes to device j: (0 + 1 + 2 + 3) * 512 bytes, of 65,536 in its data.
TEXT = """HloModule rows, num_partitions=4
ENTRY e {
  data = f32[128,128] parameter(0)
  zero = f32[] constant(0)
  output = f32[128,128] broadcast(zero), dimensions={}
  sizes = s32[4] iota(), iota_dimension=0
  four = s32[] constant(4)
  fours = s32[4] broadcast(four), dimensions={}
  id = u32[] partition-id()
  device = s32[] convert(id)
  mine = s32[4] broadcast(device), dimensions={}
  targets = s32[4] multiply(mine, fours)
  ROOT r = f32[128,128] ragged-all-to-all(data, output, sizes, sizes, targets, mine), replica_groups={{0,1,2,3}}
}
"""


@pytest.mark.parametrize("ranks", [[], pytest.param(["--ranks", "4"], marks=pytest.mark.mpi)])
def test_bytes_follow_the_sizes(ranks: list[str], tmp_path: Path) -> None:
    (tmp_path / "rows.hlo").write_text(TEXT)
    words = [sys.executable, "-m", "shardc", "bench", "rows.hlo", "--steps", "3", "--json", *ranks]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["communication"]["collectives"]
    assert (row["op"], row["times"], row["nbytes"]) == ("ragged-all-to-all", 1, 6 * 512)
