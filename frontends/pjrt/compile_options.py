"""What a program is compiled for: how many devices, which ones, and what propagation may decide."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardc.frontends.pjrt.protos.messages import CompileOptionsProto
from shardc.frontends.pjrt.protos.xla_options import check_xla_options
from shardc.hlo.errors import UnsupportedError

__all__ = ["EVEN_CONSTRAINTS", "CompileOptions"]

#: The option of ``compiler_options`` that `shardc.jit` gives where it can do better than JAX's even results.
EVEN_CONSTRAINTS = "shardc_even_constraints"


@dataclass(frozen=True)
class CompileOptions:
    """``devices`` are ids of the client's devices, by replica and partition: where the program runs (empty: where the
    client has it run). Propagation decides about shardings of ``free_arguments`` and ``free_results``, one flag per
    array or one for all. With ``even_constraints`` a free result that a constraint inside leaves in parts of unequal
    sizes is refused. ``message`` is the ``CompileOptionsProto`` that all this was read from."""

    num_replicas: int = 1
    num_partitions: int = 1
    devices: tuple[int, ...] = ()
    free_arguments: tuple[bool, ...] = (False,)
    free_results: tuple[bool, ...] = (False,)
    message: bytes = field(default=b"", repr=False)
    even_constraints: bool = False

    @property
    def num_devices(self) -> int:
        return self.num_replicas * self.num_partitions

    @staticmethod
    def read(message: bytes) -> CompileOptions:
        """From a serialized ``CompileOptionsProto``; `UnsupportedError` for layouts that are not row by row,
        `InputError` for options that XLA does not have either."""
        given = CompileOptionsProto.read(message)
        overrides = dict(given.env_option_overrides)
        even_constraints = overrides.pop(EVEN_CONSTRAINTS, None) is not None
        if overrides:
            check_xla_options(overrides)
        build = given.executable_build_options
        for shape in (*given.argument_layouts, *((build.result_layout,) if build.result_layout else ())):
            for leaf in shape.tuple_shapes or (shape,):
                order = leaf.layout.minor_to_major if leaf.layout else ()
                if order != tuple(reversed(range(len(order)))):
                    raise UnsupportedError(
                        f"the layout {{{','.join(map(str, order))}}} is not supported",
                        fix="omit the layout: shardc stores arrays row by row (major_to_minor=(0, 1, ...))",
                    )
        assignment = build.device_assignment
        columns = [c.replica_device_ids for c in assignment.computation_devices] if assignment else []
        return CompileOptions(
            max(1, build.num_replicas),
            max(1, build.num_partitions),
            tuple(device for row in zip(*columns, strict=True) for device in row),
            build.allow_spmd_sharding_propagation_to_parameters or (False,),
            build.allow_spmd_sharding_propagation_to_output or (False,),
            message,
            even_constraints,
        )
