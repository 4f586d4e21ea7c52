"""The targets of custom calls that the compiler treats by name, and how users add their own.

Nothing here is global state: users' own calls are passed along explicitly. What other known targets mean is in
`shardc.hlo.transforms.known_custom_calls`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shardc.hlo.errors import InputError
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.units import kind_text

__all__ = [
    "CALLBACKS",
    "CHECKS",
    "DATA_FLOW_EDGE",
    "FUNCTION_EDGE",
    "GLOBAL_TO_LOCAL",
    "INSPECTION",
    "LOCAL_TO_GLOBAL",
    "MANUAL_AXES",
    "MARKERS",
    "PROPAGATION_BARRIER",
    "RESHARD",
    "SHARDING_GROUP",
    "SINK",
    "CustomCall",
    "CustomCalls",
    "Expand",
    "as_custom_calls",
    "has_manual_computation",
    "is_constraint",
]

#: A NumPy function: ``meaning(call, *operands)`` gives an array, or a tuple of them for several results.
Meaning = Callable[..., Any]
#: ``expand(builder, call, *operands)`` adds instructions and returns the result (a tuple for several results).
Expand = Callable[..., Instruction]


@dataclass(frozen=True, slots=True)
class CustomCall:
    """The implementation of a custom-call target, in at least one way.

    - ``evaluate(call, *operands)`` is its meaning in NumPy, for the evaluator: arrays in, an array (or a tuple of
      arrays) of exactly the call's shape out. ``call.attrs`` has its attributes.
    - ``expand(builder, call, *operands)`` writes it as other HLO instructions, for sharding and compiled code.
    - ``address`` is a C function for compiled code, called with row-major arrays by the call's ``api_version``.
      Original (and typed FFI, whose interface is not supported): ``void f(void* out, const void** in)``. Status
      returning: ``void f(void* out, const void** in, void* status)``. Unified: ``void f(void* out, const void** in,
      const char* opaque, size_t n, void* status)`` with the backend_config as ``opaque``. ``out`` is the result, or an
      array of addresses if the call returns a tuple. ``status`` is 64 zero bytes that are not read. The function must
      be safe to call from several threads.
    - ``keep`` holds what must live as long as the function: the library, a callback.
    - ``sharding_rule`` says which dimensions may be split, in Shardy's notation. Sizes may be left out, so that it fits
      calls of any size. Without one, all operands are whole.

    Raises `InputError` if ``evaluate``, ``expand`` and ``address`` are all missing.

    >>> call = shardc.CustomCall(evaluate=lambda call, x: 2 * x, sharding_rule="([i, j])->([i, j])")
    >>> call.evaluate(None, np.arange(3))
    array([0, 2, 4])
    """

    evaluate: Meaning | None = None
    expand: Expand | None = None
    address: int = 0
    keep: object = None
    sharding_rule: str = ""

    def __post_init__(self) -> None:
        if self.evaluate is None and self.expand is None and not self.address:
            raise InputError("the custom call defines no implementation", fix="give evaluate, expand or address")
        for name in ("evaluate", "expand"):
            given = getattr(self, name)
            if given is not None and not callable(given):
                raise InputError(f"{name} is {kind_text(given)}", where="CustomCall", fix="give a function")


CustomCalls = Mapping[str, CustomCall]


def as_custom_calls(given: object) -> dict[str, CustomCall]:
    """``given`` as a dict of its own; raises `InputError` unless it maps names of targets to `CustomCall`."""
    fix = 'write {"my_target": shardc.CustomCall(evaluate=function)}'
    if not isinstance(given, Mapping):
        raise InputError(f"custom calls must be a dict by target, not {kind_text(given)}", fix=fix)
    for target, call in given.items():
        if not isinstance(call, CustomCall) or not isinstance(target, str):
            what = f"the custom call {target!r} is {kind_text(call)}, not a shardc.CustomCall"
            raise InputError(what, where="custom_calls", fix=fix)
    return dict(given)


#: Shardy's markers, by the names that XLA gives them where it has one.
DATA_FLOW_EDGE = "xla.sdy.DataFlowEdge"
FUNCTION_EDGE = "xla.sdy.FuncDataFlowEdge"
GLOBAL_TO_LOCAL = "xla.sdy.GlobalToLocalShape"
LOCAL_TO_GLOBAL = "xla.sdy.LocalToGlobalShape"
#: Frontend attribute of the two calls above: the names of the axes, between commas.
MANUAL_AXES = "xla.sdy.manual_axes"
PROPAGATION_BARRIER = "xla.sdy.PropagationBarrier"
RESHARD = "xla.sdy.Reshard"
SHARDING_GROUP = "xla.sdy.ShardingGroup"

#: The border of manual computations, as Shardy and as GSPMD name it.
ENTER_MANUAL = frozenset({GLOBAL_TO_LOCAL, "SPMDFullToShardShape"})
LEAVE_MANUAL = frozenset({LOCAL_TO_GLOBAL, "SPMDShardToFullShape"})

#: Calls whose value is their operand.
MARKERS = frozenset(
    {
        "Sharding",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "annotate_device_placement",
        DATA_FLOW_EDGE,
        FUNCTION_EDGE,
        PROPAGATION_BARRIER,
        RESHARD,
        SHARDING_GROUP,
        "xla.sdy.FuncResultSharding",
        GLOBAL_TO_LOCAL,
        LOCAL_TO_GLOBAL,
        "LayoutConstraint",
        "ShardBarrierFrom",
        "ShardBarrierTo",
        "MoveToHost",
        "MoveToDevice",
        "PinToDevice",
    }
)
#: Calls of Python that compiled code stops for (`shardc.hlo.ir.callbacks`): with whole values, with each device's
#: shards.
CALLBACKS = ("xla_ffi_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback")
#: Calls that compare their operands and fail the run where they differ.
CHECKS = frozenset({"check.expect_eq", "check.expect_almost_eq", "check.expect_close"})


#: A call that asks for the sharding of its operand (``jax.debug.inspect_array_sharding``), by addresses in the process
#: that made the program.
INSPECTION = "InspectSharding"
#: A call that does nothing, so that its operand is computed (``jax.lax.dce_sink``).
SINK = "dce_sink"


def has_manual_computation(module: Module) -> bool:
    """Whether a part of a global program is written for the single device."""
    return any(i.attrs.get("custom_call_target") in ENTER_MANUAL | LEAVE_MANUAL for i in module.instructions())


def is_constraint(i: Instruction) -> bool:
    """A sharding constraint: the value lies like this, and what makes it may as well."""
    return i.opcode == "custom-call" and i.attrs.get("custom_call_target") == "Sharding"
