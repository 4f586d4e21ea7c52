"""Names of local instructions: what comes from the program keeps its name, the rest is numbered."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["NameSupply"]


class NameSupply:
    """Gives out names that are unique in a module; ``reserved`` are those of the global program."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._reserved = frozenset(reserved)
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def anew(self) -> NameSupply:
        """Nothing handed out, the same names reserved."""
        return NameSupply(self._reserved)

    def own(self, name: str) -> str:
        """``name`` itself the first time, then numbered."""
        if name in self._taken:
            return self.fresh(name)
        self._taken.add(name)
        return name

    def fresh(self, base: str) -> str:
        """``base`` if nobody has or had it, else ``base.1``, ``base.2``, ..."""
        number = self._next.get(base, 0)
        name = f"{base}.{number}" if number else base
        while name in self._taken or name in self._reserved:
            number += 1
            name = f"{base}.{number}"
        self._next[base] = number + 1
        self._taken.add(name)
        return name
