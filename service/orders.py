"""Orders: what a client asks of the service, as plain data with limits in the types.

An order names its program by content (the SHA-256 of the uploaded bytes) and says everything else that its result
depends on; so equal orders have equal results, and `order_key` names both. No field is a path: machines are names or
the text of a description, measured times are text. The same classes are the description of the HTTP interface.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, Literal

from shardc.hlo.codec import plain
from shardc.hlo.config import CodeSettings
from shardc.hlo.errors import InputError
from shardc.partitioner.options import DEFAULT_PLAN, Choice, Plan
from shardc.service.bounds import Between, Closed, Digest, Flag, Line, Most, Text

__all__ = [
    "ORDERS",
    "AutoOrder",
    "CompileOrder",
    "Cpu",
    "ExplainOrder",
    "InspectOrder",
    "Order",
    "PartitionOrder",
    "ReportOrder",
    "Settings",
    "SimulateOrder",
    "SweepOrder",
    "SweepSet",
    "checked_order",
    "from_json",
    "order_key",
    "order_of",
    "resolve_order",
    "to_json",
]

#: pydantic, like our codec, refuses fields that are not there.
_CONFIG: Mapping[str, Any] = {"extra": "forbid"}

Name = Annotated[str, Text(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,200}", "one line of 1 to 200 characters")]
Symbol = Annotated[str, Text(r"(?:[A-Za-z_][A-Za-z0-9_]*)?", "a name in C"), Most(200)]
Axis = Annotated[str, Text(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029=,]{1,200}", "an axis' name")]
Specs = Annotated[Mapping[Line, Line], Most(10_000), Closed()]
Mesh = Annotated[Mapping[Axis, Annotated[int, Between(1, 2**24)]], Most(16), Closed()]
Devices = Annotated[int, Between(1, 2**24)]
Seconds = Annotated[float, Between(0.0, 3600.0)]
Count = Annotated[int, Between(0, 1000)]

Thresholds = Annotated[Mapping[Line, Annotated[float, Between(0.0, 1e6)]], Most(20), Closed()]

#: A machine's name, with or without devices and where mesh axes lie. No path: it has no slashes before the @, and does
#: not begin with a dot.
MachineName = Annotated[
    str,
    Text(
        r"(?:[A-Za-z0-9_-][A-Za-z0-9_.-]*(?::[0-9]{1,9}(?:x[0-9]{1,9}){0,3})?(?:@[A-Za-z0-9_.,=+-]+)?)?",
        "a machine's name",
    ),
    Most(500),
]
Mapped = Annotated[str, Text(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]*", "a mapping of axes"), Most(1000)]
Target = Annotated[str, Text(r"cpu|cuda-emulated(?::[a-z0-9_]+)?|cuda:[a-z0-9_]+", "a target"), Most(40)]

#: Sizes that an axis may have: one, several, or a range such as ``8..``.
Sizes = (
    Annotated[int, Between(1, 2**24)]
    | Annotated[str, Text(r"[0-9. ]*", "a range of sizes"), Most(40)]
    | Annotated[tuple[Devices, ...], Most(64)]
)
Axes = Annotated[Mapping[Axis, Sizes], Most(16), Closed()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(CodeSettings):
    """The client's own settings that generated code and schedules depend on, see `shardc.hlo.config.Config`.

    >>> Settings(overlap="never").deterministic
    True
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _CONFIG

    overlap: Choice = "auto"
    overlap_memory: Annotated[float, Between(1.0, 100.0)] = 1.1
    spare_cores: Flag = False
    tf32: Flag = False
    deterministic: Flag = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What all orders say.

    ``program`` is the SHA-256 of the uploaded bytes in hexadecimal, ``name`` what errors call it (never opened).
    ``mesh`` are axes and sizes, outermost first, and ``annotations`` specs by name, both as on the command line.
    ``machine`` is a name with or without devices (``h100-dgx:64``), or empty. With ``machine_text``, a description
    (TOML), it is the name of that machine. ``partitioned_for`` says what collectives minimise: the modelled time on the
    ``machine``, or the ``bytes`` sent. ``plan`` chooses how layouts inside the program are found. ``memory`` is the
    limit of the plan in bytes per device (0: the memory without a plan). ``measured`` is the text of a file of measured
    times.

    >>> service.submit(PartitionOrder(program=digest, mesh={"data": 2, "model": 2})).kind
    'partition'
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _CONFIG

    program: Digest
    name: Line = "program"
    mesh: Mesh = field(default_factory=dict)
    annotations: Specs = field(default_factory=dict)
    conservative: Flag = False
    machine: MachineName = ""
    machine_text: Annotated[str, Most(200_000)] = ""
    measured: Annotated[str, Most(2_000_000)] = ""
    partitioned_for: Literal["machine", "bytes"] = "machine"
    windowed_einsum: Choice = "auto"
    pipelined_loops: Choice = "auto"
    decomposed_rings: Flag = False
    plan: Plan = DEFAULT_PLAN
    memory: Annotated[float, Between(0.0, 1e18)] = 0.0
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectOrder(Order):
    """What is in a program: names that can be annotated, shapes, mesh, annotations. Makes ``program.json``.

    >>> made = service.carry_out(InspectOrder(program=digest), {digest: text})
    >>> made.json("program.json")["arg_names"]
    ["weights['down']", "weights['up']", 'x', 'target']
    """

    kind: Literal["inspect"] = "inspect"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOrder(Order):
    """The per-device program. Makes ``report.json``, ``partitioned.hlo``, ``stages.json``.

    >>> order = PartitionOrder(program=digest, mesh={"data": 4, "model": 2}, annotations={"x": "data,None"})
    >>> service.carry_out(order, {digest: text}).json("report.json")["devices"]
    8
    """

    kind: Literal["partition"] = "partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """An LLVM target, see `shardc.native.llvm.target.Target`.

    >>> Cpu(triple="x86_64-unknown-linux-gnu", cpu="x86-64-v3", features="").cpu
    'x86-64-v3'
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _CONFIG

    triple: Annotated[str, Text(r"[A-Za-z0-9_.-]{1,100}", "a target's triple")]
    cpu: Annotated[str, Text(r"[A-Za-z0-9_.-]{0,100}", "a processor's name")]
    features: Annotated[
        str, Text(r"(?:[+-][A-Za-z0-9_.-]+(?:,[+-][A-Za-z0-9_.-]+)*)?", "a list of features"), Most(8000)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOrder(Order):
    """An executable. Makes ``executable.shardc``, ``report.json``, ``partitioned.hlo``, ``stages.json`` and, with
    ``page``, ``report.html``.

    ``target`` is ``cpu``, ``cuda-emulated`` or a kind of GPU such as ``cuda:sm_90``. ``cpu`` is the processor for CPU
    code (None: the server's). ``ahead`` makes code that links without Python, as `shardc compile` does. ``symbol`` is
    the program's name in C (empty: the program's own name). ``ahead.json`` has the name and the processor.

    >>> made = service.carry_out(CompileOrder(program=digest, page=False), {digest: text})
    >>> "executable.shardc" in [artifact.name for artifact in made.entry.artifacts]
    True
    """

    kind: Literal["compile"] = "compile"
    target: Target = "cpu"
    cpu: Cpu | None = None
    ahead: Flag = False
    symbol: Symbol = ""
    profile: Flag = False
    page: Flag = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOrder(Order):
    """A predicted step. Makes ``simulation.json``, ``trace.json``, ``report.json``, ``partitioned.hlo`` and, with
    ``page``, ``report.html``; needs a machine. ``mapping`` is where mesh axes lie on it, as ``--map`` has it.

    >>> order = SimulateOrder(program=digest, machine="h100-dgx", mapping="data=nvlink", page=False)
    >>> service.carry_out(order, {digest: text}).json("simulation.json")["devices"]
    4
    """

    kind: Literal["simulate"] = "simulate"
    mapping: Mapped = ""
    ignore_memory: Flag = False
    page: Flag = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOrder(Order):
    """Why collectives are there, or with ``values`` where their shardings come from; with ``other_annotations``
    (and ``other_mesh``) what changes from these annotations to those. Makes ``explanation.json`` and ``report.json``,
    or ``stories.json``, or ``difference.json`` and the report of the program as it is.

    >>> order = ExplainOrder(program=digest, values=("x",))
    >>> list(service.carry_out(order, {digest: text}).json("stories.json"))
    ['x']
    """

    kind: Literal["explain"] = "explain"
    remedies: Count = 3
    tries: Count = 12
    seconds: Seconds = 30.0
    thresholds: Thresholds = field(default_factory=dict)
    values: Annotated[tuple[Line, ...], Most(1000)] = ()
    other_annotations: Specs | None = None
    other_mesh: Mesh = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOrder(Order):
    """One page about everything. Makes ``report.html``, ``report.json`` and, with a machine, ``simulation.json``.

    >>> page = service.carry_out(ReportOrder(program=digest), {digest: text}).file("report.html")
    >>> page[:15]
    b'<!DOCTYPE html>'
    """

    kind: Literal["report"] = "report"
    mapping: Mapped = ""
    remedies: Count = 0
    seconds: Seconds = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoOrder(Order):
    """The annotations with which a step is shortest, besides those that the order and the program have. Makes
    ``plan.json``, ``plan.py`` (JAX code), ``plan.toml`` and the files of a partition order; needs a machine.

    With ``devices`` (0: none), the search compares all meshes of that many devices over the mesh's axes. ``memory`` is
    in bytes per device (0: the machine's). ``keep`` names the arguments and results that keep their annotations (None:
    all).

    >>> order = AutoOrder(program=digest, machine="h100-dgx")
    >>> service.carry_out(order, {digest: text}).json("plan.json")["mesh"]
    {'data': 2, 'model': 2}
    """

    kind: Literal["auto"] = "auto"
    devices: Annotated[int, Between(0, 2**24)] = 0
    keep: Annotated[tuple[Line, ...], Most(1000)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSet:
    """A named set of annotations, and limits for the sizes of its axes.

    >>> SweepSet(name="fsdp", annotations={"w*": "data"}, axes={"data": "8.."}).name
    'fsdp'
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _CONFIG

    name: Name
    annotations: Specs = field(default_factory=dict)
    axes: Axes = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOrder(Order):
    """Meshes and sets of annotations ranked by predicted time. Makes ``sweep.json``; needs a machine.

    ``devices`` are numbers of devices in ascending order (empty: the mesh's). For weak scaling, ``programs`` has one
    program per number of devices, and ``program`` is the first of them. ``set_axes`` are the axes that the sets name.
    Every set includes ``annotations``.

    >>> order = SweepOrder(program=digest, machine="h100-dgx", devices=(4,), refine=0)
    >>> len(service.carry_out(order, {digest: text}).json("sweep.json")["outcomes"])
    3
    """

    kind: Literal["sweep"] = "sweep"
    devices: Annotated[tuple[Devices, ...], Most(64)] = ()
    programs: Annotated[tuple[Digest, ...], Most(64)] = ()
    meshes: Flag = True
    axes: Axes = field(default_factory=dict)
    sets: Annotated[tuple[SweepSet, ...], Most(64)] = ()
    set_axes: Annotated[tuple[Axis, ...], Most(16)] = ()
    mapping: Mapped = ""
    limit: Annotated[int, Between(1, 4096)] = 64
    refine: Annotated[int, Between(0, 64)] = 2
    uneven: Flag = False
    ignore_memory: Flag = False


#: By kind.
ORDERS: Mapping[str, type[Order]] = {
    "inspect": InspectOrder,
    "partition": PartitionOrder,
    "compile": CompileOrder,
    "simulate": SimulateOrder,
    "explain": ExplainOrder,
    "report": ReportOrder,
    "auto": AutoOrder,
    "sweep": SweepOrder,
}


def to_json(order: Order) -> str:
    """One line of JSON, all fields in their order; equal orders give equal text."""
    return plain.to_json(order)


def from_json(text: str | bytes) -> Order:
    """The order that ``text`` says. Raises `InputError` with the place: ``order.mesh['data']``."""
    return order_of(plain.read_json(text, "order"))


def order_of(data: object) -> Order:
    """The order of plain data, see `from_json`."""
    if not isinstance(data, dict):
        raise InputError("an order must be an object", where="order", fix='send {"kind": "simulate", ...}')
    if "kind" not in data:
        raise InputError("the field is missing", where="order.kind", fix=f"use one of {', '.join(ORDERS)}")
    kind = data["kind"]
    if not isinstance(kind, str) or kind not in ORDERS:
        raise InputError(
            f"there is no order of kind {str(kind)[:60]!r}", where="order.kind", fix=f"use one of {', '.join(ORDERS)}"
        )
    order = plain.from_plain(ORDERS[kind], data, "order")
    assert isinstance(order, Order)
    return order


def checked_order(given: Order | Mapping[str, Any]) -> Order:
    """The order that ``given`` says: an `Order`, or the same as plain data with its ``kind``.

    Raises `InputError` with the place of a field that is missing, unknown, of another type or beyond its limits.
    """
    try:
        text = json.dumps(given, default=_fields_of, allow_nan=False)
    except (TypeError, ValueError) as e:
        raise InputError(f"an order must be plain data: {e}", where="order", fix=_PLAIN) from None
    return from_json(text)


_PLAIN = 'write a mesh as {"data": 4}, a spec as "data,None", and numbers as Python\'s own'


def _fields_of(value: object) -> dict[str, Any]:
    """A part of an order that JSON has no form for."""
    if isinstance(value, Order | Settings | Cpu | SweepSet):
        return {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"it contains a value of class {type(value).__name__}")


def resolve_order(order: Order) -> Order:
    """The order with what it leaves to the server: the processor that code is made for. A worker on another machine,
    with another processor, then makes the same."""
    if not isinstance(order, CompileOrder) or order.cpu is not None:
        return order
    from shardc.native.llvm.target import host_target

    host = host_target()
    return replace(order, cpu=Cpu(triple=host.triple, cpu=host.cpu, features=host.features))


def order_key(order: Order) -> str:
    """What the order's result is kept under, 64 hexadecimal digits: a digest of the order as `resolve_order`
    has it, of shardc's own sources and of LLVM's binding."""
    from shardc.compiler.cache.cache import content_key

    return content_key("order", to_json(resolve_order(order)))
