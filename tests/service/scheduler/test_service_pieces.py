"""Sweep orders in pieces, as their task has them: whoever assesses the candidates, the files are the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from shardc.analysis.sweep.result import SweepResult
from shardc.hlo.codec import plain
from shardc.hlo.errors import AnnotationError, InputError, RunError
from shardc.launcher.executors.problems import to_problem
from shardc.service.orders import SweepOrder, SweepSet, to_json
from shardc.service.workers import sweep_program
from shardc.service.workers.carry_out import carry_out_task
from shardc.service.workers.package import ORDER_FILE, pack, program_file, unpack
from shardc.service.workers.pieces import (
    PART_FILE,
    PIECE_FILE,
    PIECES_FILE,
    OrderPart,
    OrderPiece,
    PieceResult,
    Spent,
    WantedPieces,
)

LAYER = b"""HloModule layer
ENTRY e {
  x = f32[4096,1024] parameter(0)
  w = f32[1024,1024] parameter(1)
  ROOT y = f32[4096,1024] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
TWICE = LAYER.replace(b"4096", b"8192")
STABLEHLO = b"""module @layer {
  func.func public @main(%arg0: tensor<4096x1024xf32>, %arg1: tensor<1024x1024xf32>) -> tensor<4096x1024xf32> {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<4096x1024xf32>, tensor<1024x1024xf32>) -> tensor<4096x1024xf32>
    return %0 : tensor<4096x1024xf32>
  }
}
"""  # noqa: E501
SETS = (
    SweepSet(name="rows", annotations={"x": "data"}),
    SweepSet(name="columns", annotations={"x": "data", "w": "None,model"}),
    SweepSet(name="wrong", annotations={"v": "data"}),
)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing is known from other tests."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


MESH = {"data": 1, "model": 1}
MORE = {**MESH, "more": 1}


def order_of(**fields: Any) -> SweepOrder:
    given: dict[str, Any] = {"devices": (4, 8), "sets": SETS, "mesh": MESH}
    return SweepOrder(**{"program": digest(LAYER), "name": "layer.hlo", "machine": "h100-dgx", **given, **fields})


def ask(order: SweepOrder, part: OrderPart, *programs: bytes) -> tuple[dict[str, bytes], dict[str, Any]]:
    """What the task answers."""
    files = {ORDER_FILE: to_json(order).encode(), PART_FILE: plain.to_json(part).encode()}
    return unpack(carry_out_task(pack(files | {program_file(digest(p)): p for p in programs}, {}), lambda news: None))


def done(order: SweepOrder, piece: OrderPiece, *programs: bytes) -> PieceResult:
    """What a worker of another machine finds, which has the piece's program and no other."""
    needed = next(p for p in programs if digest(p) == piece.program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDC_CACHE_DIR", os.environ["SHARDC_CACHE_DIR"] + "-there")
        files, facts = ask(order, OrderPart(piece=piece.text), needed)
    return PieceResult(files[PIECE_FILE].decode(), spent=Spent(facts["seconds"], tuple(facts["warnings"])))


def rounds(order: SweepOrder, *programs: bytes) -> Iterator[WantedPieces]:
    """All that is asked for until the order is done; its files and facts at the end."""
    files, facts = ask(order, OrderPart(workers=3), *programs)
    found: dict[str, PieceResult] = {}
    while (wanted := WantedPieces.read_from(files)) is not None:
        yield wanted
        found |= {p.text: done(order, p, *programs) for p in reversed(wanted.pieces)}
        files, facts = ask(order, OrderPart(notes=wanted.notes, found=found, spent=wanted.spent))
    return files, facts


def together(order: SweepOrder, *programs: bytes) -> tuple[list[WantedPieces], dict[str, bytes], Mapping[str, Any]]:
    asked, going = [], rounds(order, *programs)
    while True:
        try:
            asked.append(next(going))
        except StopIteration as e:
            return asked, *e.value


@pytest.mark.parametrize(
    ("order", "programs"),
    [
        (order_of(), [LAYER]),
        (order_of(refine=0, uneven=True, mapping="search"), [LAYER]),
        (order_of(devices=(16, 64), limit=3, refine=1, mesh=MORE, axes={"more": "1..4"}), [LAYER]),
        (order_of(programs=(digest(LAYER), digest(TWICE))), [LAYER, TWICE]),
        (order_of(sets=(), annotations={"x": "data"}, devices=(2, 4, 8, 16, 32)), [LAYER]),
    ],
)
def test_pieces_and_one_worker_make_the_same_bytes(
    order: SweepOrder, programs: list[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    asked, files, _ = together(order, *programs)
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path_factory.mktemp("other")))
    assert files == ask(order, OrderPart(), *programs)[0]
    assert [p.done for p in asked] == sorted(p.done for p in asked)
    assert {p.of for p in asked} == {asked[0].of}
    texts = [piece.text for wanted in asked for piece in wanted.pieces]
    assert len(texts) == len(set(texts)) >= 4
    assert {piece.program for wanted in asked for piece in wanted.pieces} == {digest(p) for p in programs}


def test_many_pieces_are_asked_for_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_program, "_MOST_PIECES", 7)
    asked, files, _ = together(order_of(), LAYER)
    assert [len(wanted.pieces) for wanted in asked] == [7, 7, 7, 4]
    assert [wanted.done for wanted in asked] == [0, 7, 14, 21]
    assert files == ask(order_of(), OrderPart(), LAYER)[0]


def test_all_warnings_are_in_the_facts() -> None:
    """Those of reading too, in each order, though a worker reads a program once for all candidates."""
    pytest.importorskip("jaxlib")
    measured = json.dumps({"format": 1, "programs": {"k": {"name": "another", "seconds": {}}}})
    heard = []
    for devices in ((4, 8), (4, 16)):
        sets = (SweepSet(name="rows", annotations={"arg0": "data"}),)
        order = order_of(measured=measured, program=digest(STABLEHLO), sets=sets, devices=devices)
        asked, _, facts = together(order, STABLEHLO)
        assert asked
        heard.append(facts["warnings"])
    reading, times = heard[0]
    assert reading.startswith("layer.hlo has no source locations")
    assert times.startswith("measured.json has no times of this program")
    assert heard[1] == heard[0]


def test_what_earlier_sweeps_found_is_not_asked_for_again() -> None:
    small, large = order_of(devices=(8,)), order_of(devices=(8, 16))
    before, _, _ = together(small, LAYER)
    asked, files, _ = together(large, LAYER)
    known = {piece.text for wanted in before for piece in wanted.pieces}
    assert not known & {piece.text for wanted in asked for piece in wanted.pieces}
    assert asked[0].done >= 12
    again, same, _ = together(large, LAYER)
    assert (again, same) == ([], files)


def test_what_was_found_before_the_server_went_down_is_known() -> None:
    order = order_of()
    wanted = WantedPieces.read_from(ask(order, OrderPart(workers=2), LAYER)[0])
    assert wanted is not None
    for piece in wanted.pieces[:5]:
        ask(order, OrderPart(piece=piece.text), LAYER)
    again = WantedPieces.read_from(ask(order, OrderPart(workers=2), LAYER)[0])
    assert again is not None
    assert again.pieces == wanted.pieces[5:]
    assert (again.done, again.of) == (5, wanted.of)


def test_another_worker_may_know_nothing_of_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Workers are on several machines: then outcomes are asked for that another one had in its cache."""
    together(order_of(devices=(8,)), LAYER)
    going = rounds(order_of(), LAYER)
    first = next(going)
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path_factory.mktemp("elsewhere")))
    second = next(going)
    assert first.done > 0
    assert {len(p.pieces) for p in (first, second)} == {9, 12}


def test_few_candidates_and_one_worker_need_no_pieces() -> None:
    assert list(ask(order_of(), OrderPart(workers=2), LAYER)[0]) == [PIECES_FILE]
    assert "sweep.json" in ask(order_of(devices=(4,), sets=SETS[:1]), OrderPart(workers=8), LAYER)[0]
    assert "sweep.json" in ask(order_of(), OrderPart(workers=1), LAYER)[0]


def test_a_candidate_whose_worker_failed_is_a_failed_one_and_not_kept() -> None:
    order = order_of(refine=0)
    files, _ = ask(order, OrderPart(workers=2), LAYER)
    wanted = WantedPieces.read_from(files)
    assert wanted is not None
    crash = PieceResult(problem=to_problem(RunError("the process crashed", where="its last output: oh")))
    last, *others = wanted.pieces[::-1]
    found = {p.text: done(order, p, LAYER) for p in others} | {last.text: crash}
    files, _ = ask(order, OrderPart(notes=wanted.notes, found=found))
    result = plain.from_json(SweepResult, files["sweep.json"])
    assert "the process crashed (its last output: oh)" in [o.reason for o in result.failed]
    asked, _, _ = together(order, LAYER)
    assert [piece.text for p in asked for piece in p.pieces] == [last.text]


def test_seconds_of_all_workers_are_in_the_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    order = order_of()
    files, facts = ask(order, OrderPart(workers=2), LAYER)
    wanted = WantedPieces.read_from(files)
    assert wanted is not None
    assert (facts, list(wanted.spent.seconds)) == ({}, ["read", "sweep"])
    found = {p.text: replace(done(order, p, LAYER), spent=Spent({"sweep": 10.0}, ("oh", "ah"))) for p in wanted.pieces}
    files, facts = ask(order, OrderPart(notes=wanted.notes, found=found, spent=Spent({"read": 1.0}, ("ah",))))
    second = WantedPieces.read_from(files)
    assert second is not None
    assert second.spent.seconds["read"] == 1.0
    assert second.spent.seconds["sweep"] < 10
    found |= {p.text: done(order, p, LAYER) for p in second.pieces}
    _, facts = ask(order, OrderPart(notes=second.notes, found=found, spent=second.spent))
    assert facts["seconds"]["sweep"] > 10.0 * len(wanted.pieces)
    assert facts["warnings"] == ("ah", "oh")


def test_what_is_wrong_with_an_order_is_told_before_its_pieces() -> None:
    with pytest.raises(AnnotationError, match="two annotation sets are called 'rows'"):
        ask(order_of(sets=(*SETS, SETS[0])), OrderPart(workers=4), LAYER)
    with pytest.raises(InputError, match="the number of devices is missing"):
        ask(order_of(devices=(), mesh={}), OrderPart(workers=4), LAYER)
    with pytest.raises(InputError, match="2 programs were given for 1 numbers of devices"):
        ask(order_of(devices=(4,), programs=(digest(LAYER), digest(TWICE))), OrderPart(workers=4), LAYER, TWICE)
    with pytest.raises(InputError, match="piece"):
        ask(order_of(), OrderPart(piece="{}"), LAYER)
    with pytest.raises(RunError, match="is missing from the order"):
        ask(order_of(), OrderPart(workers=4), TWICE)


def test_damaged_pieces_are_told() -> None:
    with pytest.raises(RunError, match="a worker's message is damaged"):
        WantedPieces.read_from({PIECES_FILE: b'{"pieces": 3}'})
    assert WantedPieces.read_from({"sweep.json": b""}) is None
