"""Joining clusters keeps a topological order, and is refused exactly where a cycle would arise."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.compiler.lower.fuse.cluster_order import Cluster, ClusterOrder
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Instruction, users_of
from shardc.hlo.ir.types import array_shape


def readers(order: ClusterOrder, users: dict[Instruction, list[Instruction]], c: Cluster) -> set[Cluster]:
    return {order.of[u] for m in c.members for u in users[m] if order.of[u] is not c}


def between(order: ClusterOrder, users: dict[Instruction, list[Instruction]], a: Cluster, b: Cluster) -> bool:
    """Is there a way from one to the other through a third?"""
    for start, goal in ((a, b), (b, a)):
        stack, seen = [c for c in readers(order, users, start) if c is not goal], set()
        while stack:
            c = stack.pop()
            if c is goal:
                return True
            if c not in seen:
                seen.add(c)
                stack.extend(readers(order, users, c))
    return False


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.data())
def test_joins(data: st.DataObject) -> None:
    b = Builder("main")
    values = [b.parameter(array_shape("f32", 2))]
    for _ in range(data.draw(st.integers(3, 14))):
        pick = st.sampled_from(values)
        values.append(b.add("add", data.draw(pick), data.draw(pick)))
    users = users_of(b.build())
    order = ClusterOrder([[v] for v in values], users, data.draw(st.sampled_from((3, 100))))
    for _ in range(data.draw(st.integers(1, 8))):
        x, y = (order.of[data.draw(st.sampled_from(values))] for _ in range(2))
        if x is y:
            continue
        far, cyclic = abs(x.position - y.position) > order.window, between(order, users, x, y)
        assert order.join(x, y) == (not far and not cyclic)
        position = {c: n for n, c in enumerate(order)}
        assert sum(len(c.members) for c in position) == len(values)
        assert all(position[c] < position[r] for c in position for r in readers(order, users, c))
