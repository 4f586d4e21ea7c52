"""The op set: the one list of opcodes, with family, arity and attributes.

Every other concern (shape inference, NumPy meaning, factor rule, partition rule, emitter) is a table keyed by
these opcodes, in files split by the same families. A test holds their keys equal to this list.

Attribute names and meanings are HLO text's. The kind in an attribute row tells reader, printer and verifier the
type of the value in ``Instruction.attrs``:

======================  =====================================================================
kind                    value
======================  =====================================================================
``int``                 int
``float``               float
``bool``                bool
``str``                 str, printed quoted
``enum``                str, printed bare (``direction=LT``)
``ints``                tuple of int, ``dimensions={0,1}``
``enums``               tuple of str, ``operand_precision={highest,default}``
``slice``               tuple of (start, limit, stride), ``slice={[0:2:1], [1:3:1]}``
``padding``             tuple of (low, high, interior), ``padding=0_1_0x2_0``
``window``              `Window`
``dim_labels``          `ConvDims`, ``b01f_01io->b01f``
``computation``         `Computation`
``computations``        tuple of `Computation`
``groups``              `ReplicaGroups`
``pairs``               `Pairs`
``literal``             `Literal`
``shape``               `Shape`
``shapes``              tuple of `Shape`
``raw``                 text between matching brackets or quotes, kept verbatim
======================  =====================================================================

An absent attribute means HLO's default; ``*`` marks attributes that must be there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["COLLECTIVES", "FAMILIES", "OPS", "ConvDims", "Op", "Window", "WindowDim"]


@dataclass(frozen=True, slots=True)
class WindowDim:
    """One dimension of a window, XLA's WindowDimension."""

    size: int
    stride: int = 1
    pad_low: int = 0
    pad_high: int = 0
    lhs_dilate: int = 1
    rhs_dilate: int = 1
    reversal: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """The window of a convolution or reduce-window, one `WindowDim` per (spatial) dimension."""

    dims: tuple[WindowDim, ...]


@dataclass(frozen=True, slots=True)
class ConvDims:
    """Which dimension of lhs, rhs and output of a convolution plays which role."""

    lhs_batch: int
    lhs_feature: int
    lhs_spatial: tuple[int, ...]
    rhs_input_feature: int
    rhs_output_feature: int
    rhs_spatial: tuple[int, ...]
    out_batch: int
    out_feature: int
    out_spatial: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Op:
    """One row: HLO opcode, family, number of operands (None: any), attribute kinds, and what it may do."""

    opcode: str
    family: str
    arity: int | None
    attributes: Mapping[str, str]
    required: frozenset[str]
    side_effect: bool = False


FAMILIES = (
    "elementwise",
    "contraction",
    "reduction",
    "shape",
    "indexing",
    "window",
    "linalg",
    "random",
    "control",
    "collective",
)

_UNARY = (
    "abs acos acosh asin asinh atanh cbrt ceil convert cosine count-leading-zeros cosh erf exponential "
    "exponential-minus-one floor imag is-finite log log-plus-one logistic negate not popcnt real round-nearest-afz "
    "round-nearest-even rsqrt sign sine sinh sqrt tan tanh bitcast-convert reduce-precision copy"
)
_BINARY = (
    "add atan2 and complex divide maximum minimum multiply or power remainder shift-left "
    "shift-right-arithmetic shift-right-logical subtract xor"
)
_DOT = (
    "lhs_contracting_dims:ints rhs_contracting_dims:ints lhs_batch_dims:ints rhs_batch_dims:ints "
    "operand_precision:enums"
)
_SET = "replica_groups:groups channel_id:int"
_GROUPS = f"{_SET} constrain_layout:bool use_global_device_ids:bool"
_CONV = (
    "window:window dim_labels*:dim_labels feature_group_count:int batch_group_count:int "
    "operand_precision:enums algorithm:enum convolution_kind:enum "
    "sparsity_config:raw block_scaling_config:raw"
)
_CUSTOM = (
    "custom_call_target*:str window:window dim_labels:dim_labels feature_group_count:int batch_group_count:int "
    "custom_call_has_side_effect:bool api_version:enum schedule:enum operand_layout_constraints:shapes "
    "output_to_operand_aliasing:raw to_apply:computation called_computations:computations literal:literal "
    "operand_precision:enums padding_type:enum"
)

