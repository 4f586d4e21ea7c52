"""The audit, once more through the partitioner: any operation, any layouts of its operands and results.

Operands and results get random shardings over 2, 3, 4 and 2 x 2 devices (dimensions often do not divide); the
partitioned program, run on all of them, must give every device its part of the whole result.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from audit import Array, Case
from audit_cases import by_hand, elementwise, programs

from shardc.hlo.evaluate import evaluate_spmd
from shardc.hlo.ir.build import make_module
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.ir.types import Shape, tuple_shape
from shardc.hlo.text.printer import print_module
from shardc.partitioner.equivalence import scatter_array, shard_places
from shardc.partitioner.partition import partition
from shardc.sharding.propagate import propagate

pytest.importorskip("jaxlib")
MESHES = (Mesh({"x": 2}), Mesh({"x": 3}), Mesh({"x": 4}), Mesh({"x": 2, "y": 2}))


def layout(r: random.Random, mesh: Mesh, shape: Shape) -> Sharding:
    """Most axes on some dimension."""
    dims: list[tuple[AxisRef, ...]] = [()] * shape.rank
    for axis in mesh.axis_names:
        if shape.rank and r.random() < 0.7:
            d = r.randrange(shape.rank)
            dims[d] = (*dims[d], AxisRef(axis))
    return Sharding(mesh, tuple(map(DimSharding, dims)))


def annotated(case: Case, r: random.Random, mesh: Mesh) -> Module:
    """The operation alone, with layouts."""
    operands = [p.replace(sharding=layout(r, mesh, p.shape)) for p in case.op.operands]
    leaves = list(case.op.shape.leaves())
    op = case.op.replace(operands=operands)
    parts = [op]
    if op.shape.is_tuple:
        parts = [
            Instruction("get-tuple-element", s, (op,), {"index": k}, name=f"leaf{k}") for k, s in enumerate(leaves)
        ]
    wanted = tuple(layout(r, mesh, s) for s in leaves)
    root = Instruction("tuple", tuple_shape(*leaves), parts, sharding=wanted, name="root")
    body = dict.fromkeys((*operands, op, *parts, root))
    return make_module("m", Computation("main", body, root), mesh=mesh, num_partitions=mesh.size)


def close(got: Array, want: Array) -> bool:
    if want.dtype.kind not in "fc":
        return bool(np.array_equal(got, want))
    finite = np.abs(want[np.isfinite(want)])
    scale = max(1.0, float(finite.max(initial=0)))
    return bool(np.allclose(got, want, rtol=1e-3, atol=1e-3 * scale, equal_nan=True))


def mistakes(case: Case, module: Module) -> list[str]:
    """Devices whose part of a result is wrong."""
    arguments = [scatter_array(a, p.axis_sharding) for a, p in zip(case.operands, module.parameters, strict=True)]
    local = partition(propagate(module).module)
    results = evaluate_spmd(local, [list(column) for column in zip(*arguments, strict=True)])
    out = []
    for k, (whole, sharding) in enumerate(zip(case.results, module.entry.root.leaf_shardings(), strict=True)):
        for device, part in shard_places(sharding, whole.shape):
            want = whole[part]
            if not close(np.asarray(results[device][k])[tuple(slice(n) for n in want.shape)], want):
                out.append(f"result {k} on device {device}")
    return out


def _is_defined(case: Case) -> bool:
    """Random bits differ; a reduction without an identity may count its initial value as often as it likes."""
    if case.op.opcode == "reduce":
        return bool(case.rule.reduction)
    return case.op.opcode not in ("rng", "rng-bit-generator")


@pytest.mark.parametrize(("each", "layouts"), [(2, 1), pytest.param(60, 3, marks=pytest.mark.full)])
def test_partitioned_operations_equal_the_whole(
    each: int, layouts: int, record_property: Callable[[str, object], None]
) -> None:
    cases = [*programs(seed=3, each=each), *by_hand(), *elementwise()]
    wrong: list[str] = []
    count = 0
    for case in cases:
        if not isinstance(case, Case) or not case.operands or not _is_defined(case):
            continue
        r = random.Random(case.name)
        for _ in range(layouts):
            module = annotated(case, r, r.choice(MESHES))
            count += 1
            bad = mistakes(case, module)
            if bad:
                wrong.append(f"{case.name}: {', '.join(bad[:3])}\n{print_module(module)}{case.rule}")
    record_property("figure: audit of partitioned operations", f"{count:,} operations, {len(wrong)} wrong")
    assert not wrong, f"{len(wrong)} of {count}\n" + "\n".join(wrong[:5])
    assert count > 100
