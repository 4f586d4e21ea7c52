"""The custom calls that shardc knows: what they mean as other HLO, and the errors for those that it does not know.

Known are markers (the value goes through), the ``check.*`` calls of self-checking programs, LAPACK's routines
(`shardc.hlo.ir.lapack`) and calls that stand for other HLO ops, which `expand_custom_call` writes out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from shardc.hlo.errors import InputError, UnsupportedError
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.custom_calls import CALLBACKS, CHECKS, INSPECTION, MARKERS, SINK, CustomCalls, Expand
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.lapack import LAPACK, PREFIXES, attributes_of
from shardc.hlo.ir.types import tuple_shape
from shardc.hlo.transforms.expand_lapack_layouts import expand_layouts, has_other_layouts
from shardc.hlo.transforms.expand_tridiagonal import expand_tridiagonal

__all__ = ["expand_custom_call", "is_known", "known_targets", "require_computable", "require_new", "unknown_call"]


def _top_k(b: Builder, call: Instruction, operand: Instruction) -> Instruction:
    """The largest elements of each row with their positions; a comparator or ``largest`` may ask for the smallest."""
    values = next(call.shape.leaves())
    largest = attributes_of(call).get("largest", True)
    for comparator in call.attrs.get("called_computations", ()):
        largest = comparator.root.attrs.get("direction") != "LT"
    return b.add("topk", operand, shape=call.shape.plain, k=values.dims[-1], largest=bool(largest))


def _approximate_top_k(b: Builder, call: Instruction, *operands: Instruction) -> Instruction:
    """An exact answer is a good approximation: sort by the comparator, keep the beginning."""
    attributes = attributes_of(call)
    if len(operands) % 2 or not call.attrs.get("called_computations"):
        raise UnsupportedError(
            f"ApproxTopK with {len(operands)} operands and no comparator is not supported", where=f"%{call.name}"
        )
    arrays = operands[: len(operands) // 2]
    dim = int(attributes.get("reduction_dim", arrays[0].shape.rank - 1))
    shapes = [a.shape.plain for a in arrays]
    (comparator,) = call.attrs["called_computations"]
    whole = shapes[0] if len(shapes) == 1 else tuple_shape(*shapes)
    ordered = b.add("sort", *arrays, shape=whole, dimensions=(dim,), is_stable=True, to_apply=comparator)
    parts = []
    for k, result in enumerate(call.shape.leaves()):
        part = ordered if len(shapes) == 1 else b.add("get-tuple-element", ordered, shape=shapes[k], index=k)
        limits = tuple((0, n, 1) for n in result.dims)
        parts.append(b.add("slice", part, slice=limits))
    return parts[0] if not call.shape.is_tuple else b.add("tuple", *parts)


def _lapack(routine: str) -> Expand:
    """XLA's name for a factorisation that is LAPACK's, results and all."""

    def expand(b: Builder, call: Instruction, *operands: Instruction) -> Instruction:
        prefix = PREFIXES.get(operands[0].shape.dtype.name, "")
        name = f"lapack_{prefix}{routine.replace('or', 'un') if prefix in 'cz' else routine}_ffi"
        if name not in LAPACK:
            raise unknown_call(call, needs=f"computed for element type {operands[0].shape.dtype}")
        return b.add("custom-call", *operands, shape=call.shape.plain, custom_call_target=name)

    return expand


def _block_scaled_dot(b: Builder, call: Instruction, *operands: Instruction) -> Instruction:
    """XLA's product of rows with scales per block: leading dimensions are batches, the last ones are contracted."""
    if len(operands) != 4:
        raise UnsupportedError(
            f"{call.attrs['custom_call_target']} with {len(operands)} operands is not supported", where=call.place
        )
    rank = operands[0].shape.rank
    batch = tuple(range(rank - 2))
    return b.add(
        "scaled-dot",
        *operands,
        shape=call.shape.plain,
        lhs_contracting_dims=(rank - 1,),
        rhs_contracting_dims=(rank - 1,),
        lhs_batch_dims=batch,
        rhs_batch_dims=batch,
    )


def _any_bytes(b: Builder, call: Instruction) -> Instruction:
    """Memory whose content does not count is zero: the same in every run."""
    shape = call.shape.plain
    return b.add("broadcast", b.constant(0, shape.dtype), shape=shape, dimensions=())


def _one_op(opcode: str) -> Expand:
    def expand(b: Builder, call: Instruction, *operands: Instruction) -> Instruction:
        return b.add(opcode, *operands, shape=call.shape.plain)

    return expand


#: Calls that stand for other ops.
_EXPANSIONS: Mapping[str, Expand] = MappingProxyType(
    {
        "TopK": _top_k,
        "mhlo.topk": _top_k,
        "ApproxTopK": _approximate_top_k,
        "AllocateBuffer": _any_bytes,
        "__op$block_scaled_dot": _block_scaled_dot,
        "tridiagonal_solve_perturbed_ffi": expand_tridiagonal,
        "Qr": _lapack("geqrf"),
        "ProductOfElementaryHouseholderReflectors": _lapack("orgqr"),
        **{f"mhlo.{o}": _one_op(o) for o in ("acos", "acosh", "asin", "asinh", "atanh", "cosh", "erf", "sinh", "tan")},
    }
)


