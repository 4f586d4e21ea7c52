"""Programs that XLA has partitioned, as its dumps have them: recognised, left as they are, and run."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

import shardc
from shardc.analysis.verify import verify_program
from shardc.hlo.errors import InputError
from shardc.hlo.text.reader import read_hlo
from shardc.partitioner.prepare.adopt_partitioned import adopt, is_partitioned

SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}\n\n"
ROWS = "sharding={devices=[1,2,2]<=[4] last_tile_dim_replicate}"
COLUMNS = "sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}"
REDUCE = "all-reduce(d), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=sum"
#: A product whose contracted dimension lies over device bit 1, so that each part is summed over pairs of devices.
DUMP = (
    "HloModule m, num_partitions=4\n\n"
    + SUM
    + f"""ENTRY main_spmd {{
  x = f32[2,4] parameter(0), {ROWS.replace("2,2]<=[4]", "2,2]<=[2,2]T(1,0)")}
  w = f32[4,3] parameter(1), {COLUMNS.replace("1,2]<=[4]", "1,2]<=[2,2]T(1,0)")}
  b = f32[] parameter(2)
  d = f32[2,3] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  r = f32[2,3] {REDUCE}
  c = f32[2,3] broadcast(b), dimensions={{}}
  ROOT y = f32[2,3] add(r, c)
}}
"""
)


def test_a_dump_runs_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "m.txt"
    path.write_text(DUMP)
    program = shardc.load(path)
    with caplog.at_level(logging.WARNING, "shardc"):
        propagated = program.propagate()
    assert "already partitioned, for 4 devices" in caplog.text
    assert propagated.module is program.module and "given partitioned" in propagated.explain("d")[0]
    partitioned = propagated.partition()
    assert [c["op"] for c in partitioned.report()["collectives"]] == ["all-reduce"]
    r = np.random.default_rng(0)
    x, w = r.standard_normal((2, 8)).astype(np.float32), r.standard_normal((8, 3)).astype(np.float32)
    result = np.asarray(partitioned.compile()(x, w, np.float32(2)))
    assert result.shape == (8, 3)  # every device's part, one after another
    for part in result.reshape(4, 2, 3):
        np.testing.assert_allclose(part, x @ w + 2, rtol=1e-5)


def test_what_is_partitioned() -> None:
    assert is_partitioned(read_hlo(DUMP))
    assert is_partitioned(read_hlo(DUMP.replace("main_spmd", "main")))
    assert not is_partitioned(read_hlo(DUMP.replace("num_partitions=4", "num_partitions=1")))
    whole = DUMP.replace("main_spmd", "main")
    assert not is_partitioned(read_hlo(whole.replace(REDUCE, "tanh(d)")))
    assert not is_partitioned(
        read_hlo(whole.replace("ROOT y = f32[2,3] add(r, c)", f"ROOT y = f32[2,3] add(r, c), {ROWS}"))
    )
    module = adopt(read_hlo(DUMP))
    assert adopt(module) is module
    manual = "HloModule m, num_partitions=2\nENTRY e { ROOT x = f32[3] parameter(0), sharding={manual} }"
    assert [str(s) for s in adopt(read_hlo(manual)).attrs["global_parameters"]] == ["f32[6]"]


PAIRS = """HloModule m, num_partitions=2
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
wrapped { p = f32[4] parameter(0) ROOT g = f32[8] all-gather(p), dimensions={0}, OVER, channel_id=3, IDS }
rs { p = f32[8] parameter(0) ROOT g = f32[4] reduce-scatter(p), dimensions={0}, OVER, channel_id=7, IDS, to_apply=sum }
ENTRY main_spmd {
  x = f32[4] parameter(0), sharding={devices=[2]<=[2]}
  ars = f32[4] all-reduce-start(x), to_apply=sum, OVER, channel_id=1, IDS
  ard = f32[4] all-reduce-done(ars)
  ags = (f32[4], f32[8]) all-gather-start(x), dimensions={0}, OVER, channel_id=2, IDS
  agd = f32[8] all-gather-done(ags)
  as = ((f32[4]), f32[8], u32[]) async-start(x), calls=wrapped
  au = ((f32[4]), f32[8], u32[]) async-update(as)
  ad = f32[8] async-done(au)
  rss = ((f32[8]), f32[4], u32[]) reduce-scatter-start(ad), dimensions={0}, OVER, channel_id=8, IDS, to_apply=sum
  rsd = f32[4] reduce-scatter-done(rss)
  cps = (f32[4], f32[4], u32[], u32[]) collective-permute-start(x), source_target_pairs={{0,1},{1,0}}, channel_id=5
  cpd = f32[4] collective-permute-done(cps)
  cs = (f32[4], f32[4], u32[]) copy-start(cpd)
  cd = f32[4] copy-done(cs)
  sum1 = f32[8] add(agd, ad)
  s = f32[4] slice(sum1), slice={[0:4]}
  t = f32[4] add(ard, cd)
  u = f32[4] add(t, rsd)
  ROOT r = f32[4] add(s, u)
}
""".replace("OVER", "replica_groups={{0,1}}").replace("IDS", "use_global_device_ids=true")


def test_asynchronous_pairs_run(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(PAIRS)
    partitioned = shardc.load(path).partition()
    found = sorted(c["op"].removesuffix("-start") for c in partitioned.report()["collectives"])
    assert found == ["all-gather", "all-gather", "all-reduce", "collective-permute", "reduce-scatter"]
    x = np.arange(8, dtype=np.float32)
    a, b = x[:4], x[4:]
    want = [2 * a + (a + b) + b + 2 * a, 2 * a + (a + b) + a + 2 * b]
    np.testing.assert_array_equal(np.asarray(partitioned.compile()(x)), np.concatenate(want))


def test_there_is_nothing_to_verify(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(PAIRS)
    with pytest.raises(InputError, match="already partitioned"):
        verify_program(shardc.load(path))
