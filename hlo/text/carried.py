"""HLO text that carries all of a module: what the text has no words for stands in the header's frontend attributes.

Programs travel so to a compile service, where the same executable must come of them as of the module itself: names of
results and the mesh (shardings name its axes) go along, and places in a text become the sources of their instructions.
XLA ignores frontend attributes that it does not know, so any reader takes such a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardc.hlo.codec.plain import from_plain, read_json, to_json
from shardc.hlo.errors import ParseError, ShardcError
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.text.printer import print_module

__all__ = ["carried_text", "with_carried"]

_ARGUMENTS, _RESULTS, _MESH = "shardc.arguments", "shardc.results", "shardc.mesh"

#: Names, and a mesh as data: axes, and devices if they are in another order.
_Names = tuple[str, ...]
_Axes = tuple[tuple[str, int], ...]
_Devices = tuple[int, ...] | None


def carried_text(module: Module) -> str:
    """``module``, not yet partitioned, as a text that reads as an equal module with equal names and sources.

    It is to be read without a file name, which instructions would else have as their source.
    """
    mesh = module.mesh
    more = {_ARGUMENTS: to_json(module.arg_names, _Names), _RESULTS: to_json(module.result_names, _Names)}
    if mesh is not None:
        more[_MESH] = to_json((mesh.axes, mesh.device_ids, mesh.name), tuple[_Axes, _Devices, str])
    own = tuple(module.attrs.get("frontend_attributes", ()))
    attrs = {**module.attrs, "frontend_attributes": (*own, *more.items())}
    return print_module(module.with_(attrs=attrs), named_shardings=True, as_is=True)


def with_carried(module: Module) -> Module:
    """The module with what `carried_text` wrote into its header; the same object where nothing is there.

    Raises `ParseError` for what it cannot have written.
    """
    header: dict[str, str] = dict(module.attrs.get("frontend_attributes", ()))
    if _RESULTS not in header:
        return module
    try:
        arguments = _read(header, _ARGUMENTS, _Names) if _ARGUMENTS in header else module.arg_names
        results = _read(header, _RESULTS, _Names)
        mesh = Mesh(*_read(header, _MESH, tuple[_Axes, _Devices, str])) if _MESH in header else module.mesh
    except ShardcError as e:
        raise ParseError(e.what, where=e.where) from None
    for where, names, count in (
        (_ARGUMENTS, arguments, len(module.parameters)),
        (_RESULTS, results, len(module.results)),
    ):
        if len(names) not in (0, count):
            raise ParseError(f"{len(names)} names for {count} values", where=where)
    attrs = {k: v for k, v in module.attrs.items() if k != "frontend_attributes"}
    left = tuple((k, v) for k, v in header.items() if k not in (_ARGUMENTS, _RESULTS, _MESH))
    if left:
        attrs["frontend_attributes"] = left
    return module.with_(arg_names=arguments, result_names=results, mesh=mesh, attrs=attrs)


def _read(header: Mapping[str, str], name: str, kind: Any) -> Any:
    return from_plain(kind, read_json(header[name], name), name)