def expand_custom_call(call: Instruction, custom_calls: CustomCalls = MappingProxyType({})) -> Computation | None:
    """A computation of the call's operands that does what the call does; None where the call has no such form.

    Raises `InputError` when a user's expansion gives another shape than the call has.
    """
    target = call.attrs["custom_call_target"]
    own = custom_calls.get(target)
    known = expand_layouts if has_other_layouts(call) else _EXPANSIONS.get(target)
    expand = known if own is None else own.expand
    if expand is None:
        return None
    b = Builder(f"{target}.expanded", metadata=call.metadata, origin=call.origin)
    root = expand(b, call, *(b.parameter(o.shape.plain) for o in call.operands))
    if root.shape.plain != call.shape.plain:
        raise InputError(
            f"the expansion of {target} returns {root.shape}, but the call has shape {call.shape.plain}",
            where=call.place,
        )
    return b.build(root)


def require_computable(module: Module, custom_calls: CustomCalls) -> None:
    """Raise `UnsupportedError` for the first call that compiled code cannot make, or constant without a value."""
    for i in module.instructions():
        if i.opcode == "constant":
            i.attrs["literal"].require_value()
        if i.opcode != "custom-call":
            continue
        target = i.attrs["custom_call_target"]
        own = custom_calls.get(target)
        if target in CALLBACKS and own is not None and own.evaluate is not None:
            continue  # called where the program stops
        if own is not None and not own.address:
            raise unknown_call(i, custom_calls, "compiled")
        if own is None and not is_known(target):
            raise unknown_call(i, custom_calls)


def require_new(custom_calls: CustomCalls) -> None:
    """Raise `InputError` for a target that shardc knows, unless it is to be written as other HLO."""
    for target, own in custom_calls.items():
        if own.expand is None and is_known(target):
            raise InputError(f"shardc already implements the custom call {target!r}", fix="give expand to replace it")


def is_known(target: str) -> bool:
    """Whether shardc compiles the custom call itself."""
    return target in LAPACK or target in _EXPANSIONS or target in (*MARKERS, SINK) or target.startswith("check.")


def known_targets(custom_calls: CustomCalls = MappingProxyType({})) -> list[str]:
    """What an error lists: names, LAPACK's in one pattern."""
    routines = sorted({t[8:].removesuffix("_ffi") for t in LAPACK})
    return [*sorted({*MARKERS, *CHECKS, SINK, *_EXPANSIONS, *custom_calls}), f"lapack_[sdcz]({'|'.join(routines)})_ffi"]


_OTHER_PLATFORMS = re.compile(
    r"__(cu|cudnn|onednn|gpu|triton|mosaic|custom)\w*\$?|cu[a-z]*_|cu(blas|dnn|solver|sparse|fft)|hip|roc|miopen|"
    r"tpu_custom_call|Mosaic|mosaic|triton|xla\.gpu|gpu_|magma|LuDecomposition|Eigh|Svd|Schur",
)
_OUTSIDE = "pass the jitted function itself, make the call outside the function"
_EVALUATED = "shardc.CustomCall(evaluate=...)"
_CALLBACK = re.compile(r"xla_(ffi_)?(python|partitioned_python)\w*callback")


def unknown_call(
    call: Instruction, custom_calls: CustomCalls = MappingProxyType({}), needs: str = ""
) -> UnsupportedError:
    """The error for a call that nobody can compute; ``needs`` says what a registered one lacks."""
    target = call.attrs["custom_call_target"]
    if needs:
        fix = (
            f"give its shardc.CustomCall {'evaluate (NumPy)' if needs == 'evaluated' else 'an address (a C function)'}"
        )
        fix += ", or an expand (HLO instructions), which serves the evaluator and compiled code"
        return UnsupportedError(f"custom call {target!r} cannot be {needs}", where=call.place, fix=fix)
    if target == INSPECTION:
        fix = "remove it: `shardc explain` shows shardings; with JAX_PLATFORMS=shardc the call works"
        return UnsupportedError("jax.debug.inspect_array_sharding needs JAX's own compiler", where=call.place, fix=fix)
    if _CALLBACK.match(target):
        title = dict(call.attrs.get("frontend_attributes", ())).get("callback")
        called = f" ({title})" if title else ""
        fix = f"a file holds no functions: {_OUTSIDE}, or program.with_custom_calls({{{target!r}: {_EVALUATED}}})"
        return UnsupportedError(f"custom call {target!r} calls back into Python{called}", where=call.place, fix=fix)
    if _OTHER_PLATFORMS.match(target):
        fix = "pass the jitted function (or its jax.export for CPU) instead of a program lowered for that platform"
        return UnsupportedError(f"custom call {target!r} belongs to another platform", where=call.place, fix=fix)
    known = ", ".join(known_targets(custom_calls))
    register = f"register it with program.with_custom_calls({{{target!r}: shardc.CustomCall(...)}})"
    if call.attrs.get("api_version") == "API_VERSION_TYPED_FFI":
        # In a running JAX program there is nothing to register it with.
        register = f"call Python instead (jax.pure_callback), or in a shardc.from_jax program {register}"
    fix = f"{register}; known targets: {known}"
    return UnsupportedError(f"unknown custom call {target!r}", where=call.place, fix=fix)
