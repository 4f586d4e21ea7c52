"""The HLO of a traced function as a module of ours, with the values of all constants and the user's lines."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shardc.frontends.foreign import describe_error, line_of_user
from shardc.frontends.pjrt.protos.hlo_messages import HloModuleProto
from shardc.frontends.pjrt.protos.modules import literal_of
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Instruction, Metadata, Module
from shardc.hlo.simplify.eliminate_dead import EliminateDead
from shardc.hlo.text.reader import read_hlo

__all__ = ["read_traced"]


def read_traced(function: Any, graph: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Module, str]:
    """The module of ``function`` for arguments, and a digest; ``graph`` has the operations of the trace.

    Raises UnsupportedError for what TensorFlow cannot compile, and for random numbers that depend on no argument.
    """
    try:
        compiler_ir = function.experimental_get_compiler_ir(*args, **kwargs)
        text = str(compiler_ir(stage="hlo"))
    except Exception as e:
        raise UnsupportedError(
            f"TensorFlow returned no HLO for the function: {describe_error(e)}",
            fix="make it with tf.function(f, jit_compile=True), for arguments of known shapes",
        ) from e
    module = read_hlo(text)
    digest = hashlib.sha256(text.encode())
    # Nobody else has the module yet, so its instructions are completed in place.
    constants = {(c.name, i.name): i for c in module.computations for i in c if _left_out(i)}
    if constants:
        digest.update(_fill(constants, compiler_ir))
    lines: dict[str, tuple[str, int] | None] = {}
    for i in module.instructions():
        if i.metadata is not None:
            i.metadata = _with_line(i.metadata, graph, lines)
    digest.update(repr(lines).encode())
    _refuse_random_numbers(module)
    return module, digest.hexdigest()


def _left_out(i: Instruction) -> bool:
    return i.opcode == "constant" and i.attrs["literal"].is_left_out


def _fill(constants: Mapping[tuple[str, str], Instruction], compiler_ir: Callable[..., bytes]) -> bytes:
    """Give ``constants`` the values that HLO text leaves out, from the serialized form; returns a digest of them."""
    message = HloModuleProto.read(compiler_ir(stage="hlo_serialized"))
    digest = hashlib.sha256()
    for computation in message.computations:
        for item in computation.instructions:
            constant = constants.get((computation.name, item.name))
            if constant is not None and item.literal is not None:
                literal = literal_of(item.literal, constant.shape)
                constant.attrs = {**constant.attrs, "literal": literal}
                digest.update(literal.array.tobytes())
    return digest.digest()


def _with_line(metadata: Metadata, graph: Any, lines: dict[str, tuple[str, int] | None]) -> Metadata:
    """``metadata`` with the user's line that made the operation, or the loop or branch around it."""
    name = metadata.op_name
    if name not in lines:
        lines[name] = _line(graph, name)
    line = lines[name]
    return metadata if line is None else replace(metadata, source_file=line[0], source_line=line[1])


def _line(graph: Any, name: str) -> tuple[str, int] | None:
    while name:
        try:
            return line_of_user(graph.get_operation_by_name(name).traceback)
        except (KeyError, ValueError):  # it belongs to the graph of a loop or a branch
            name = name.rpartition("/")[0]
    return None


def _refuse_random_numbers(module: Module) -> None:
    for i in EliminateDead().run(module).instructions():
        if i.opcode == "rng":
            raise UnsupportedError(
                "random numbers that depend on no state would be the same in each call",
                where=i.place,
                fix="draw them from a tf.random.Generator, by tf.random.stateless_uniform and the like with a seed, "
                "or in layers of Keras, which have a seed generator",
            )
