"""Files of a program compiled for GPUs: code and constants as other tools take them, the host's steps in the manifest,
and the executable that shardc loads."""

from __future__ import annotations

import hashlib
import json
from dataclasses import is_dataclass, replace
from types import MappingProxyType

import llvmlite

from shardc.compiler.ahead.bundle import program_facts
from shardc.compiler.cache.serialize import to_bytes
from shardc.compiler.executable import Executable

__all__ = ["GPU_MANIFEST_FORMAT", "gpu_bundle"]

#: Raised with every change of the manifest's meaning.
GPU_MANIFEST_FORMAT = 1

#: What code of each kind is called.
_SUFFIXES = MappingProxyType({"cubin": "cubin", "ptx": "ptx", "emulated": "o"})


def gpu_bundle(executable: Executable, name: str, version: str) -> dict[str, bytes]:
    """The files by name; equal programs give equal bytes. ``version`` is shardc's, for the manifest.

    ``NAME.json`` says what a host does: load the code, and launch, copy and exchange as ``steps`` tell, in order. A
    place is a space (``arena``, ``argument``, ``result`` or ``constant``), the number of the argument or result, an
    offset and a number of bytes; every kernel takes the addresses of its places and the device's number (i32).
    """
    program = executable.gpu
    assert program is not None, "compiled for a processor"
    found = {f"{name}.shardc": to_bytes(replace(executable, seconds={})), f"{name}_constants.bin": executable.constants}
    for n, image in enumerate(program.images):
        found[f"{name}_{n}.{_SUFFIXES[image.kind]}"] = image.data
    found |= {f"{name}_{n}.ptx": text for n, text in enumerate(program.ptx) if text}
    found |= {f"{name}_host_{n}.o": code for n, code in enumerate(program.host_objects)}
    manifest = {
        "format": GPU_MANIFEST_FORMAT,
        "name": name,
        "program": executable.name,
        "versions": {"shardc": version, "llvmlite": llvmlite.__version__},
        "target": program.target,
        "host": program.host,
        **program_facts(executable),
        "alignment": 256,
        "steps": [_step(s) for s in program.steps],
        "files": {file: hashlib.sha256(data).hexdigest() for file, data in found.items()},
    }
    found[f"{name}.json"] = (json.dumps(manifest, indent=1) + "\n").encode()
    return found


def _step(step: object) -> dict[str, object]:
    """A step as plain data: what it is and its fields."""
    return {"step": type(step).__name__.removesuffix("Step"), **_fields(step)}


def _fields(value: object) -> dict[str, object]:
    return {n: _field(getattr(value, n)) for n in getattr(value, "__dataclass_fields__", ())}


def _field(value: object) -> object:
    if type(value).__name__.endswith("Step"):
        return _step(value)
    if is_dataclass(value):
        return _fields(value)
    return list(map(_field, value)) if isinstance(value, tuple) else value
