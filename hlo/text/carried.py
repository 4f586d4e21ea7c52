"""Lossless HLO text: the header's frontend attributes hold what the text has no syntax for.

Programs travel so to a compile service, where the same executable must come of them as of the module itself: names of
results and the mesh (shardings name its axes) go along, and places in a text become the sources of their instructions.
Between passes that are run one by one a module at any stage travels so: a partitioned one tells the shapes of the whole
arrays. XLA ignores frontend attributes that it does not know, so any reader takes such a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardc.hlo.codec.plain import from_plain, read_json, to_json
from shardc.hlo.errors import ParseError, ShardcError
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import Shape
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.shapes import shape_of_text
from shardc.hlo.units import count_text

__all__ = ["print_carried", "print_state", "print_with_mesh", "restore_carried"]

_ARGUMENTS, _RESULTS, _MESH = "shardc.arguments", "shardc.results", "shardc.mesh"
_GLOBAL, _ORDERS, _UNEVEN = "shardc.global_shapes", "shardc.device_orders", "shardc.uneven_interface"
_OURS = (_ARGUMENTS, _RESULTS, _MESH, _GLOBAL, _ORDERS, _UNEVEN)

#: Names, and a mesh as data: axes, and devices if they are in another order.
_Names = tuple[str, ...]
_Axes = tuple[tuple[str, int], ...]
_Devices = tuple[int, ...] | None
#: Shapes of whole parameters and whole results, as text.
_Shapes = tuple[tuple[str, ...], tuple[str, ...]]
#: Devices that parts of parameters or results are asked for on: which, number of the leaf, devices.
_Orders = tuple[tuple[str, int, tuple[int, ...]], ...]


def print_carried(module: Module) -> str:
    """``module``, not yet partitioned, as a text that reads as an equal module with equal names and sources.

    It is to be read without a file name, which instructions would else have as their source.
    """
    more = {_ARGUMENTS: to_json(module.arg_names, _Names), _RESULTS: to_json(module.result_names, _Names)}
    return print_module(
        _telling(module, {**more, **_mesh(module), **_uneven(module)}), named_shardings=True, as_is=True
    )


def print_with_mesh(module: Module) -> str:
    """``module`` as text that every XLA reads, with tile assignments, whose header says what the mesh's axes are."""
    return print_module(module if module.partitioned else _telling(module, _mesh(module)))


def print_state(module: Module) -> str:
    """``module`` at any stage as a text that reads as the same program at the same stage; names are made unique.

    A partitioned one prints as it stands, not as XLA wants it, but that groups of devices need a channel in text.
    """
    more: dict[str, str] = {}
    if any(module.arg_names):
        more[_ARGUMENTS] = to_json(module.arg_names, _Names)
    if any(module.result_names):
        more[_RESULTS] = to_json(module.result_names, _Names)
    more |= _mesh(module) | _uneven(module)
    if module.partitioned:
        shapes = (module.attrs.get(k, ()) for k in ("global_parameters", "global_results"))
        more[_GLOBAL] = to_json(tuple(tuple(str(s) for s in group) for group in shapes), _Shapes)
    if orders := module.attrs.get("device_orders"):
        more[_ORDERS] = to_json(tuple((kind, n, devices) for (kind, n), devices in orders.items()), _Orders)
    return print_module(_telling(module, more), named_shardings=True, for_xla=False)


def _mesh(module: Module) -> dict[str, str]:
    mesh = module.mesh
    return (
        {} if mesh is None else {_MESH: to_json((mesh.axes, mesh.device_ids, mesh.name), tuple[_Axes, _Devices, str])}
    )


def _uneven(module: Module) -> dict[str, str]:
    return {_UNEVEN: to_json(True, bool)} if module.uneven_interface else {}


def _telling(module: Module, more: Mapping[str, str]) -> Module:
    own = tuple(module.attrs.get("frontend_attributes", ()))
    return module.with_(attrs={**module.attrs, "frontend_attributes": (*own, *more.items())}) if more else module


def restore_carried(module: Module) -> Module:
    """The module with what the functions here wrote into its header; the same object where nothing is.

    Raises `ParseError` for what they cannot have written.
    """
    header: dict[str, str] = dict(module.attrs.get("frontend_attributes", ()))
    if not any(name in header for name in _OURS):
        return module
    try:
        arguments = _read(header, _ARGUMENTS, _Names) if _ARGUMENTS in header else module.arg_names
        results = _read(header, _RESULTS, _Names) if _RESULTS in header else ()
        mesh = Mesh(*_read(header, _MESH, tuple[_Axes, _Devices, str])) if _MESH in header else module.mesh
        shapes = _read(header, _GLOBAL, _Shapes) if _GLOBAL in header else None
        orders = _read(header, _ORDERS, _Orders) if _ORDERS in header else ()
        uneven = _read(header, _UNEVEN, bool) if _UNEVEN in header else module.uneven_interface
    except ShardcError as e:
        raise ParseError(e.what, where=e.where) from None
    for where, names, count in (
        (_ARGUMENTS, arguments, len(module.parameters)),
        (_RESULTS, results, len(module.results)),
    ):
        if len(names) not in (0, count):
            raise ParseError(f"{len(names)} names are given for {count_text(count, 'value')}", where=where)
    attrs = {k: v for k, v in module.attrs.items() if k != "frontend_attributes"}
    left = tuple((k, v) for k, v in header.items() if k not in _OURS)
    if left:
        attrs["frontend_attributes"] = left
    if orders:
        attrs["device_orders"] = {(kind, n): devices for kind, n, devices in orders}
    attrs |= _global_shapes(module, shapes) if shapes is not None else {}
    partitioned = module.partitioned or shapes is not None
    names = {"arg_names": arguments, "result_names": results}
    return module.with_(**names, mesh=mesh, partitioned=partitioned, uneven_interface=uneven, attrs=attrs)


def _global_shapes(module: Module, shapes: _Shapes) -> dict[str, tuple[Shape, ...]]:
    """The attributes of a partitioned module; empty where it has none."""
    if not any(shapes):
        return {}
    wanted = (len(module.parameters), len(module.results))
    if tuple(map(len, shapes)) != wanted:
        raise ParseError(
            f"shapes of {count_text(len(shapes[0]), 'parameter')} and {count_text(len(shapes[1]), 'result')} do "
            "not fit",
            where=_GLOBAL,
        )
    parameters, results = (tuple(map(shape_of_text, group)) for group in shapes)
    return {"global_parameters": parameters, "global_results": results}


def _read(header: Mapping[str, str], name: str, kind: Any) -> Any:
    return from_plain(kind, read_json(header[name], name), name)
