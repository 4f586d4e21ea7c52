"""The passes of Shardy's tests, by the names in their RUN lines, and what stands for them here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

pytest.importorskip("jaxlib.mlir.ir")
pytest.importorskip("filecheck")

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.stablehlo.mlir.attach import attach
from shardc.hlo.stablehlo.mlir.bindings import Bindings
from shardc.hlo.stablehlo.mlir.extract import plain_form
from shardc.hlo.stablehlo.reader import module_from_plain
from shardc.hlo.stablehlo.writer import sharding_request
from shardc.sharding.propagate import propagate
from shardc.sharding.propagation.options import PropagationOptions
from shardc.sharding.propagation.propagate_once import PropagateOnce

PIPELINE = "sdy-propagation-pipeline"
#: One propagation pass -> the options that it stands for.
PASSES: Mapping[str, PropagationOptions] = {
    "sdy-basic-propagate": PropagationOptions(strategy="basic", by_user_priority=False, by_op_priority=False),
    "sdy-aggressive-propagate": PropagationOptions(by_user_priority=False, by_op_priority=False),
    "sdy-op-priority-propagate": PropagationOptions(by_user_priority=False),
    "sdy-user-priority-propagate": PropagationOptions(),
}
#: Passes that `PropagateOnce` does on the way, and those that leave shardings alone.
ON_THE_WAY = frozenset({"sdy-add-data-flow-edges", "sdy-sink-data-flow-edges", "sdy-populate-op-sharding-rules"})
#: Ops that act on something.
ACTING = frozenset({"sdy.data_flow_edge", "sdy.manual_computation", "sdy.named_computation"}).union(
    f"stablehlo.{n}" for n in ("after_all", "create_token", "infeed", "outfeed", "recv", "rng", "send")
)
_PASS = re.compile(r"""\s-{1,2}(sdy-[\w-]+)(?:=(["'])(.*?)\2)?""")


@dataclass(frozen=True)
class Run:
    """The passes of a RUN line, in order, with the options of each."""

    passes: Mapping[str, Mapping[str, str]]

    @staticmethod
    def of(text: str) -> Run:
        line = text.partition("\n")[0]
        found = {}
        for name, _, options in _PASS.findall(line):
            found[name] = dict(o.partition("=")[::2] for o in options.split())
        unknown = found.keys() - PASSES.keys() - ON_THE_WAY - {PIPELINE}
        if unknown:
            raise UnsupportedError(f"pass {min(unknown)}")
        return Run(found)


def after_passes(text: str) -> str:
    """A module after the passes of its RUN line, written by MLIR."""
    run = Run.of(text)
    bindings = Bindings()
    with bindings.context():
        try:
            parsed = bindings.ir.Module.parse(text)
        except bindings.ir.MLIRError as e:
            raise UnsupportedError(f"this jaxlib cannot read it: {e}") from None
        plain = plain_form(bindings, parsed)
        whole = PIPELINE in run.passes
        module, _ = module_from_plain(plain, "", every_function=True, inherit_results=whole)
        if whole:
            shared = run.passes[PIPELINE].get("dedup-functions-fully") == "true"
            options = PropagationOptions(share_functions=shared, strict_interface=True, every_function=True)
            outcome = propagate(module, options=options).outcome
            written, inserted = outcome.as_written(), outcome.added_constraints()
            request = sharding_request(
                plain,
                written,
                versions=outcome.versions(),
                inserted=inserted,
                as_reshards=True,
                rules={},
                every_function=True,
            )
        else:
            written, inserted, rules = refined(run, module)
            request = sharding_request(
                plain, written, closed=False, inserted=inserted, rules=rules, every_function=True
            )
        done = bindings.ir.Module.parse(attach(bindings, text.encode(), request))
        drop_unread(done.operation)
        if "sdy-user-priority-propagate" in run.passes:
            drop_result_priorities(bindings, done)
        # Shardy's import gives constants a form that nothing folds.
        return str(done).replace("stablehlo.constant", "sdy.constant") if whole else str(done)


def drop_result_priorities(bindings: Bindings, module: Any) -> None:
    """Take priorities away from functions' results: those of functions besides the entry are no part of propagation."""
    for function in module.body.operations:
        attributes = function.operation.attributes
        if "res_attrs" in attributes:
            text = re.sub(r"\}p\d+", "}", str(attributes["res_attrs"]))
            attributes["res_attrs"] = bindings.ir.Attribute.parse(text)


def drop_unread(operation: Any) -> None:
    """Take away what nobody reads and what does nothing else, as MLIR's rewriting does on the way."""
    for region in operation.regions:
        for block in region:
            for op in reversed([op.operation for op in block.operations]):
                drop_unread(op)
                if op.results and not any(list(r.uses) for r in op.results) and not acts(op):
                    op.erase()


def acts(operation: Any) -> bool:
    """Does an op do more than compute its results?"""
    name, attributes = operation.name, operation.attributes
    if name in ACTING or not name.startswith(("stablehlo.", "sdy.", "chlo.")):
        return True
    if name == "stablehlo.custom_call" and "has_side_effect" in attributes:
        return bool(attributes["has_side_effect"].value)
    return any(
        acts(op.operation) for region in operation.regions for block in region for op in list(block.operations)[:-1]
    )


def refined(run: Run, module: Module) -> tuple[Module, Mapping[str, Sharding], Mapping[str, str]]:
    """A module after single passes, the constraints that it needs besides its own, and the rules to be kept."""
    sunk = "sdy-add-data-flow-edges" in run.passes
    inserted: dict[str, Sharding] = {}
    rules: dict[str, str] = {}
    for name, given in run.passes.items():
        if name in PASSES:
            options = replace(PASSES[name], every_function=True)
            if given.get("conservative-propagation") == "true":
                options = replace(options, conservative=True)
            strategy = given.get("propagation-strategy")
            if strategy is not None:
                options = replace(options, strategy=strategy)
            outcome = PropagateOnce(options, "all" if sunk else "written").outcome(module)
            module = outcome.as_written(closed=False, edges_sunk=sunk)
            inserted |= outcome.added_constraints(closed=False)
            if given.get("keep-sharding-rules") == "true":
                rules |= outcome.rules()
    return module, inserted, rules
