"""Where programs come from: files, JAX functions, NumPy functions, saved executables."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardc.hlo.config import Config
from shardc.hlo.errors import InputError
from shardc.hlo.ir.callbacks import calls_of
from shardc.hlo.ir.custom_calls import CustomCall, as_custom_calls
from shardc.hlo.units import kind_text
from shardc.launcher.arrays.meshes import as_mesh
from shardc.launcher.arrays.placement import with_own_mesh
from shardc.launcher.driver.compiled import job_config
from shardc.launcher.driver.executables import compilation_of
from shardc.partitioner.program import seconds_since
from shardc.stages.stages import Compiled, Program, as_stage, remote_compiler

if TYPE_CHECKING:
    from shardc.compiler.executable import Executable

__all__ = [
    "compile_function",
    "from_function",
    "from_jax",
    "from_tensorflow",
    "from_torch",
    "load",
    "load_executable",
    "trace",
]


def load(path: str | Path, *args: Any, **kwargs: Any) -> Program:
    """Read a program from a file: HLO text, MLIR text or bytecode, or a serialized ``jax.export.Exported``.

    The contents decide the kind of file, not its name. ``args`` and ``kwargs`` are only for programs with symbolic
    dimensions, and only their shapes and types count. They are the function's own arguments for an Exported, one
    argument per parameter for MLIR.

    Raises `InputError` for a file that cannot be read, `ParseError` for contents of no known kind, `UnsupportedError`
    for operations that shardc lacks.

    >>> program = shardc.load("step.mlir")
    >>> program.arg_names
    ("weights['down']", "weights['up']", 'x', 'target')
    """
    from shardc.frontends.load import load_program, read_file

    if not isinstance(path, str | os.PathLike) and not callable(path):
        raise InputError(
            f"shardc.load takes the path of a file, but was given {kind_text(path)}", fix='shardc.load("step.mlir")'
        )
    if callable(path):
        fix = "use shardc.jit or shardc.from_jax for a JAX function, shardc.trace for a NumPy function"
        raise InputError("shardc.load takes the path of a file, but was given a function", fix=fix)
    start = time.perf_counter()
    return as_stage(load_program(read_file(path), str(path), args, kwargs, start))


def from_jax(function: Any, *args: Any, **kwargs: Any) -> Program:
    """Make a program of a jitted JAX function and example arguments.

    ``function`` may also be a ``Traced``, a ``Lowered`` or a ``jax.export.Exported`` of JAX. Arguments may be abstract
    (``jax.ShapeDtypeStruct``), and shardings may name meshes larger than this machine: nothing is computed.

    Raises `UnsupportedError` for operations that shardc lacks.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> rows = jax.ShapeDtypeStruct((64, 16), np.float32)
    >>> shardc.from_jax(jax.jit(lambda x: jnp.tanh(x).sum()), rows).arg_names
    ('x',)
    """
    from shardc.frontends.jax.frontend import module_from_jax

    start = time.perf_counter()
    try:
        program = module_from_jax(function, *args, **kwargs)
    except Exception as e:
        if type(e).__name__ == "TracerArrayConversionError":
            e.add_note("shardc.from_jax takes functions of jax.numpy; shardc.trace takes those of numpy")
        raise
    config = _calling(job_config(), program.callbacks)
    return Program(program.module, program, config=config, seconds=seconds_since("read", start))


def from_tensorflow(function: Any, *args: Any, **kwargs: Any) -> Program:
    """Make a program of a TensorFlow function and example arguments.

    ``function`` is a ``tf.function`` with ``jit_compile=True``; only the shapes and types of tensors and NumPy arrays
    among ``args`` and ``kwargs`` matter. Other values are part of the program, as are tensors whose values TensorFlow
    needs in order to compile. The program's arguments have the names of the function's parameters, then those of the
    variables and constants that the function captures. Captured variables that it assigns to are results too; each
    shares its argument's memory.

    The compiled program is called like the function, and assigns to the variables. A call that changes a value which is
    part of the program raises `InputError`. TensorFlow does not count writes to a variable, so each call reads the
    values of all of them again.

    TensorFlow is not a dependency. Raises `EnvironmentProblem` where it is missing, `InputError` for other objects, and
    `UnsupportedError` for functions that TensorFlow cannot compile to HLO. Random numbers without a state or a seed
    raise `UnsupportedError` too.

    >>> import tensorflow as tf
    >>> kernel = tf.Variable(tf.ones((16, 8)), name="kernel")
    >>> product = tf.function(lambda x: x @ kernel, jit_compile=True)
    >>> from_function = shardc.from_tensorflow(product, tf.ones((4, 16)))
    >>> split = from_function.annotate({"kernel": P(None, "model")}, mesh=mesh)
    >>> np.asarray(split.compile()(tf.ones((4, 16)))).shape
    (4, 8)
    """
    from shardc.frontends.tensorflow.functions import program_from_tensorflow

    start = time.perf_counter()
    found = program_from_tensorflow(function, args, kwargs)
    seconds = seconds_since("read", start)
    return Program(found.module, found.signature, config=job_config(), seconds=seconds, content=found.content)


def from_torch(
    source: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *, seed: Any = None
) -> Program:
    """Make a program of a PyTorch module and example arguments.

    ``source`` is a ``torch.nn.Module``, called with the tensors ``args`` and ``kwargs``, or a
    ``torch.export.ExportedProgram``, which has its arguments already. Tensors may be on the device ``meta``: nothing is
    computed. The program's arguments are the module's tensors under their names in ``state_dict``, then the inputs
    under their names in ``forward``. A tensor with several names has the first of them. Buffers and inputs that the
    module changes are results too; each shares its argument's memory.

    The compiled program is called like the module. It takes and returns tensors. A returned tensor shares the memory of
    a result that one device holds. Parameters stay on the devices between calls, until the module's tensors are
    changed.

    ``seed`` allows random numbers, such as those of dropout in training mode. It is an integer, or a tensor int64[2]
    with a seed and a number of calls, which every call increments. A program that draws random numbers has this tensor
    as its argument ``random.state``. ThreeFry computes the numbers from seed, call, draw and position. They are equal
    on every mesh, and differ from those of PyTorch's generators.

    Needs the extra ``torch``. Raises `EnvironmentProblem` without it. Raises `UnsupportedError` for operators that
    shardc lacks, with the module's path and the source line, for dynamic shapes, and random numbers without ``seed``.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    >>> from_model = shardc.from_torch(model, (torch.ones(4, 16),))
    >>> from_model.arg_names
    ('0.weight', '0.bias', '2.weight', '2.bias', 'input')
    >>> split = from_model.annotate({"0.weight": P("model", None), "2.weight": P(None, "model")}, mesh=mesh)
    >>> split.compile()(torch.ones(4, 16)).shape
    torch.Size([4, 8])
    >>> drops = shardc.from_torch(torch.nn.Dropout(0.5), (torch.ones(4, 16),), seed=0)
    >>> drops.arg_names
    ('random.state', 'input')
    """
    from shardc.frontends.torch.frontend import program_from_torch

    start = time.perf_counter()
    found = program_from_torch(source, args, kwargs, seed)
    seconds = seconds_since("read", start)
    return Program(found.module, found.signature, config=job_config(), seconds=seconds, content=found.content)


def from_function(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], **options: Any) -> Program:
    """A program from a plain JAX function, with `shardc.jit`'s options (mesh, shardings, donation)."""
    from shardc.frontends.jax.frontend import lower

    start = time.perf_counter()
    lowering = lower(function, args=args, kwargs=kwargs, **options)
    content = lowering.content()
    program = lowering.read()
    config = _calling(job_config(), lowering.callbacks)
    return Program(program.module, program, config=config, seconds=seconds_since("read", start), content=content)