# family | opcode | arity (* any) | attributes; a leading ! marks a side effect
_TABLE = f"""
elementwise | compare | 2 | direction*:enum type:enum
elementwise | stochastic-convert | 2 |
elementwise | select | 3 |
elementwise | clamp | 3 |
elementwise | map | * | to_apply*:computation dimensions:ints
contraction | dot | 2 | {_DOT} algorithm:enum sparsity_config:raw block_scaling_config:raw
contraction | ragged-dot | * | {_DOT} lhs_ragged_dims:ints rhs_group_dims:ints
contraction | scaled-dot | 4 | {_DOT} algorithm:enum
reduction | reduce | * | dimensions*:ints to_apply*:computation
reduction | topk | * | k*:int largest:bool is_stable:bool
reduction | sort | * | dimensions*:ints is_stable:bool to_apply*:computation
reduction | scan | * | dimensions:ints to_apply*:computation is_reverse:bool is_associative:enum num_carries:int
shape | broadcast | 1 | dimensions*:ints
shape | reshape | 1 | inferred_dimension:int
shape | bitcast | 1 |
shape | transpose | 1 | dimensions*:ints
shape | concatenate | * | dimensions*:ints
shape | slice | 1 | slice*:slice
shape | pad | 2 | padding*:padding
shape | reverse | 1 | dimensions*:ints
shape | iota | 0 | iota_dimension*:int
shape | constant | 0 | literal*:literal
shape | get-dimension-size | 1 | dimensions*:ints
shape | set-dimension-size | 2 | dimensions*:ints
shape | dynamic-reshape | * |
indexing | gather | 2 | offset_dims*:ints collapsed_slice_dims*:ints start_index_map*:ints operand_batching_dims:ints \
start_indices_batching_dims:ints index_vector_dim*:int slice_sizes*:ints indices_are_sorted:bool
indexing | scatter | * | update_window_dims*:ints inserted_window_dims*:ints scatter_dims_to_operand_dims*:ints \
input_batching_dims:ints scatter_indices_batching_dims:ints index_vector_dim*:int indices_are_sorted:bool \
unique_indices:bool to_apply*:computation
indexing | dynamic-slice | * | dynamic_slice_sizes*:ints
indexing | dynamic-update-slice | * |
window | convolution | 2 | {_CONV}
window | reduce-window | * | window*:window to_apply*:computation
window | select-and-scatter | 3 | window*:window select*:computation scatter*:computation
linalg | cholesky | 1 | lower:bool
linalg | triangular-solve | 2 | left_side:bool lower:bool unit_diagonal:bool transpose_a:enum
linalg | fft | 1 | fft_type*:enum fft_length*:ints
linalg | batch-norm-training | 3 | epsilon*:float feature_index*:int
linalg | batch-norm-inference | 5 | epsilon*:float feature_index*:int
linalg | batch-norm-grad | 5 | epsilon*:float feature_index*:int
random | rng | 2 | distribution*:enum
random | rng-bit-generator | 1 | algorithm*:enum
random | rng-get-and-update-state | 0 | delta*:int
control | parameter | 0 | index*:int parameter_replication:raw
control | tuple | * |
control | get-tuple-element | 1 | index*:int
control | call | * | to_apply*:computation is_composite:bool
control | while | 1 | condition*:computation body*:computation
control | conditional | * | branch_computations:computations true_computation:computation \
false_computation:computation
control | fusion | * | kind*:enum calls*:computation output_to_operand_aliasing:raw
control | custom-call | * | {_CUSTOM}
control | optimization-barrier | 1 |
control | after-all | * |
control | add-dependency | 2 |
control | domain | 1 | domain*:raw
control | copy-start | 1 | cross_program_prefetch_index:int
control | copy-done | 1 |
control | async-start | * | calls*:computation async_execution_thread:str output_to_operand_aliasing:raw
control | async-update | * | calls:computation async_execution_thread:str
control | async-done | 1 | calls:computation async_execution_thread:str
control | !infeed | 1 | infeed_config:raw
control | !outfeed | 2 | outfeed_config:raw outfeed_shape:shape
collective | all-reduce | * | {_GROUPS} to_apply*:computation mode:enum
collective | all-reduce-start | * | {_GROUPS} to_apply*:computation mode:enum
collective | all-reduce-done | 1 |
collective | all-gather | * | {_GROUPS} dimensions*:ints
collective | all-gather-start | * | {_GROUPS} dimensions*:ints
collective | all-gather-done | 1 |
collective | reduce-scatter | * | {_GROUPS} dimensions*:ints to_apply*:computation mode:enum
collective | all-to-all | * | {_SET} constrain_layout:bool dimensions:ints
collective | ragged-all-to-all | 6 | {_SET} dimensions:ints
collective | collective-broadcast | * | {_SET} has_dynamic_root:bool
collective | collective-permute | * | channel_id:int source_target_pairs*:pairs slice_sizes:raw
collective | collective-permute-start | * | channel_id:int source_target_pairs*:pairs slice_sizes:raw
collective | collective-permute-done | 1 |
collective | partition-id | 0 |
collective | replica-id | 0 |
collective | !send | 2 | channel_id:int is_host_transfer:bool
collective | !send-done | 1 | channel_id:int is_host_transfer:bool
collective | !recv | 1 | channel_id:int is_host_transfer:bool
collective | !recv-done | 1 | channel_id:int is_host_transfer:bool
"""

_ACCURATE = (
    "acos acosh asin asinh atanh cbrt cosine cosh erf exponential exponential-minus-one log log-plus-one logistic "
    "rsqrt sine sinh sqrt tan tanh"
)
_UNARY_ATTRIBUTES = {
    "reduce-precision": "exponent_bits*:int mantissa_bits*:int",
    **dict.fromkeys(_ACCURATE.split(), "result_accuracy:raw"),
}


def _row(family: str, opcode: str, arity: str, attributes: str) -> Op:
    kinds: dict[str, str] = {}
    required: set[str] = set()
    for item in attributes.split():
        name, kind = item.split(":")
        if name.endswith("*"):
            name = name[:-1]
            required.add(name)
        kinds[name] = kind
    return Op(
        opcode.lstrip("!"),
        family,
        None if arity == "*" else int(arity),
        MappingProxyType(kinds),
        frozenset(required),
        opcode.startswith("!"),
    )


def _ops() -> dict[str, Op]:
    rows = [_row("elementwise", o, "1", _UNARY_ATTRIBUTES.get(o, "")) for o in _UNARY.split()]
    rows += [_row("elementwise", o, "2", "") for o in _BINARY.split()]
    for line in _TABLE.strip().splitlines():
        family, opcode, arity, attributes = (part.strip() for part in line.split("|"))
        rows.append(_row(family, opcode, arity, attributes))
    rows.sort(key=lambda r: (FAMILIES.index(r.family), r.opcode))
    return {r.opcode: r for r in rows}


OPS: Mapping[str, Op] = MappingProxyType(_ops())

#: Opcodes that move data between devices (synchronous forms and starts).
COLLECTIVES = frozenset(
    o for o, r in OPS.items() if r.family == "collective" and not o.endswith(("-done", "-id")) and not r.side_effect
)
