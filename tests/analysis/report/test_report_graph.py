"""The graph of a report: its edges are the program's, its collectives all there, layouts as propagated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from shardc.analysis.report import graph
from shardc.analysis.report.gather import report_data
from shardc.stages.stages import Partitioned
from tests.analysis.report.test_report_structure import LOOP


def drawn(partitioned: Partitioned) -> tuple[list[dict[str, Any]], list[tuple[str, str, str]]]:
    """Nodes, and edges by the names of their ends."""
    data = report_data(partitioned, explanation=partitioned.explanation())
    text = data["strings"]
    keys = ("title", "kind", "opcode", "name", "source", "shape")
    nodes = [
        {"path": [text[n] for n in row[0]], **dict(zip(keys, (text[n] for n in row[1:7]), strict=True)), "many": row[7]}
        for row in data["graph"]["nodes"]
    ]
    return nodes, [(nodes[a]["name"], nodes[b]["name"], text[layout]) for a, b, layout in data["graph"]["edges"]]


def product() -> Partitioned:
    program = shardc.trace(lambda x, w: np.tanh(x @ w), np.zeros((8, 16), np.float32), np.zeros((16, 4), np.float32))
    return program.annotate({"x": P(None, "a"), "w": P("a")}, mesh=Mesh({"a": 4})).propagate().partition()


def test_a_partial_value_goes_into_its_collective_and_a_whole_one_leaves_it() -> None:
    nodes, edges = drawn(product())
    kinds = {node["name"]: node["kind"] for node in nodes}
    (move,) = (name for name, kind in kinds.items() if kind == "collective")
    ((into, layout),) = ((a, text) for a, b, text in edges if b == move)
    assert kinds[into] == "operation" and layout == "[{}, {}] unreduced={a}"
    ((out, layout),) = ((b, text) for a, b, text in edges if a == move)
    assert layout == "[{}, {}]" and kinds[out] == "operation"
    assert {a: text for a, b, text in edges if kinds[a] == "argument"} == {
        node["name"]: {"x": "[{}, {a}]", "w": "[{a}, {}]"}[node["title"]]
        for node in nodes
        if node["kind"] == "argument"
    }


def test_a_loop_carries_its_state(tmp_path: Path) -> None:
    (tmp_path / "looped.hlo").write_text(LOOP)
    partitioned = shardc.load(tmp_path / "looped.hlo").propagate().partition()
    nodes, edges = drawn(partitioned)
    by_name = {node["name"]: node for node in nodes}
    (state,) = (node for node in nodes if node["kind"] == "loop")
    (dot,) = (node for node in nodes if node["opcode"] == "dot")
    assert dot["path"] == ["f", "loop loop, 5 iterations", "l"] and state["path"] == dot["path"][:2]
    ends = {(a, b) for a, b, _ in edges}
    assert (dot["name"], state["name"]) in ends  # the body's result is the next state
    (argument,) = (node["name"] for node in nodes if node["kind"] == "argument")
    assert (argument, state["name"]) in ends
    (negate,) = (node["name"] for node in nodes if node["opcode"] == "negate")
    assert (state["name"], negate) in ends
    moved = {c["name"] for c in partitioned.report()["collectives"]}
    assert moved == {name for name, node in by_name.items() if node["kind"] == "collective"}


def test_edges_are_those_of_the_program() -> None:
    partitioned = shardc.load(Path(shardc.__file__).parent / "demo" / "step.hlo").propagate().partition()
    nodes, edges = drawn(partitioned)
    known = {node["name"] for node in nodes}
    direct = {
        (o.name, i.name)
        for i in partitioned.module.entry
        for o in i.operands
        if o.name in known and i.name in known and i.opcode not in ("tuple", "get-tuple-element")
    }
    assert direct <= {(a, b) for a, b, _ in edges} and len(direct) > 300
    named = sum(1 for _, _, layout in edges if layout)
    assert named > 0.7 * len(edges)


def test_large_graphs_have_a_node_for_each_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    partitioned = product()
    nodes, _ = drawn(partitioned)
    monkeypatch.setattr(graph, "_MOST", 1)
    folded, edges = drawn(partitioned)
    assert sum(node["many"] for node in folded) == sum(node["many"] for node in nodes) and len(folded) < len(nodes)
    assert [node["kind"] for node in folded].count("collective") == 1
    assert all(a != b for a, b, _ in edges)
