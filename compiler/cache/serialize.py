"""Executables as files: a zip of a JSON manifest, and of objects, other code and constants by digest; no pickles.

The other members are named by their SHA-256, so a damaged file is recognised before anything of it runs.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path

from shardc.compiler.executable import Executable
from shardc.hlo.codec.plain import from_plain, to_plain
from shardc.hlo.errors import InputError
from shardc.hlo.files import unwritable, write_atomically

__all__ = ["FORMAT", "is_executable", "load_executable", "read_bytes", "save", "to_bytes"]

#: Raised with every change of the manifest's meaning.
FORMAT = 10

_MANIFEST = "manifest.json"
#: How a zip archive starts, and where the name of its first member is.
_ARCHIVE, _NAME_AT = b"PK\x03\x04", 30


def save(executable: Executable, path: str | Path) -> None:
    """Write ``executable`` to one file; it appears complete or not at all. `InputError` where that fails."""
    try:
        write_atomically(Path(path), to_bytes(executable))
    except OSError as e:
        raise unwritable(Path(path), e) from None


def load_executable(path: str | Path) -> Executable:
    """Read what `save` wrote. `InputError` for a file that is missing, damaged, or of another format version."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as e:
        raise InputError(f"cannot read the executable: {e.strerror}", where=str(path)) from None
    if not data.startswith(_ARCHIVE) and not zipfile.is_zipfile(io.BytesIO(data)):
        fix = "give a file that Compiled.save wrote; load a program (HLO or MLIR) with shardc.load(path)"
        raise InputError("the file is not an executable of shardc", where=str(path), fix=fix)
    return read_bytes(data, str(path))


def to_bytes(executable: Executable) -> bytes:
    """The content of an executable's file; equal executables, with mappings in equal order, give equal bytes."""
    members: dict[str, bytes] = {}
    manifest = {"format": FORMAT, "executable": to_plain(executable, blobs=members)}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        text = json.dumps(manifest, separators=(",", ":")).encode()
        for name, data in {_MANIFEST: text, **members}.items():
            z.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, compresslevel=1)
    return out.getvalue()


def is_executable(data: bytes) -> bool:
    """Whether ``data`` is the content of an executable's file, of any format version; its first bytes show it."""
    return data.startswith(_ARCHIVE) and data[_NAME_AT : _NAME_AT + len(_MANIFEST)] == _MANIFEST.encode()


def read_bytes(data: bytes, where: str = "") -> Executable:
    """The inverse of `to_bytes`."""
    fix = "compile the program again with this version of shardc"
    damaged = InputError("the executable is damaged: its content does not match its digest", where=where, fix=fix)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as z:
            manifest = json.loads(z.read(_MANIFEST))
            members = {name: z.read(name) for name in z.namelist() if name != _MANIFEST}
        found = manifest["format"]
    except Exception as e:  # whatever a damaged or foreign file makes the parsers raise
        if is_executable(data):
            raise damaged from e
        raise InputError(
            f"the file is not an executable of shardc ({type(e).__name__}: {e})", where=where, fix=fix
        ) from None
    if found != FORMAT:
        raise InputError(
            f"the executable has format {found}, but this shardc reads format {FORMAT}", where=where, fix=fix
        )
    if any(hashlib.sha256(content).hexdigest() != name for name, content in members.items()):
        raise damaged
    try:
        executable = from_plain(Executable, manifest.get("executable"), "executable", members)
    except InputError as e:
        raise InputError(
            f"the file is not an executable of shardc: {e.what} ({e.where})", where=where, fix=fix
        ) from None
    assert isinstance(executable, Executable)
    return executable
