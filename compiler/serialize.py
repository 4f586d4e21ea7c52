"""Executables as files: a zip of a JSON manifest, the objects, other code and the constants; no pickles.

The manifest holds the digests of the other members, so a damaged file is recognised before anything of it runs.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shardc.collectives.call import BufferRef, CollectiveCall, CollectiveOperand, SharedSection
from shardc.collectives.schedule import Await, Begin, Choice, Perform, Repeat
from shardc.compiler.executable import ArraySpec, CheckSite, Executable
from shardc.compiler.gpu.program import (
    AwaitCollective,
    CheckStep,
    ChoiceStep,
    CopyStep,
    FillStep,
    GpuProgram,
    HostStep,
    LaunchStep,
    ProductStep,
    RepeatStep,
    StartCollective,
)
from shardc.compiler.profile import ProfilePlan, Site
from shardc.hlo.errors import InputError
from shardc.hlo.files import write_atomically
from shardc.hlo.groups import AxisGroups, AxisPairs, IotaGroups, ListGroups, ListPairs
from shardc.hlo.mesh import Mesh
from shardc.hlo.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.types import DTYPES, DType, Layout, Shape
from shardc.native.gpu.product import Product
from shardc.native.gpu.runtime import Image, LaunchShape

__all__ = ["FORMAT", "load_executable", "read_bytes", "save", "to_bytes"]

#: Raised with every change of the manifest's meaning.
FORMAT = 8

_MANIFEST, _CONSTANTS = "manifest.json", "constants.bin"

#: Classes that a manifest may hold; everything else in it is text, numbers, lists and objects.
_CLASSES: Mapping[str, Any] = MappingProxyType(
    {
        c.__name__: c
        for c in (
            ArraySpec,
            AwaitCollective,
            AxisGroups,
            AxisPairs,
            AxisRef,
            Await,
            Begin,
            BufferRef,
            CheckSite,
            CheckStep,
            Choice,
            ChoiceStep,
            CollectiveCall,
            CollectiveOperand,
            CopyStep,
            DimSharding,
            FillStep,
            GpuProgram,
            HostStep,
            Image,
            IotaGroups,
            LaunchShape,
            LaunchStep,
            Layout,
            ListGroups,
            ListPairs,
            Mesh,
            Perform,
            Product,
            ProductStep,
            ProfilePlan,
            Repeat,
            RepeatStep,
            Shape,
            SharedSection,
            Sharding,
            Site,
            StartCollective,
        )
    }
)


def save(executable: Executable, path: str | Path) -> None:
    """Write ``executable`` to one file; it appears complete or not at all."""
    write_atomically(Path(path), to_bytes(executable))


def load_executable(path: str | Path) -> Executable:
    """Read what `save` wrote. `InputError` for a file that is missing, damaged, or of another format version."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as e:
        raise InputError(f"cannot read the executable: {e.strerror}", where=str(path)) from None
    return read_bytes(data, str(path))


def to_bytes(executable: Executable) -> bytes:
    """The content of an executable's file; equal executables give equal bytes."""
    members = {_CONSTANTS: executable.constants}
    members.update({f"step{n}.o": code for n, code in enumerate(executable.objects)})
    encoded = {
        f.name: _encode(getattr(executable, f.name), members)
        for f in fields(executable)
        if f.name not in ("objects", "constants")
    }
    manifest = {
        "format": FORMAT,
        "digests": {name: _digest(data) for name, data in members.items()},
        "objects": len(executable.objects),
        "executable": encoded,
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        text = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
        for name, data in {_MANIFEST: text, **members}.items():
            z.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, compresslevel=1)
    return out.getvalue()


def read_bytes(data: bytes, where: str = "") -> Executable:
    """The inverse of `to_bytes`."""
    fix = "compile the program again with this version of shardc"
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as z:
            manifest = json.loads(z.read(_MANIFEST))
            members = {name: z.read(name) for name in z.namelist() if name != _MANIFEST}
        if manifest["format"] != FORMAT:
            raise InputError(
                f"the executable has format {manifest['format']}, this shardc reads {FORMAT}", where=where, fix=fix
            )
        if manifest["digests"] != {name: _digest(content) for name, content in members.items()}:
            raise InputError("the executable is damaged: its content does not match its digest", where=where, fix=fix)
        parts = {name: _decode(value, members) for name, value in manifest["executable"].items()}
        objects = tuple(members[f"step{n}.o"] for n in range(manifest["objects"]))
        return Executable(**parts, objects=objects, constants=members[_CONSTANTS])
    except InputError:
        raise
    except Exception as e:  # whatever a damaged or foreign file makes the parsers raise
        raise InputError(f"not an executable of shardc ({type(e).__name__}: {e})", where=where, fix=fix) from None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _encode(value: Any, members: dict[str, bytes]) -> Any:
    """JSON for plain data: tuples are lists, our classes objects with their name under ``$``. Bytes become one of the
    file's ``members``, equal ones the same."""
    if isinstance(value, DType):
        return {"$": "DType", "name": value.name}
    if isinstance(value, bytes):
        name = f"code-{_digest(value)[:32]}"
        members[name] = value
        return {"$": "bytes", "member": name}
    if type(value).__name__ in _CLASSES:
        parts = {f.name: _encode(getattr(value, f.name), members) for f in fields(value) if not f.name.startswith("_")}
        return {"$": type(value).__name__, **parts}
    if isinstance(value, tuple | list):
        return [_encode(v, members) for v in value]
    if isinstance(value, Mapping):
        return {str(k): _encode(v, members) for k, v in value.items()}
    return value


def _decode(value: Any, members: Mapping[str, bytes]) -> Any:
    if isinstance(value, list):
        return tuple(_decode(v, members) for v in value)
    if not isinstance(value, dict):
        return value
    kind = value.get("$")
    if kind is None:
        return {k: _decode(v, members) for k, v in value.items()}
    if kind == "DType":
        return DTYPES[value["name"]]
    if kind == "bytes":
        return members[value["member"]]
    return _CLASSES[kind](**{k: _decode(v, members) for k, v in value.items() if k != "$"})
