"""`Method`: what a method of arrays is called as. Arrays are defined with these before anything is traced."""

from __future__ import annotations

from typing import Any

__all__ = ["Method"]


class Method:
    """A method of arrays, as a function of the array; equal by name."""

    __slots__ = ("__name__",)

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Method) and other.__name__ == self.__name__

    def __hash__(self) -> int:
        return hash(self.__name__)

    def __call__(self, x: Any, /, *args: Any, **kwargs: Any) -> Any:
        return getattr(x, self.__name__)(*args, **kwargs)
