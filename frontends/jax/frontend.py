"""JAX programs in: functions, jitted functions, and JAX's own stages become a `JaxProgram`.

Nothing here compiles or runs with XLA, or opens a device: functions are traced and lowered for CPU, under an
abstract mesh where one is given, so a mesh may have more devices than the machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from shardc.frontends.foreign import is_torch
from shardc.frontends.jax.arguments import abstract_mesh, laid_out
from shardc.frontends.jax.callbacks import with_callbacks
from shardc.frontends.jax.effects import lowering_refused
from shardc.frontends.jax.layouts import LaidOut, Layouts, is_uneven, layouts_of, layouts_of_arrays
from shardc.frontends.jax.program import JaxLeaf, JaxProgram, JaxSignature
from shardc.hlo.errors import AnnotationError, EnvironmentProblem, InputError, UnsupportedError
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import array_shape, dtype_of
from shardc.hlo.stablehlo.reader import module_from_mlir, read_stablehlo
from shardc.hlo.stablehlo.refine import refine_shapes
from shardc.hlo.units import kind_text
from shardc.launcher.arrays.meshes import as_mesh
from shardc.launcher.jobs.accelerators import keep_jax_on_cpu
from shardc.sharding.notations.partition_spec import PartitionSpec

__all__ = [
    "JaxLeaf", "JaxLowering", "JaxProgram", "exported_from_bytes", "lower", "lower_function",
    "module_from_jax", "require_jax",
]  # fmt: skip

#: Frames between a user and JAX that are ours.
_OWN_FOLDERS = (str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "stages"))


@dataclass(frozen=True, slots=True)
class JaxLowering:
    """What JAX lowered, not read yet: an ``ir.Module`` of jaxlib and how its values belong to pytrees.

    ``kept`` are the arguments that jit kept, None where this JAX does not tell. ``mesh`` is the one that was asked
    for. ``callbacks`` are the Python functions that the program calls, by the index in its calls.
    """

    mlir: Any
    signature: JaxSignature
    kept: Any
    mesh: Mesh | None = None
    callbacks: tuple[Callable[..., Any], ...] = ()
    layouts: Layouts = field(default_factory=Layouts)
    uneven: bool = False

    def content(self) -> str:
        """A digest that tells the program from all others, shardings, names and source lines included; to be asked
        for before `read`. Empty where this JAX tells too little to go by it."""
        from shardc.hlo.stablehlo.mlir.bindings import bytecode

        if self.kept is None:
            return ""
        return hashlib.sha256(
            f"{self.mesh!r} {self.layouts!r} {self.uneven}\n{__file__}\n".encode() + bytecode(self.mlir)
        ).hexdigest()

    def signature_with(self, names: tuple[str, ...]) -> JaxSignature:
        """The signature of a lowering that has a content; ``names`` are those of the parameters."""
        return replace(self.signature, kept=tuple(sorted(self.kept)), names=names)

    def read(self) -> JaxProgram:
        """The program; raises UnsupportedError for what shardc does not know."""
        module = module_from_mlir(self.mlir, own_folders=_OWN_FOLDERS)
        constants, count = len(self.signature.constants), len(self.signature.arguments)
        kept = _kept_arguments(self.kept, count, module, constants)
        module = _named_by_position(module, kept, constants)
        program = _checked(JaxProgram.of(replace(self.signature, kept=kept), module, self.mlir, self.callbacks))
        if self.mesh is not None and module.mesh is not None and module.mesh.size != self.mesh.size:
            raise AnnotationError(
                f"the function shards values over {module.mesh}, but mesh= or an argument is over {self.mesh}",
                fix="use the function's mesh there, or only PartitionSpecs in the function",
            )
        if self.mesh is not None and module.mesh is None:
            # Nothing was sharded, or this JAX writes shardings without names.
            from shardc.sharding.notations.tile_assignments import convert_to_axes

            module = convert_to_axes(module.with_(mesh=self.mesh, num_partitions=self.mesh.size))
        module = self.layouts.put_on(module, kept, constants)
        return replace(program, module=module.with_(uneven_interface=self.uneven))


def module_from_jax(obj: Any, /, *args: Any, **kwargs: Any) -> JaxProgram:
    """The program of ``obj``: a function or jitted function called with ``args`` and ``kwargs``, or a
    ``jax.stages.Traced``, ``jax.stages.Lowered`` or ``jax.export.Exported`` (without arguments; those of an Exported
    with symbolic dimensions say what these are).

    Arguments may be arrays, ``jax.ShapeDtypeStruct``, `ShapeDtype` or Python scalars; only shape, dtype and sharding of
    an array are used: JAX's NamedSharding (over a Mesh or AbstractMesh), or ours where the function gives none.
    Example::

        program = module_from_jax(jax.jit(step, donate_argnums=0), state, jax.ShapeDtypeStruct((8, 65), "int32"))

    Raises EnvironmentProblem without JAX, InputError for other objects, UnsupportedError as the reader does.
    """
    jax = require_jax()
    if is_torch(obj):
        raise InputError(
            f"{type(obj).__name__} belongs to PyTorch, not to JAX", fix="use shardc.from_torch(module, (x,))"
        )
    if _is_exported(jax, obj):
        return _from_exported(jax, obj, args, kwargs)
    if isinstance(obj, (jax.stages.Lowered, jax.stages.Traced)):
        if args or kwargs:
            raise InputError(
                f"{kind_text(obj)} takes no further arguments",
                fix="omit the arguments: it already has them",
            )
        if isinstance(obj, jax.stages.Traced):
            keep_jax_on_cpu()
            obj = with_callbacks(obj)()
        return _lowering(jax, obj).read()
    if not callable(obj):
        raise InputError(
            f"cannot make a program from {kind_text(obj)}",
            fix="pass a function, a jitted function, or a Traced, Lowered or Exported stage of JAX",
        )
    jitted = obj if hasattr(obj, "trace") else jax.jit(obj)
    try:
        return _lower_laid_out(jax, jitted, args, kwargs).read()
    except ValueError as e:
        if not is_uneven(e):
            raise
        raise _even_only(
            e,
            "use shardc.jit(...).program(...), which accepts unequal shards, or pass None here and annotate with "
            "program.annotate(...)",
        ) from None


def lower_function(fn: Callable[..., Any], *args: Any, **options: Any) -> JaxProgram:
    """`lower`, read at once."""
    return lower(fn, *args, **options).read()


def lower(
    fn: Callable[..., Any],
    mesh: Any = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    donate_argnums: int | Sequence[int] | None = None,
    static_argnums: int | Sequence[int] | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> JaxLowering:
    """What ``jax.jit(fn, ...)`` would lower for these arguments, on ``mesh``, however many devices it has.

    ``mesh`` is ours, or JAX's Mesh or AbstractMesh. Shardings are pytree prefixes of the arguments or results with
    leaves None (unspecified), a PartitionSpec (ours or JAX's, over ``mesh``) or a NamedSharding. Inside ``fn``,
    ``with_sharding_constraint(x, PartitionSpec(...))`` refers to ``mesh``, unless ``fn`` gives ``shard_map`` another
    mesh object of the same axes: then it is traced as JAX does without a mesh around it.
    """
    jax = require_jax()
    abstract = None if mesh is None else abstract_mesh(mesh)
    numbers = () if static_argnums is None else tuple(np.atleast_1d(static_argnums).tolist())
    options: dict[str, Any] = {"static_argnums": numbers} if numbers else {}
    if donate_argnums is not None:
        options["donate_argnums"] = donate_argnums
    trees = {"in_shardings": in_shardings, "out_shardings": out_shardings}
    given = {name: _named_shardings(jax, t, abstract, name) for name, t in trees.items() if t is not None}

    def lowered(shardings: Mapping[str, Any]) -> JaxLowering:
        jitted = jax.jit(fn, **options, **shardings)
        return _in_mesh(jax, abstract, lambda: _lower_jitted(jax, jitted, args, kwargs or {}, (numbers, ())))

    layouts = Layouts()
    if in_shardings is not None:
        args = _without_own_layouts(jax, args, in_shardings, _static_positions(args, numbers))
    try:
        lowering = lowered(given)
    except ValueError as e:
        if not is_uneven(e):
            raise
        _need_automatic_axes(abstract, e)
        lowering = lowered({})
        signature = lowering.signature
        layouts = Layouts(
            layouts_of(in_shardings, signature.in_tree.children()[0], "in_shardings"),
            layouts_of(out_shardings, signature.out_tree, "out_shardings"),
        )
    own = layouts_of_arrays(lowering.signature.leaves(args, kwargs or {}))
    asked = layouts.arguments or (None,) * len(own)
    layouts = replace(layouts, arguments=tuple(a or b for a, b in zip(asked, own, strict=True)))
    over = layouts.mesh if abstract is None else as_mesh(abstract)
    return replace(lowering, mesh=over, layouts=layouts, uneven=True)


def _without_own_layouts(jax: Any, args: Sequence[Any], given: Any, static: Set[int]) -> tuple[Any, ...]:
    """The arguments, without the layouts of those for which a sharding is ``given``."""
    specs = (PartitionSpec, jax.sharding.PartitionSpec)
    dynamic = [a for n, a in enumerate(args) if n not in static]
    one = isinstance(given, specs) or not isinstance(given, (tuple, list))
    prefixes = [given] * len(dynamic) if one else list(given)

    def place(sharding: Any, part: Any) -> Any:
        return part if sharding is None else jax.tree_util.tree_map(lambda x: _abstract_leaf(jax, x, False), part)

    def is_leaf(x: Any) -> bool:
        return x is None or isinstance(x, specs)

    try:
        pairs = zip(prefixes, dynamic, strict=True)
        placed = iter([jax.tree_util.tree_map(place, prefix, part, is_leaf=is_leaf) for prefix, part in pairs])
    except ValueError:  # they do not fit each other: JAX's message says how
        return tuple(args)
    return tuple(a if n in static else next(placed) for n, a in enumerate(args))


def _in_mesh(jax: Any, abstract: Any, lower: Callable[[], JaxLowering]) -> JaxLowering:
    """What ``lower`` makes of a function with the mesh around it, or without one if the function has its own."""
    try:
        with _mesh_context(jax, abstract):
            return lower()
    except ValueError as e:
        if abstract is None or "ontext mesh" not in str(e) or "match the mesh" not in str(e):
            raise
        return _with_meshes_of_its_own(lower, e)


def _with_meshes_of_its_own(lower: Callable[[], JaxLowering], refused: ValueError) -> JaxLowering:
    """A function that JAX ``refused`` to trace with our mesh around it."""
    try:
        return lower()
    except (ValueError, RuntimeError) as e:
        raise AnnotationError(
            f"the function needs a surrounding mesh, but uses another mesh itself: {refused}. Without a "
            f"surrounding mesh: {e}",
            fix="pass the mesh that the function uses as mesh=",
        ) from None


def exported_from_bytes(
    data: bytes, file: str = "", args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> JaxProgram:
    """A program from the bytes of ``jax.export.Exported.serialize()``; InputError where they are something else.

    Arguments make symbolic dimensions concrete.
    """
    jax = require_jax()
    try:
        exported = _export_module(jax).deserialize(bytearray(data))
    except ImportError as e:
        raise EnvironmentProblem(f"a serialized Exported cannot be read: {e}", fix="pip install flatbuffers") from None
    except Exception as e:
        raise InputError(f"the file is not a serialized jax.export.Exported: {e}", where=file or None) from None
    return _from_exported(jax, exported, args, kwargs or {}, file)


def require_jax() -> Any:
    """The module ``jax``; EnvironmentProblem naming the extra where it is missing."""
    try:
        import jax
        import jax.stages
    except ImportError as e:
        raise EnvironmentProblem(f"this needs JAX: {e}", fix="install the extra: pip install 'shardc[jax]'") from None
    return jax


def _export_module(jax: Any) -> Any:
    try:
        from jax import export
    except ImportError:
        return None
    return export


def _is_exported(jax: Any, obj: Any) -> bool:
    export = _export_module(jax)
    return export is not None and isinstance(obj, export.Exported)


def _static_arguments(jitted: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Static argument numbers and names of a jitted function, where this JAX tells."""
    info = getattr(jitted, "_jit_info", None)
    return tuple(getattr(info, "static_argnums", None) or ()), tuple(getattr(info, "static_argnames", None) or ())


def _lower_jitted(
    jax: Any,
    jitted: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    static: tuple[tuple[int, ...], tuple[str, ...]],
) -> JaxLowering:
    numbers = _static_positions(args, static[0])

    def abstract(tree: Any) -> Any:
        return jax.tree_util.tree_map(lambda x: _abstract_leaf(jax, x), tree)

    positional = [a if i in numbers else abstract(a) for i, a in enumerate(args)]
    keep_jax_on_cpu()
    named = {k: v if k in static[1] else abstract(v) for k, v in kwargs.items()}
    traced = None
    try:
        traced = jitted.trace(*positional, **named)
        lowered = with_callbacks(traced)()
    except Exception as e:
        refused = lowering_refused(traced, e) if traced is not None else None
        if refused is not None:
            raise refused from None
        raise
    return _lowering(jax, lowered, static)


def _need_automatic_axes(abstract: Any, refused: ValueError) -> None:
    """Raise for a mesh with axes of JAX's type Explicit, of which the types of values inside tell, evenly."""
    if any(kind.name == "Explicit" for kind in getattr(abstract, "axis_types", None) or ()):
        raise _even_only(refused, "use a mesh with axes of type Auto, as shardc.Mesh has them") from None


def _lower_laid_out(jax: Any, jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> JaxLowering:
    """`_lower_jitted`, with the layouts of our own arrays and shapes among the arguments."""
    static = _static_arguments(jitted)
    fixed = _static_positions(args, static[0])
    args = [a if n in fixed else jax.tree_util.tree_map(laid_out, a) for n, a in enumerate(args)]
    kwargs = {k: v if k in static[1] else jax.tree_util.tree_map(laid_out, v) for k, v in kwargs.items()}
    leaves = jax.tree_util.tree_leaves((args, kwargs))
    mesh = next((x.sharding.mesh for x in leaves if isinstance(x, LaidOut)), None)
    over = None if mesh is None else abstract_mesh(mesh)
    lowering = _in_mesh(jax, over, lambda: _lower_jitted(jax, jitted, args, kwargs, static))
    layouts = Layouts(layouts_of_arrays(lowering.signature.leaves(args, kwargs)))
    return replace(lowering, mesh=mesh, layouts=layouts, uneven=mesh is not None)


def _even_only(refused: ValueError, fix: str) -> AnnotationError:
    return AnnotationError(f"JAX needs equal shards of arguments and results: {refused}", fix=fix)


def _static_positions(args: Sequence[Any], numbers: Sequence[int]) -> frozenset[int]:
    """The static ones among the arguments that are given by position."""
    count = len(args)
    return frozenset(n % count for n in numbers if -count <= n < count)


def _abstract_leaf(jax: Any, x: Any, keep_sharding: bool = True) -> Any:
    """Shape and dtype of an array; Python scalars stay as they are (JAX types them weakly)."""
    if isinstance(x, (bool, int, float, complex)) or not (hasattr(x, "shape") and hasattr(x, "dtype")):
        return x
    given = getattr(x, "sharding", None)
    sharding = given if keep_sharding and isinstance(given, jax.sharding.NamedSharding) else None
    weak = bool(getattr(x, "weak_type", False))
    dtype = x.dtype
    if not jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        dtype = jax.dtypes.canonicalize_dtype(dtype)
    return jax.ShapeDtypeStruct(x.shape, dtype, sharding=sharding, weak_type=weak)


def _lowering(jax: Any, lowered: Any, static: tuple[tuple[int, ...], tuple[str, ...]] = ((), ())) -> JaxLowering:
    infos = jax.tree_util.tree_leaves(lowered.args_info)
    avals = jax.tree_util.tree_leaves(lowered.in_avals)
    arguments = tuple(_leaf(jax, aval, donated=bool(info.donated)) for aval, info in zip(avals, infos, strict=True))
    outputs = tuple(_leaf(jax, o) for o in jax.tree_util.tree_leaves(lowered.out_info))
    inner = getattr(lowered, "_lowering", None)
    constants = tuple(np.asarray(c) for c in getattr(inner, "const_args", None) or ())
    given = getattr(inner, "compile_args", {})
    kept, callbacks = given.get("kept_var_idx"), tuple(given.get("host_callbacks") or ())
    signature = JaxSignature(lowered.in_tree, lowered.out_tree, arguments, outputs, (), constants, *static)
    return JaxLowering(lowered.compiler_ir("stablehlo"), signature, kept, callbacks=callbacks)


def _from_exported(
    jax: Any, exported: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] = MappingProxyType({}), file: str = ""
) -> JaxProgram:
    if len(exported.platforms) > 1:
        raise UnsupportedError(
            f"the program is exported for several platforms: {', '.join(exported.platforms)}",
            fix='export it for one platform: jax.export.export(fn, platforms=["cpu"])',
        )
    data, avals = bytes(exported.mlir_module_serialized), tuple(exported.in_avals)
    if args or kwargs:
        avals = _concrete(jax, exported, args, kwargs)
        taken = [_leaf(jax, avals[k]) for k in sorted(exported.module_kept_var_idx)]
        data = refine_shapes(data, [array_shape(dtype_of(leaf.dtype), *leaf.dims) for leaf in taken], file)
    module = read_stablehlo(data, file)
    outputs = exported.out_avals
    if args or kwargs:
        outputs = [o.update(shape=s.dims) for o, s in zip(outputs, module.results, strict=True)]
    arguments = tuple(_leaf(jax, a) for a in avals)
    results = tuple(_leaf(jax, a) for a in outputs)
    kept = _kept_arguments(exported.module_kept_var_idx, len(arguments), module, 0)
    module = _named_by_position(module, kept, 0)
    signature = JaxSignature(exported.in_tree, exported.out_tree, arguments, results, kept)
    return _checked(JaxProgram.of(signature, module, data))


def _concrete(jax: Any, exported: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The Exported's flat arguments with the shapes of those that are given."""
    leaves, tree = jax.tree_util.tree_flatten((tuple(args), dict(kwargs)))
    if tree != exported.in_tree:
        raise InputError(
            f"the arguments have the structure {tree}",
            fix=f"the exported program takes {exported.in_tree}",
        )
    given = zip(exported.in_avals, leaves, strict=True)
    return tuple(aval.update(shape=tuple(np.shape(x) if np.isscalar(x) else x.shape)) for aval, x in given)


def _kept_arguments(known: Any, count: int, module: Module, constants: int) -> tuple[int, ...]:
    if known is not None:
        return tuple(sorted(known))
    if len(module.parameters) - constants != count:
        raise UnsupportedError(
            "this release of JAX does not expose which arguments jit removed",
            fix="use jax.jit(fn, keep_unused=True)",
        )
    return tuple(range(count))


def _named_by_position(module: Module, kept: Sequence[int], constants: int) -> Module:
    """Arguments without a name are called by their position among the function's, those that jit dropped counted."""
    numbers = [*(f"constant{n}" for n in range(constants)), *(f"arg{n}" for n in kept)]
    given = module.arg_names or ("",) * len(numbers)
    return module.with_(arg_names=tuple(name or number for name, number in zip(given, numbers, strict=False)))


def _checked(program: JaxProgram) -> JaxProgram:
    """What JAX passes in and out besides the function's own values, shardc knows nothing of."""
    module = program.module
    tokens = any(p.shape.is_token for p in module.parameters) or any(s.is_token for s in module.results)
    expected = len(program.constants) + len(program.kept)
    if tokens or len(module.parameters) != expected or len(module.results) != len(program.results):
        raise UnsupportedError(
            "JAX adds parameters or results to this function",
            fix="pass the function itself, and remove ordered effects from it",
        )
    return program


def _leaf(jax: Any, aval: Any, *, donated: bool = False) -> JaxLeaf:
    dtype, dims = aval.dtype, tuple(aval.shape)
    if any(not isinstance(d, int) for d in dims):
        raise UnsupportedError(
            f"the symbolic shape {dims} is not supported",
            fix="give arguments: shardc.from_jax(exported, *args), or shardc.load(path, *args)",
        )
    if jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        impl: list[str] = []

        def data_of(key: Any) -> Any:
            impl.append(str(jax.random.key_impl(key)))
            return jax.random.key_data(key)

        data = jax.eval_shape(data_of, jax.ShapeDtypeStruct(dims, dtype))
        return JaxLeaf(tuple(data.shape), np.dtype(data.dtype), False, impl[0], donated)
    return JaxLeaf(dims, np.dtype(dtype), bool(getattr(aval, "weak_type", False)), None, donated)


def _mesh_context(jax: Any, abstract: Any) -> AbstractContextManager[Any]:
    use = getattr(jax.sharding, "use_abstract_mesh", None)
    return nullcontext() if abstract is None or use is None else use(abstract)


def _named_shardings(jax: Any, tree: Any, mesh: Any, what: str) -> Any:
    specs = (PartitionSpec, jax.sharding.PartitionSpec)

    def named(leaf: Any) -> Any:
        if not isinstance(leaf, specs):
            return leaf
        if mesh is None:
            raise AnnotationError(f"{leaf} in {what} needs a mesh", fix="pass mesh=shardc.Mesh({...}) too")
        return jax.sharding.NamedSharding(mesh, _jax_spec(jax, leaf, what))

    return jax.tree_util.tree_map(named, tree, is_leaf=lambda x: x is None or isinstance(x, specs))


def _jax_spec(jax: Any, spec: Any, what: str) -> Any:
    entries = []
    for entry in spec:
        if repr(entry) == "UNCONSTRAINED":
            raise AnnotationError(
                f"{spec} in {what}: UNCONSTRAINED is for constraints inside the function",
                fix="give None instead of the spec to leave the whole value unspecified",
            )
        entries.append(tuple(str(e) for e in entry) if isinstance(entry, tuple) else entry)
    return jax.sharding.PartitionSpec(*entries)
