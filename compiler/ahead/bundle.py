"""All files of a program compiled ahead of time, and what the manifest says about them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import llvmlite

from shardc.collectives.call.call import CollectiveCall
from shardc.collectives.call.membership import members_of
from shardc.compiler.ahead.example import c_file, example, makefile
from shardc.compiler.ahead.header import header
from shardc.compiler.ahead.objects import constants_object, pool_object
from shardc.compiler.ahead.program import AheadProgram
from shardc.compiler.ahead.source import source
from shardc.compiler.executable import ArraySpec, Executable
from shardc.hlo.errors import InputError
from shardc.hlo.files import write_atomically

__all__ = ["MANIFEST_FORMAT", "bundle", "program_facts", "write_bundle"]

#: Raised with every change of the manifest's meaning.
MANIFEST_FORMAT = 1


def bundle(program: AheadProgram, version: str) -> dict[str, bytes]:
    """The files by name; equal programs give equal bytes. ``version`` is shardc's, for the manifest."""
    name, e = program.name, program.executable
    found = {
        f"{name}.o": e.objects[0],
        f"{name}_constants.o": constants_object(f"{name}_constants", e.constants, program.target),
        f"{name}.h": header(program).encode(),
        f"{name}_entry.c": source(program).encode(),
        "main.c": example(program).encode(),
        "Makefile": makefile(program).encode(),
    }
    wanted = ["shardc_collectives.h", "shardc_collectives.c"] if program.distributed else []
    if "blas" in program.needs:
        wanted += [f"shardc_{f}" for f in ("blas_builtin.c", "blas_builtin.inc", "blas_cblas.c", "omatcopy.inc")]
    if "pool" in program.needs:
        wanted.append("shardc_serial.c")
        found["shardc_pool.o"] = pool_object(program.target)
    found.update({file: c_file(file).encode() for file in wanted})
    manifest = _manifest(program, version, found)
    found[f"{name}.json"] = (json.dumps(manifest, indent=1) + "\n").encode()
    return found


def write_bundle(files: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Write ``files`` into ``folder``, each whole or not at all. Raises `InputError` where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_atomically(folder / name, data)
    except OSError as e:
        raise InputError(f"{folder} cannot be written: {e.strerror or e}", fix="name another folder") from None
    return [folder / name for name in files]


def _manifest(program: AheadProgram, version: str, files: Mapping[str, bytes]) -> dict[str, object]:
    e, target = program.executable, program.target
    return {
        "format": MANIFEST_FORMAT,
        "name": program.name,
        "program": e.name,
        "versions": {"shardc": version, "llvmlite": llvmlite.__version__},
        "target": {"triple": target.triple, "cpu": target.cpu, "features": target.features},
        **program_facts(e),
        "alignment": 64,
        "entry": {"run": f"{program.name}_run", "step": f"{program.name}_step"},
        "needs": program.needs,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }


def program_facts(e: Executable) -> dict[str, object]:
    """What manifests say of a program, whatever it was compiled for."""
    return {
        "devices": e.num_devices,
        "arguments": [_array(n, s, n in e.donated) for n, s in enumerate(e.arguments)],
        "results": [_array(n, s) for n, s in enumerate(e.results)],
        "aliases": [{"result": r, "argument": a} for r, a in e.aliases],
        "collectives": [_collective(c, e.num_devices) for c in e.collectives],
        "checks": [{"target": c.target, "name": c.name, "source": c.source} for c in e.checks],
        "memory": dict(e.memory),
        "arena_bytes": e.arena_bytes,
    }


def _array(number: int, spec: ArraySpec, donated: bool | None = None) -> dict[str, object]:
    facts = {
        "index": number,
        "name": spec.name,
        "dtype": spec.local_shape.dtype.name,
        "shape": list(spec.local_shape.dims),
        "global_shape": list(spec.global_shape.dims),
        "sharding": None if spec.sharding is None else str(spec.sharding),
        "bytes": spec.local_shape.nbytes,
    }
    return facts if donated is None else {**facts, "donated": donated}


def _collective(call: CollectiveCall, num_devices: int) -> dict[str, object]:
    members = members_of(call, num_devices)
    axes = [a.name for a in getattr(call.groups, "axes", ())]
    return {
        "index": call.index,
        "op": call.op,
        "reduction": call.reduction or None,
        "axes": axes,
        "groups": len(members),
        "group_size": len(members[0]) if members and call.op != "collective-permute" else 1,
        "operand_bytes": sum(o.operand.nbytes for o in call.operands),
        "name": call.name,
        "source": call.source,
        "reason": call.reason,
    }
