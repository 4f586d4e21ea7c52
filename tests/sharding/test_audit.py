"""The audit: for every op, running shards by the factor rule must equal running the whole.

Every factor that passes through or reduces is cut 2, 3 and 4 ways, evenly or not, and the shards are run by the
evaluator. There are a few random programs per operation, and many in the full run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from audit import Case, check, missing
from audit_cases import by_hand, elementwise, programs

from shardc.hlo.ir.opset import OPS
from shardc.sharding.rules import RULES
from shardc.sharding.rules.signature import FactorRow

pytest.importorskip("jaxlib")

#: Dimensions that could be sharded although our rules want them whole, by why they stay so.
KNOWN_MISSING = {
    "concatenate:": "one operand: nothing to do, and nobody writes it",
    "convolution:": "windows that tile the input (stride is size): moves nothing, but is kept as other windows",
    "reduce-window:": "windows that tile the input (stride is size): moves nothing, but is kept as other windows",
    "select-and-scatter:": "windows that tile the input (stride is size): moves nothing, but is kept as other windows",
}


@pytest.fixture(scope="module", params=[4, pytest.param(100, marks=pytest.mark.full)])
def cases(request: pytest.FixtureRequest) -> list[Case | str]:
    return [*elementwise(), *by_hand(), *programs(seed=7, each=request.param)]


def test_no_rule_is_wrong(cases: list[Case | str], record_property: Callable[[str, object], None]) -> None:
    placements = 0
    wrong: list[str] = []
    for case in cases:
        if isinstance(case, Case):
            count, bad = check(case)
            placements += count
            wrong += bad
    record_property("figure: audit of factor rules", f"{placements:,} placements, {len(wrong)} wrong")
    assert not wrong, f"{len(wrong)} of {placements}\n" + "\n".join(wrong[:20])
    assert placements > 1000


def test_every_op_with_a_rule_is_audited(cases: list[Case | str]) -> None:
    seen = {c.op.opcode for c in cases if isinstance(c, Case)}
    rules = {o for o, row in RULES.items() if isinstance(row, FactorRow)}
    left = {o for o in rules - seen if OPS[o].family != "collective"}  # those speak about devices
    assert left == {"constant", "iota", "rng", "rng-get-and-update-state"}, (
        "made from nothing: nothing to run on shards"
    )


def test_what_the_evaluator_does_not_know(cases: list[Case | str]) -> None:
    unknown = Counter(c.partition(":")[0] for c in cases if isinstance(c, str))
    targets = {"ApproxTopK", "Cholesky", "Eigh", "PartialReduce", "ProductOfElementaryHouseholderReflectors", "Qr"}
    others = {"LayoutConstraint", "X64SplitLow"}
    assert set(unknown) <= targets | others, unknown


def test_missing_rules(cases: list[Case | str]) -> None:
    """Prints what could be sharded but is not; each line must be known."""
    found = Counter(line for case in cases if isinstance(case, Case) for line in missing(case))
    rows = [(line, next((why for op, why in KNOWN_MISSING.items() if line.startswith(op)), "")) for line in found]
    width = max((len(line) for line, _ in rows), default=0)
    print("\n".join(f"{found[line]:5} x  {line:{width}}  {why or 'UNKNOWN'}" for line, why in sorted(rows)))
    assert all(why for _, why in rows), [line for line, why in rows if not why]
