"""A JAX program: a module, and how its flat parameters and results belong to the function's pytrees."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from textwrap import shorten
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import InputError
from shardc.hlo.ir.ir import Module
from shardc.hlo.units import arguments_text, count_text, kind_text
from shardc.launcher.arrays.array import Array
from shardc.launcher.arrays.gather import gather

__all__ = ["JaxLeaf", "JaxProgram", "JaxSignature"]

#: The most characters of a structure in an error.
_WIDTH = 200


@dataclass(frozen=True, slots=True)
class JaxLeaf:
    """One array of the function's arguments or results.

    ``dims`` and ``dtype`` are those of the array that the program sees: for a typed PRNG key its uint32 data, with
    ``key_impl`` the key's implementation. ``weak`` arguments take Python scalars.
    """

    dims: tuple[int, ...]
    dtype: np.dtype[Any]
    weak: bool = False
    key_impl: Any = None
    donated: bool = False


@dataclass(frozen=True, slots=True)
class JaxSignature:
    """How the flat parameters and results of a program belong to a function's pytrees.

    ``arguments`` has one entry per leaf of ``in_tree``; the program's parameters are ``constants`` (arrays that JAX
    hoisted) followed by ``arguments[i] for i in kept``: jit drops arguments that nothing uses. ``results`` has one
    entry per leaf of ``out_tree``, in the order of the program's flattened results. ``static_argnums`` and
    ``static_argnames`` were folded into the program. ``names`` are what errors call the parameters.
    """

    in_tree: Any
    out_tree: Any
    arguments: tuple[JaxLeaf, ...]
    results: tuple[JaxLeaf, ...]
    kept: tuple[int, ...]
    constants: tuple[NDArray[Any], ...] = ()
    static_argnums: tuple[int, ...] = ()
    static_argnames: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def donated(self) -> tuple[int, ...]:
        """Positions of donated arguments among the flat arguments (not the module's parameters)."""
        return tuple(i for i, a in enumerate(self.arguments) if a.donated)

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """The values for ``module.parameters`` from the function's arguments.

        Values with a shape and dtype of their own that are not JAX's (NumPy arrays, `shardc.Array`) are passed
        through; JAX arrays become NumPy arrays, keys their data, Python scalars arrays of the traced type. Static
        arguments may be given or left out. Raises InputError for another structure, shape or dtype.
        """
        leaves = self.leaves(args, kwargs or {})
        values = [
            leaf if _fits(leaf, spec) else _value(leaf, spec, self._name(i))
            for i, (leaf, spec) in enumerate(zip(leaves, self.arguments, strict=True))
        ]
        return [*self.constants, *(values[i] for i in self.kept)]

    def leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The leaves of the arguments, structure checked, dropped ones included."""
        import jax

        dynamic, named = self._dynamic(args, kwargs)
        leaves: list[Any]
        leaves, tree = jax.tree_util.tree_flatten((dynamic, named))
        self.check_structure(tree)
        return leaves

    def check_structure(self, tree: Any) -> None:
        """Raise InputError unless ``tree`` is the structure of the dynamic arguments."""
        if tree != self.in_tree:
            raise InputError(
                _difference(self.in_tree, tree, self._argument_names()),
                where="call of a compiled JAX program",
                fix=f"pass what was traced, each * being an array: {_arguments(self.in_tree)}",
            )

    def _argument_names(self) -> list[str]:
        """What errors call the function's positional arguments."""
        positional, names, leaf = self.in_tree.children()[0].children(), [], 0
        for index, argument in enumerate(positional):
            name = re.split(r"[.\[]", self._name(leaf))[0] if argument.num_leaves else ""
            names.append(name if name.isidentifier() else f"argument {index}")
            leaf += argument.num_leaves
        return names

    def passes(self, index: int, leaf: Any) -> bool:
        """Whether ``leaf`` is what the program takes for argument ``index``, as it is, like all leaves of its kind."""
        return _fits(leaf, self.arguments[index])

    def value(self, index: int, leaf: Any) -> Any:
        """``leaf`` as the program takes it for argument ``index``, checked."""
        return _value(leaf, self.arguments[index], self._name(index))

    def unflatten(self, results: Sequence[Any]) -> Any:
        """The function's result from the module's flattened results; keys become typed keys again."""
        import jax

        if len(results) != len(self.results):
            raise InputError(f"the function returns {count_text(len(self.results), 'result')}, but got {len(results)}")
        leaves = [_wrapped(r, spec) for r, spec in zip(results, self.results, strict=True)]
        return jax.tree_util.tree_unflatten(self.out_tree, leaves)

    def _dynamic(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        named = {k: v for k, v in kwargs.items() if k not in self.static_argnames} if kwargs else {}
        if not self.static_argnums:
            return tuple(args), named
        total = len(self.in_tree.children()[0].children()) + len(self.static_argnums)
        static = {n % total for n in self.static_argnums} if len(args) == total else set()
        return tuple(a for i, a in enumerate(args) if i not in static), named

    def _name(self, index: int) -> str:
        names = self.names
        position = self.kept.index(index) + len(self.constants) if index in self.kept else -1
        named = 0 <= position < len(names) and names[position]
        return names[position] if named else f"argument {index}"


@dataclass(frozen=True, slots=True)
class JaxProgram(JaxSignature):
    """A signature with its module. ``mlir`` is what the module was read from: an ``ir.Module`` of jaxlib, or bytes.
    ``callbacks`` are the Python functions that the program calls, by index."""

    module: Module = field(kw_only=True)
    mlir: Any = field(default=None, kw_only=True)
    callbacks: tuple[Callable[..., Any], ...] = field(default=(), kw_only=True)

    def original(self) -> bytes:
        """The MLIR that the module was read from, as bytecode or text."""
        if self.mlir is None or isinstance(self.mlir, bytes):
            return self.mlir or b""
        from shardc.hlo.stablehlo.mlir.bindings import bytecode

        return bytecode(self.mlir)

    @staticmethod
    def of(
        signature: JaxSignature, module: Module, mlir: Any = None, callbacks: tuple[Callable[..., Any], ...] = ()
    ) -> JaxProgram:
        """The program that ``signature`` is of."""
        parts = {f.name: getattr(signature, f.name) for f in fields(JaxSignature)}
        return JaxProgram(**{**parts, "names": module.arg_names}, module=module, mlir=mlir, callbacks=callbacks)


def _difference(traced: Any, given: Any, names: Sequence[str]) -> str:
    """How the arguments of a call differ from those that were traced, both a PyTreeDef of ``(args, kwargs)``: by
    their number, or by the first that has another structure."""
    (wanted, ours), (passed, theirs) = traced.children(), given.children()
    if len(wanted.children()) != len(passed.children()):
        takes = names, ours.node_data()[1]
        return arguments_text("the program", takes, len(passed.children()), theirs.node_data()[1])
    pairs = zip(names, wanted.children(), passed.children(), strict=True)
    name, a, b = next((p for p in pairs if p[1] != p[2]), ("the arguments by name", ours, theirs))
    return f"{name} has the structure {_structure(b)}, and was traced with {_structure(a)}"


def _arguments(tree: Any) -> str:
    """The structure of ``(args, kwargs)``, the second only where there are any."""
    positional, named = tree.children()
    return _structure(tree if named.num_leaves else positional)


def _structure(tree: Any) -> str:
    """A PyTreeDef for people, without the name of its type."""
    return shorten(str(tree).removeprefix("PyTreeDef(").removesuffix(")"), _WIDTH, placeholder=" ...")


def _fits(leaf: Any, spec: JaxLeaf) -> bool:
    """Whether the leaf is what the program takes, as it is."""
    plain = type(leaf) is np.ndarray or type(leaf) is Array
    return plain and spec.key_impl is None and leaf.shape == spec.dims and leaf.dtype == spec.dtype


def _value(leaf: Any, spec: JaxLeaf, name: str) -> Any:
    """One argument as the program takes it, checked."""
    if isinstance(leaf, (bool, int, float, complex)) and not isinstance(leaf, np.generic):
        return _scalar(leaf, spec, name)
    if spec.key_impl is not None:
        import jax

        leaf = jax.random.key_data(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if shape is None or dtype is None:
        raise InputError(f"{kind_text(leaf)} is not an array", where=name)
    if tuple(shape) != spec.dims:
        raise InputError(f"the argument has shape {tuple(shape)}, but the program takes {spec.dims}", where=name)
    if np.dtype(dtype) != spec.dtype:
        return _other_type(leaf, spec, name)
    return _global(leaf) if _is_jax_array(leaf) else np.asarray(leaf) if isinstance(leaf, np.generic) else leaf


def _scalar(leaf: Any, spec: JaxLeaf, name: str) -> NDArray[Any]:
    kinds = {bool: "b", int: "iu", float: "fV", complex: "c"}
    allowed = "".join(v for k, v in kinds.items() if isinstance(leaf, k))
    ok = spec.dtype.kind in allowed or (spec.weak and np.can_cast(np.min_scalar_type(leaf), spec.dtype, "same_kind"))
    if spec.dims or not ok:
        raise InputError(
            f"the argument is the scalar {leaf!r}, but the program takes {spec.dtype}{list(spec.dims)}", where=name
        )
    return np.asarray(leaf, dtype=spec.dtype)


def _other_type(leaf: Any, spec: JaxLeaf, name: str) -> Any:
    """64-bit arrays of NumPy's and ours, where JAX works in 32 bits: converted, as jit does. All else is an error."""
    import jax

    ours = isinstance(leaf, (np.ndarray, np.generic, Array))
    if ours and jax.dtypes.canonicalize_dtype(leaf.dtype) == spec.dtype:
        return leaf.astype(spec.dtype)
    raise InputError(
        f"the argument has dtype {leaf.dtype}, but the program takes {spec.dtype}",
        where=name,
        fix=f"convert it: x.astype({str(spec.dtype)!r})",
    )


def _global(leaf: Any) -> Any:
    """An array of JAX's: whole, or by parts where no process has all of them."""
    import jax

    from shardc.launcher.arrays.make_arrays import array

    parts = not isinstance(leaf, jax.core.Tracer) and not leaf.is_fully_addressable
    return array(leaf, leaf.sharding) if parts else np.asarray(leaf)


def _is_jax_array(leaf: Any) -> bool:
    import jax

    return isinstance(leaf, jax.Array)


def _wrapped(result: Any, spec: JaxLeaf) -> Any:
    if spec.key_impl is None:
        return result
    import jax

    # Every rank calls the program, and keys are small: all of them get all keys.
    return jax.random.wrap_key_data(gather(result), impl=spec.key_impl)
