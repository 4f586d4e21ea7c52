"""The cache of compiled executables on disk, by content.

An executable lies under a key of the per-device program that it was made of. Links in front lead to it from keys of
what that program came from, so that an unchanged source is neither read nor partitioned again. A link to the code of
a template has with it what else there is to the program that shares it.

The folder has a limit of size (`evict`). Entries are written atomically and checked when read; a damaged one is
compiled again. A directory that cannot be written costs one warning, never a failure. A lock lets the ranks of a job
wait for the one that compiles.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import filelock
import llvmlite

from shardc.compiler.cache.evict import evict_now_and_then, mark_used
from shardc.compiler.cache.serialize import FORMAT, read_bytes, to_bytes
from shardc.compiler.cache.sources import source_digest
from shardc.compiler.executable import Executable
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError
from shardc.hlo.files import write_atomically
from shardc.hlo.ir.ir import Module
from shardc.hlo.transforms.memory_limit import memory_limit
from shardc.hlo.transforms.structure import Structure
from shardc.native.gpu.target import GpuTarget
from shardc.native.llvm.target import Target

log = logging.getLogger("shardc")

__all__ = [
    "bypasses_cache",
    "code_settings",
    "content_key",
    "fetch_object",
    "fetch_or_build",
    "find_cached",
    "find_linked",
    "kernel_digest",
    "link",
    "module_key",
    "source_key",
]

_KEY = re.compile(rb"[0-9a-f]{64}")


def bypasses_cache(config: Config) -> bool:
    """Whether the compiler must run, because the configuration checks or dumps its work."""
    return config.check or config.dump_to is not None


def code_settings(config: Config) -> tuple[object, ...]:
    """The settings that change generated code, of plain data; they are in every key."""
    tuned: tuple[object, ...] = (config.tune, config.num_threads) if config.tune else ()
    if config.tf32 or not config.deterministic:
        tuned = (*tuned, "gpu", config.tf32, config.deterministic)
    overlap = (
        config.overlap,
        _content(config.machine),
        config.spare_cores,
        _content(config.profile),
        config.overlap_memory,
    )
    return tuned if overlap == ("auto", "", False, "", 1.1) else (*tuned, *overlap)


def _content(file: str | Path | None) -> str:
    """The text of a file; of anything else the name."""
    try:
        return Path(file).read_text() if file else ""
    except (OSError, UnicodeDecodeError):
        return str(file)


def source_key(content: str, target: Target, config: Config, gpu: GpuTarget | None = None) -> str:
    """The key of a program by the ``content`` that it came from, annotations and options among it."""
    assert content, "nothing is known of the source"
    digest = hashlib.sha256()
    for part in (FORMAT, source_digest(), llvmlite.__version__, target, code_settings(config), gpu, content):
        digest.update(repr(part).encode() + b"\0")
    return digest.hexdigest()


def module_key(module: Module, target: Target | None, *settings: object) -> str:
    """What the compiled object depends on, as a digest: program, target (None: whichever), compiler, settings."""
    structure = Structure()
    digest = hashlib.sha256()
    parts: list[object] = [
        FORMAT, source_digest(), llvmlite.__version__, target, settings, module.name, module.num_partitions,
        module.replica_count, module.partitioned, module.mesh, module.arg_names, module.result_names,
        module.aliases, module.donors, module.uneven_interface, sorted(module.attrs),
        module.attrs.get("global_parameters"), module.attrs.get("global_results"), memory_limit(module),
        structure.computation(module.entry),
    ]  # fmt: skip
    parts += [p.sharding for p in module.parameters] + [module.entry.root.sharding]
    parts += [(i.name, i.source, i.origin) for i in module.instructions() if "replica_groups" in i.attrs]
    parts += [(i.name, i.source, i.origin) for i in module.instructions() if "source_target_pairs" in i.attrs]
    parts += [(i.name, i.source) for i in module.instructions() if i.opcode == "custom-call"]
    for part in parts:
        digest.update(repr(part).encode() + b"\0")
    return digest.hexdigest()


def kernel_digest(key: str, target: Target, *settings: object) -> str:
    """The name of what was found out about the kernel ``key`` (`kernel_key`) on a machine."""
    digest = hashlib.sha256()
    for part in (source_digest(), llvmlite.__version__, target, key, settings):
        digest.update(repr(part).encode() + b"\0")
    return digest.hexdigest()


def content_key(*parts: object) -> str:
    """The key of what shardc, as it is now, works out from ``parts``, which are told apart by their text."""
    digest = hashlib.sha256()
    for part in (source_digest(), llvmlite.__version__, *parts):
        digest.update(repr(part).encode() + b"\0")
    return digest.hexdigest()


def fetch_or_build(key: str, config: Config, build: Callable[[], Executable], source: str = "") -> Executable:
    """The executable under ``key``, from the cache or from ``build``; with a link from the key ``source``, if any."""
    path = _path(key, config)
    found = _read(path)
    if found is None:
        with _lock(path, config.timeout):
            found = _read(path)
            if found is None:
                found = build()
                _write(path, _named(key, to_bytes(found)))
                evict_now_and_then(config.cache_dir, config.cache_bytes)
    if source:
        _write(_link(source, config), _named(source, key.encode()))
    return found


def find_cached(key: str, config: Config) -> Executable | None:
    """The executable under ``key``, if it is there."""
    return _read(_path(key, config))


def find_linked(source: str, config: Config) -> Executable | None:
    """The executable that a link leads to from the key ``source``."""
    path = _link(source, config)
    try:
        key, _, own = (_under(source, path.read_bytes()) or b"").partition(b"\n")
    except OSError:
        return None
    mark_used(path)
    found = _read(_path(key.decode(), config)) if _KEY.fullmatch(key) else None
    if found is None or not own:
        return found
    program = _parsed(own, path)
    return None if program is None else replace(program, objects=found.objects, seconds=found.seconds)


def link(source: str, key: str, executable: Executable, config: Config) -> None:
    """Link from the key ``source`` to the entry ``key``, whose code is that of ``executable``."""
    own = to_bytes(replace(executable, objects=()))
    _write(_link(source, config), _named(source, key.encode() + b"\n" + own))


def fetch_object(text: str, target: Target, config: Config, make: Callable[[], bytes]) -> bytes:
    """An object file that ``make`` compiles from the IR ``text`` alone, kept under that."""
    parts = (llvmlite.__version__, target, text)
    key = hashlib.sha256("\0".join(map(repr, parts)).encode()).hexdigest()
    path = config.cache_dir / "objects" / key[:2] / f"{key}.o"
    try:
        data = path.read_bytes()
    except OSError:
        data = b""
    if hashlib.sha256(key.encode() + data[32:]).digest() == data[:32]:
        return data[32:]
    made = make()
    _write(path, hashlib.sha256(key.encode() + made).digest() + made)
    return made


def _named(key: str, data: bytes) -> bytes:
    """The entry's key is part of its file: one that stands under another's name is noticed."""
    return key.encode() + b"\n" + data


def _under(key: str, entry: bytes) -> bytes | None:
    """What `_named` made an entry of, None for that of another key."""
    name, _, data = entry.partition(b"\n")
    return data if name == key.encode() else None


def _path(key: str, config: Config) -> Path:
    return config.cache_dir / "executables" / key[:2] / f"{key}.shardc"


def _link(source: str, config: Config) -> Path:
    return config.cache_dir / "executables" / source[:2] / f"{source}.link"


def _read(path: Path) -> Executable | None:
    try:
        data = _under(path.stem, path.read_bytes())
    except OSError:
        return None
    found = None if data is None else _parsed(data, path)
    if found is None:
        return None
    mark_used(path)
    return replace(found, seconds={"cache": 0.0})


def _parsed(data: bytes, path: Path) -> Executable | None:
    try:
        return read_bytes(data, str(path))
    except InputError:
        return None


def _write(path: Path, data: bytes) -> None:
    try:
        write_atomically(path, data, sync=False)  # whoever reads an entry checks it
    except OSError as e:
        _warn_unwritable(str(path.parent.parent.parent), e.strerror or str(e))


@lru_cache(maxsize=64)
def _warn_unwritable(directory: str, problem: str) -> None:
    """Once per directory."""
    text = f"the cache directory {directory} cannot be written ({problem}); every process compiles its programs again"
    log.warning("%s; set SHARDC_CACHE_DIR to another directory", text)


@contextmanager
def _lock(path: Path, timeout: float) -> Iterator[None]:
    """Hold the entry's lock while compiling; go on without it where locks do not work or take too long."""
    lock = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(str(path.with_suffix(".lock")), timeout=timeout)
        lock.acquire()
    except (OSError, filelock.Timeout, NotImplementedError):
        lock = None
    try:
        yield
    finally:
        if lock is not None:
            lock.release()
