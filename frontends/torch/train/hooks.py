"""Python code that eager PyTorch calls in the backward and around an update, and that a program cannot call.

PyTorch exports the forward alone, so a gradient that somebody's code makes or changes would silently be another one.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from shardc.hlo.errors import UnsupportedError

__all__ = ["refuse_hooks", "refusing_hooks"]

_COMPILE = 'train with torch.compile(model, backend="shardc")'
_FIX = (
    f"{{remove}}, or {_COMPILE}, where PyTorch computes the gradients and runs their hooks; "
    "to clip gradients, use train_step(..., clip_grad_norm=)"
)
_CHECKPOINT = "torch.utils.checkpoint"


def refuse_hooks(torch: Any, module: Any, optimizer: Any) -> None:
    """UnsupportedError for the first hook of a gradient, of a module's backward, or of the optimizer's step."""
    for where, kind, hook in _hooks(torch, module, optimizer):
        name = getattr(hook, "__qualname__", type(hook).__qualname__)
        raise UnsupportedError(
            f"a training step does not run hooks, but {name} was registered by {kind}",
            where=where,
            fix=_FIX.format(remove="remove it by the handle that PyTorch returned"),
        )


def _hooks(torch: Any, module: Any, optimizer: Any) -> Iterator[tuple[str, str, Any]]:
    def of(owner: Any, table: str) -> Iterable[Any]:
        return (getattr(owner, table, None) or {}).values()

    for name, parameter in module.named_parameters():
        for hook in of(parameter, "_backward_hooks"):
            yield name, "register_hook", hook
        for hook in of(parameter, "_post_accumulate_grad_hooks"):
            yield name, "register_post_accumulate_grad_hook", hook
    every = torch.nn.modules.module
    tables = [
        ("_backward_hooks", "register_full_backward_hook"),
        ("_backward_pre_hooks", "register_full_backward_pre_hook"),
    ]
    for table, kind in tables:
        for hook in of(every, f"_global{table}"):
            yield "torch.nn.modules.module", kind.replace("register_", "register_module_"), hook
        for name, part in module.named_modules():
            for hook in of(part, table):
                yield name or type(part).__name__, kind, hook
    for table in ("step_pre_hook", "step_post_hook"):
        for hook in of(optimizer, f"_optimizer_{table}s"):
            yield type(optimizer).__name__, f"register_{table}", hook


@contextlib.contextmanager
def refusing_hooks(torch: Any) -> Iterator[None]:
    """A context for the forward. UnsupportedError, with the user's line, where that registers a hook of a gradient, or
    calls an ``autograd.Function``, which brings its own backward."""
    function, tensor = torch.autograd.Function, torch.Tensor
    own = {(owner, name): vars(owner)[name] for owner, name in (
        (function, "apply"), (tensor, "register_hook"), (tensor, "register_post_accumulate_grad_hook")
    )}  # fmt: skip

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls.__module__.startswith("torch.") and cls.__module__ != _CHECKPOINT:
            return own[function, "apply"].__get__(None, cls)(*args, **kwargs)
        derivative = (
            "write its forward with operators that have the derivative you want (detach() leaves a part out), "
            f"or {_COMPILE}, which runs it"
        )
        raise UnsupportedError(
            f"a training step does not run the backward of {cls.__qualname__}, an autograd.Function",
            where=_users_line(torch),
            fix="pass use_reentrant=False" if cls.__module__ == _CHECKPOINT else derivative,
        )

    def refuse(kind: str) -> Any:
        def register(_: Any, hook: Any) -> Any:
            raise UnsupportedError(
                f"a training step does not run hooks, but the forward calls {kind}",
                where=_users_line(torch),
                fix=_FIX.format(remove="leave it out"),
            )

        return register

    try:
        function.apply = classmethod(apply)
        for owner, name in own:
            if owner is tensor:
                setattr(owner, name, refuse(name))
        yield
    finally:
        for (owner, name), value in own.items():
            setattr(owner, name, value)


def _users_line(torch: Any) -> str | None:
    """The innermost line of the running code outside of PyTorch and this package."""
    folders = (str(torch.__path__[0]), __file__, "<")
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(folders):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else None
