"""Compile what a program came from: only when the cache does not know it. Imports no compiler before."""

from __future__ import annotations

from collections.abc import Callable

from shardc.compiler.cache.cache import bypasses_cache, fetch_or_build, find_linked, source_key
from shardc.compiler.executable import Executable
from shardc.compiler.targets import find_target, is_gpu
from shardc.hlo.config import Config
from shardc.hlo.ir.ir import Module
from shardc.hlo.warnings import count_warnings
from shardc.native.llvm.target import Target, host_target

__all__ = ["compile_source"]


def compile_source(
    content: str,
    config: Config,
    module: Callable[[], Module],
    machine: Target | None = None,
    target: str = "cpu",
    compile_remotely: Callable[[], tuple[Executable, str] | None] | None = None,
) -> Executable:
    """`compile_module` of what ``module`` makes of a source; not made when the cache knows the source's ``content``.

    The content must tell all that the module depends on, but shardc itself, ``machine``, ``target`` and ``config``; an
    empty one tells nothing. A program whose making logs a warning is made every time, so that its user sees it.
    What the cache does not know is asked of ``compile_remotely`` before: an executable, with a key to keep it under (or
    an empty one), or None.
    """

    def compiled(made: Module, source: str = "") -> Executable:
        from shardc.compiler.compile import compile_module

        return compile_module(made, config, target, source=source, machine=machine)

    calls = config.custom_calls
    if not content or any(c.expand is not None for c in calls.values()) or bypasses_cache(config):
        return compiled(module())
    if calls:  # what they do is found when the program is loaded; which there are decides what can be compiled
        content += repr(sorted((n, bool(c.address), c.evaluate is not None, c.sharding_rule) for n, c in calls.items()))
    gpu = find_target(target) if is_gpu(target) else None
    key = source_key(content, machine or host_target(), config, gpu)
    found = find_linked(key, config)
    if found is not None:
        return found
    given = None if compile_remotely is None else compile_remotely()
    if given is not None:
        executable, name = given
        return fetch_or_build(name, config, lambda: executable, key) if name else executable
    with count_warnings() as count:
        made = module()
    return compiled(made, "" if count() else key)