def compile_function(
    target: str, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], **options: Any
) -> Compiled:
    """`from_function`, compiled for ``target``; what is in the cache is not even read."""
    from shardc.frontends.jax.frontend import lower

    start = time.perf_counter()
    lowering = lower(function, args=args, kwargs=kwargs, **options)
    config = _calling(job_config(), lowering.callbacks)
    content = lowering.content()
    lowered = time.perf_counter() - start

    @cache
    def program() -> Program:
        start = time.perf_counter()
        read = lowering.read()
        seconds = {"read": lowered + time.perf_counter() - start}
        return Program(read.module, read, config=config, seconds=seconds, content=content)

    def signature(executable: Executable) -> Any:
        return lowering.signature_with(tuple(a.name for a in executable.arguments)) if content else program().jax

    title, remote = partial(_called, function, args, kwargs), remote_compiler(config, program, target)
    compilation = compilation_of(content, config, program, target, title, remote)
    return Compiled(compilation, signature, config, {"read": lowered}, lambda: program().partition(), remote_compiler)


#: Arguments of a call that messages show.
_SHOWN = 8


def _called(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """A call as messages show it: ``train(float32[8,2], int32[])``."""
    import jax

    leaves = jax.tree.leaves((args, kwargs))
    while isinstance(function, partial):
        function = function.func
    shown = [
        f"{x.dtype}[{','.join(map(str, x.shape))}]" if hasattr(x, "dtype") and hasattr(x, "shape") else repr(x)[:40]
        for x in leaves[:_SHOWN]
    ]
    more = [f"... ({len(leaves)} arrays)"] if len(leaves) > _SHOWN else []
    return f"{getattr(function, '__name__', 'a function')}({', '.join([*shown, *more])})"


def _calling(config: Config, functions: Sequence[Callable[..., Any]]) -> Config:
    """``config`` for a program that calls these Python functions."""
    return replace(config, custom_calls=calls_of(functions)) if functions else config


def load_executable(path: str | Path, custom_calls: Mapping[str, CustomCall] | None = None) -> Compiled:
    """Load a compiled program that `Compiled.save` wrote; it is not compiled again.

    ``custom_calls`` gives the addresses of the user's own C functions again, since files do not hold addresses. Raises
    `InputError` for a file that is missing, damaged, or of another format.

    >>> compiled.save("step.shardc")
    >>> len(shardc.load_executable("step.shardc")(*arguments))
    3
    """
    from shardc.compiler.cache.serialize import load_executable as read

    if not Path(path).is_file():
        raise InputError(f"there is no file {path}", fix="give the path of an existing file")
    return Compiled(read(Path(path)), config=replace(job_config(), custom_calls=as_custom_calls(custom_calls or {})))


def trace(
    function: Any,
    /,
    *specs: Any,
    mesh: Any = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    donate_argnums: Any = (),
    **named_specs: Any,
) -> Program:
    """Make a program of a plain NumPy function, without JAX.

    ``specs`` stand for the function's arguments: `ShapeDtype`, arrays, whatever has ``shape`` and ``dtype``, Python
    numbers, and dicts, lists and tuples of those. ``named_specs`` are passed by name. Shardings are `P`, or pytrees of
    them that are prefixes of the arguments or results; `shard` inside the function constrains a value. Without a
    ``mesh``, axes that shardings name have size 1 until `Program.annotate` gives a mesh. Element types are NumPy's.

    The function runs twice on traced values. A difference between the runs (random numbers, counters, the time) raises
    `InputError`. Raises `UnsupportedError` for operations that cannot be traced; the message has your line and an
    alternative.

    >>> def mlp(x, w):
    ...     return np.maximum(x @ w, 0)
    >>> x, w = shardc.ShapeDtype((64, 16), "float32"), np.ones((16, 8), np.float32)
    >>> shardc.trace(mlp, x, w, mesh=mesh, in_shardings=(P("data"), None)).num_devices
    4
    """
    from shardc.frontends.numpy_functions import program_from_numpy

    start = time.perf_counter()
    in_shardings, mesh = with_own_mesh(in_shardings, mesh, "in_shardings")
    out_shardings, mesh = with_own_mesh(out_shardings, mesh, "out_shardings")
    wanted = as_mesh(mesh) if mesh is not None else None
    traced = program_from_numpy(function, specs, named_specs, wanted, in_shardings, out_shardings, donate_argnums)
    found = traced.module.mesh
    given = in_shardings is not None or out_shardings is not None
    if wanted is None and given and found is not None and found.axes and found.size == 1:
        text = "%s has shardings but no mesh: axes have size 1 until mesh= or annotate(mesh=...) gives one"
        logging.getLogger("shardc").warning(text, traced.module.name)
    return Program(traced.module, traced, seconds=seconds_since("read", start))
