"""Sends and receives on virtual devices against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.compiler.lower.expand.pair_transfers import PairTransfers
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.evaluate import evaluate_spmd
from shardc.hlo.text.reader import read_hlo
from shardc.stages.stages import Program

DEVICES = 4


def check(text: str, *args: np.ndarray) -> None:
    """``args`` hold the devices' parts one after the other, results too."""
    module = read_hlo(text)
    parts = [np.split(a, DEVICES) for a in args]
    wanted = evaluate_spmd(module, list(zip(*parts, strict=True)))
    got = Program(module).compile("cpu")(*args)
    for n, result in enumerate(got if isinstance(got, list | tuple) else [got]):
        np.testing.assert_array_equal(np.asarray(result), np.concatenate([device[n] for device in wanted]))


RING = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2},{2,3}}"}'
LINK = f"""HloModule m, num_partitions={DEVICES}
ENTRY e {{
  x = f32[2] parameter(0)
  start = token[] after-all()
  recv = (f32[2], u32[], token[]) recv(start), channel_id=3, {RING}
  twice = f32[2] add(x, x)
  send = (f32[2], u32[], token[]) send(twice, start), channel_id=3, {RING}
  sent = token[] send-done(send), channel_id=3, {RING}
  received = (f32[2], token[]) recv-done(recv), channel_id=3, {RING}
  y = f32[2] get-tuple-element(received), index=0
  ROOT z = f32[2] add(x, y)
}}"""


def test_a_recv_before_its_send() -> None:
    check(LINK, np.arange(8, dtype=np.float32))


def test_transfers_without_a_partner() -> None:
    other = RING.replace("{2,3}", "{2,0}")
    lonely = LINK.replace(f"send(twice, start), channel_id=3, {RING}", f"send(twice, start), channel_id=3, {other}")
    with pytest.raises(UnsupportedError, match="no partner"):
        PairTransfers().run(read_hlo(lonely))
    with pytest.raises(UnsupportedError, match="host"):
        PairTransfers().run(read_hlo(LINK.replace(f", {RING}", "")))


def test_what_is_sent_depends_on_what_is_received() -> None:
    knot = LINK.replace("twice = f32[2] add(x, x)", "").replace("send(twice, start)", "send(y, start)")
    lines = knot.split("\n")
    at = next(k for k, line in enumerate(lines) if " send(" in line)
    received = [line for line in lines if "recv-done" in line or "get-tuple-element" in line]
    lines = [line for line in lines[:at] if line.strip()] + received + [x for x in lines[at:] if x not in received]
    with pytest.raises(UnsupportedError, match="waits for itself"):
        PairTransfers().run(read_hlo("\n".join(lines)))
