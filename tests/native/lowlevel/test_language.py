"""Functions of the low-level language: compiled, they do what they do as plain Python; what is wrong is said where."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from shardc.native.llvm.jit import compile_ir, load_object
from shardc.native.lowlevel.builtins import (
    as_i32,
    as_u8,
    copy_memory,
    exported,
    fence,
    fill_memory,
    inline,
    local,
    local_array,
    static,
    static_text,
)
from shardc.native.lowlevel.kinds import Count, Integer, OwnLine, Pointer, address, i32, i64, u8, u32, u64
from shardc.native.lowlevel.module import compile_functions
from shardc.native.lowlevel.records import (
    ACQ_REL,
    ACQUIRE,
    RELAXED,
    RELEASE,
    SEQ_CST,
    Atomic,
    Record,
    Span,
    address_of,
)
from shardc.native.lowlevel.simulation import ThreadSimulation
from shardc.native.lowlevel.sources import LanguageError, signature_of
from tests.native.lowlevel import bad_functions

#: A failing text is read whole: to shrink it compiles for minutes.
NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
_NUMBERS = itertools.count()


def native(*functions: Any) -> list[Callable[..., Any]]:
    """The compiled functions; records are given as they are."""
    code = load_object(compile_ir(compile_functions(functions)), [f.symbol for f in functions])
    found = []
    for f in functions:
        call = signature_of(f).c_type(code.address(f.symbol))
        found.append(lambda *a, call=call, keep=code: call(*(address_of(x) for x in a)))
    return found


def plain(function: Callable[..., Any], *arguments: Any) -> Any:
    """What it gives as plain Python."""
    simulation = ThreadSimulation()
    task = simulation.start(function, *arguments)
    simulation.run()
    return task.result


def module_of(text: str, folder: Path) -> Any:
    """A module with some text."""
    name = f"generated_{next(_NUMBERS)}"
    path = folder / f"{name}.py"
    path.write_text(f"{_HEADER}\n{text}\n")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_HEADER = """
from __future__ import annotations
from typing import Annotated
from shardc.native.lowlevel.builtins import *
from shardc.native.lowlevel.kinds import *
from shardc.native.lowlevel.records import *
"""

# Random functions.

KINDS = {"i32": Integer(32, True), "i64": Integer(64, True), "u8": Integer(8, False), "u64": Integer(64, False)}
VARIABLES = {"a": "i32", "b": "i64", "c": "u8", "d": "u64", "x": "i64", "y": "u64"}


def expressions(kind: str, depth: int) -> st.SearchStrategy[str]:
    """Texts of expressions of a kind, all of whose results fit it."""
    k = KINDS[kind]
    numbers = st.integers(k.lowest, k.highest).map(lambda n: f"as_{kind}({n})") | st.integers(0, 100).map(
        lambda n: f"as_{kind}({n})"
    )
    names = [n for n, t in VARIABLES.items() if k.contains(KINDS[t])]
    leaves = st.one_of(numbers, st.sampled_from(names))
    if depth == 0:
        return leaves
    inner = st.deferred(lambda: expressions(kind, depth - 1))
    other = st.sampled_from(sorted(KINDS)).flatmap(lambda o: expressions(o, depth - 1))
    half = inner.map(lambda e: f"as_{kind}({e} >> 1)")
    shift = st.integers(0, 63)
    return st.one_of(
        leaves,
        st.builds(lambda o, x, y: f"as_{kind}({x} {o} {y})", st.sampled_from(["+", "-", "*"]), inner, inner),
        st.builds(lambda o, x, y: f"({x} {o} {y})", st.sampled_from(["&", "|", "^"]), inner, inner),
        st.builds(lambda o, x, y: f"as_{kind}({x} {o} ({y} | 1))", st.sampled_from(["//", "%"]), half, inner),
        st.builds(lambda x, n: f"as_{kind}({x} >> {n})", inner, shift),
        st.builds(lambda x, n: f"as_{kind}({x} << {n})", inner, shift),
        st.builds(lambda x: f"as_{kind}(-{x})", inner),
        st.builds(lambda x: f"as_{kind}(~{x})", inner),
        st.builds(lambda x: f"as_{kind}({x})", other),
        st.builds(lambda f, x, y: f"{f}({x}, {y})", st.sampled_from(["min", "max"]), inner, inner),
        st.builds(lambda c, x, y: f"({x} if {c} else {y})", conditions(depth - 1), inner, inner),
        st.builds(lambda c: f"as_{kind}({c})", conditions(depth - 1)),
    )


def conditions(depth: int) -> st.SearchStrategy[str]:
    def comparison(kind: str) -> st.SearchStrategy[str]:
        e = expressions(kind, max(0, depth - 1))
        return st.builds(lambda o, x, y: f"({x} {o} {y})", st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), e, e)

    simple = st.sampled_from(sorted(KINDS)).flatmap(comparison)
    if depth <= 0:
        return simple
    inner = conditions(depth - 1)
    return st.one_of(
        simple,
        st.builds(lambda o, x, y: f"({x} {o} {y})", st.sampled_from(["and", "or"]), inner, inner),
        st.builds(lambda x: f"(not {x})", inner),
    )


def statements(depth: int, indent: str = "    ", in_loop: bool = False) -> st.SearchStrategy[str]:
    """Texts of blocks that change x and y."""
    simple = st.sampled_from(["x", "y"]).flatmap(
        lambda v: st.builds(lambda e: f"{indent}{v} = {e}\n", expressions(VARIABLES[v], 2))
    )
    change = st.builds(lambda e: f"{indent}y ^= {e}\n", expressions("u64", 1))
    options = [simple, change]
    if in_loop:
        ways = st.sampled_from(["break", "continue"])
        options.append(st.builds(lambda c, w: f"{indent}if {c}:\n{indent}    {w}\n", conditions(1), ways))
    if depth:
        inner = statements(depth - 1, indent + "    ", in_loop)
        loop = statements(depth - 1, indent + "    ", True)
        options += [
            st.builds(lambda c, s, t: f"{indent}if {c}:\n{s}{indent}else:\n{t}", conditions(1), inner, inner),
            st.builds(lambda n, s: f"{indent}for k{depth} in range({n}):\n{s}", st.integers(0, 4), loop),
            st.builds(
                lambda n, s: (
                    f"{indent}w{depth} = {n}\n{indent}while True:\n{indent}    w{depth} -= 1\n"
                    f"{indent}    if w{depth} < 0:\n{indent}        break\n{s}"
                ),
                st.integers(0, 4),
                loop,
            ),
        ]
    return st.lists(st.one_of(options), min_size=1, max_size=4).map("".join)


ARGUMENTS = st.tuples(*(st.integers(KINDS[t].lowest, KINDS[t].highest) for n, t in VARIABLES.items() if n in "abcd"))


@settings(max_examples=25, deadline=None, phases=NO_SHRINKING)
@given(st.lists(statements(2), min_size=1, max_size=4), st.lists(ARGUMENTS, min_size=1, max_size=4))
def test_compiled_functions_do_what_they_do_as_plain_python(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[str], arguments: list[tuple[int, ...]]
) -> None:
    text = "".join(
        f'@exported("f{n}")\ndef f{n}(a: i32, b: i64, c: u8, d: u64) -> u64:\n    x = as_i64(b)\n    y = as_u64(d)\n'
        f"{body}    return as_u64(x) ^ y\n\n"
        for n, body in enumerate(bodies)
    )
    module = module_of(text, tmp_path_factory.getbasetemp())
    functions = [getattr(module, f"f{n}") for n in range(len(bodies))]
    for function, compiled in zip(functions, native(*functions), strict=True):
        for given_arguments in arguments:
            assert compiled(*given_arguments) == function(*given_arguments), text


FIELDS = {
    "i32": ctypes.c_int32, "i64": ctypes.c_int64, "u8": ctypes.c_uint8, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
    "address": ctypes.c_void_p, "Span[i64]": ctypes.c_void_p, "Atomic[u32]": ctypes.c_uint32,
    "Atomic[address]": ctypes.c_void_p, "Annotated[Span[u8], Count(5)]": ctypes.c_uint8 * 5,
}  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, max_size=8))
def test_fields_lie_where_ctypes_puts_them(tmp_path_factory: pytest.TempPathFactory, kinds: list[str]) -> None:
    fields = "".join(f"    f{n}: {kind}\n" for n, kind in enumerate(kinds))
    numbers = [n for n, kind in enumerate(kinds) if kind in ("i32", "i64", "u8", "u32", "u64")]
    stores = "".join(f"    r.f{n} = {n + 1}\n" for n in numbers)
    module = module_of(
        f'class R(Record):\n{fields}\n@exported("put")\ndef put(r: R) -> None:\n    pass\n{stores}',
        tmp_path_factory.getbasetemp(),
    )
    ours = type("Ours", (ctypes.Structure,), {"_fields_": [(f"f{n}", FIELDS[kind]) for n, kind in enumerate(kinds)]})
    assert ctypes.sizeof(module.R) == ctypes.sizeof(ours)
    for n in range(len(kinds)):
        assert getattr(module.R, f"f{n}").offset == getattr(ours, f"f{n}").offset
    record = ours()
    native(module.put)[0](record)
    assert [getattr(record, f"f{n}") for n in numbers] == [n + 1 for n in numbers]


# Records, arrays, atomics, functions.


class Inner(Record):
    a: i32
    b: i64


class Node(Record):
    value: i64
    inner: Inner
    next: Pointer[Node] | None
    words: Span[i64]
    nodes: Span[Pointer[Node] | None]
    function: Callable[[i64], i64]
    shared: OwnLine[Atomic[i32]]
    wide: Atomic[u64]
    bytes: Annotated[Span[u8], Count(3)]


def double(x: i64) -> i64:
    return 2 * x


@inline
def triple(x: i64) -> i64:
    return 3 * x


@exported("walk")
def walk(first: Node, count: i64) -> i64:
    total = 0
    at: Pointer[Node] | None = first
    while at is not None:
        total += at.value + at.inner.b
        at = at.next
    for k in range(count):
        total += first.words[k]
        node = first.nodes[k]
        if node is not None:
            total += triple(node.value)
    return total


@exported("change")
def change(to: Node, source: Node) -> i64:
    to.inner = source.inner
    to.next = source
    to.bytes[1] = as_u8(source.inner.a)
    to.words = source.words.behind(1)
    to.words[0] += 5
    to.nodes[0] = to
    to.nodes[1] = None
    return to.inner.b + address_of(to.words) - address_of(source.words)


@exported("share")
def share(node: Node) -> i64:
    total = node.shared.add(5, SEQ_CST) + 0
    if node.shared.compare_exchange(12, 20, ACQ_REL) == 12:
        total += 100
    total += node.shared.exchange(-3, RELEASE)
    node.wide.store(1 << 63, RELAXED)
    fence(SEQ_CST)
    return total * 1000 + node.shared.load(ACQUIRE) + as_i32(node.wide.load(RELAXED) >> 60)


@exported("apply")
def apply(node: Node) -> i64:
    node.function = double
    return node.function(20) + node.function(1)


@exported("scratch")
def scratch(source: address, nbytes: i64) -> i64:
    one = local(Inner)
    one.a = 3
    words = local_array(64, 8)
    fill_memory(address_of(words), 0xFF, 64)
    copy_memory(address_of(words), source, nbytes)
    total = one.a + 0
    for k in range(8):
        total += as_i32(words[k]) & 0xFFFF
    return total


class Counted(Record):
    count: Atomic[i64]
    before: i32


COUNTED = static(Counted, "counted", before=-2)


@exported("count_up")
def count_up() -> i64:
    COUNTED.before = as_i32(COUNTED.before + 1)
    return COUNTED.count.add(3, RELAXED) + COUNTED.before


def nodes() -> tuple[Node, Node, Any]:
    words = (ctypes.c_int64 * 4)(10, 20, 30, 40)
    table = (ctypes.c_void_p * 4)()
    second = Node(value=7, inner=Inner(9, 11), words=ctypes.addressof(words))
    first = Node(value=5, next=second, nodes=ctypes.addressof(table), words=ctypes.addressof(words))
    first.shared, second.shared = 7, 0
    table[2] = ctypes.addressof(second)
    return first, second, (words, table)


@pytest.mark.parametrize(("function", "count"), [(walk, 1), (change, 2), (share, 1), (apply, 1)])
def test_records_are_the_same_from_both_sides(function: Any, count: int) -> None:
    found = []
    for call in (native(function)[0], lambda *a: plain(function, *a)):
        first, second, (words, table) = nodes()
        answer = call(first, 4) if function is walk else call(*(first, second)[:count])
        places = {ctypes.addressof(n): k for k, n in enumerate((first, second))}
        numbers = [(n.value, n.inner.a, n.inner.b) for n in (first, second)]
        atomics = [(n.shared.load(RELAXED), n.wide.load(RELAXED)) for n in (first, second)]
        pointers = [places.get(address_of(n.next)) for n in (first, second)]
        tables = list(words), [places.get(p) for p in table], first.bytes[1]
        found.append((answer, numbers, atomics, pointers, tables))
    assert found[0] == found[1]


def test_memory_of_a_function() -> None:
    source = (ctypes.c_int64 * 3)(1, 2, 3)
    arguments = (ctypes.addressof(source), 24)
    assert native(scratch)[0](*arguments) == scratch(*arguments) == 3 + 6 + 5 * 0xFFFF


def test_memory_of_a_program() -> None:
    compiled = native(count_up)[0]
    assert [compiled(), compiled()] == [-1, 3]

    def twice() -> list[int]:
        return [count_up(), count_up()]

    assert plain(twice) == [-1, 3]
    assert plain(twice) == [-1, 3]  # every simulated process has its own


def test_a_record_without_an_owner_is_not_read_after_it_is_gone() -> None:
    shared = Node.from_buffer_copy(bytes(Node(value=3))).shared  # the copy lives as long as what refers to it
    assert shared.load(RELAXED) == 0


# What is wrong.


@pytest.mark.parametrize(
    "function", [f for f in vars(bad_functions).values() if getattr(f, "__doc__", None) and callable(f)
                 and getattr(f, "__module__", "") == bad_functions.__name__ and not isinstance(f, type)],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_what_is_wrong_is_said_with_file_line_and_a_way_out(function: Any) -> None:
    with pytest.raises(LanguageError) as problem:
        compile_functions([function])
    text = str(problem.value)
    assert function.__doc__ in text
    place, _, _ = text.partition(": in ")
    path, _, line = place.rpartition(":")
    assert Path(path) == Path(bad_functions.__file__)
    lines = range(function.__code__.co_firstlineno, function.__code__.co_firstlineno + 8)
    assert int(line) in lines and f": in {function.__name__}: " in text
    assert "; " in text


def test_every_number_may_be_an_argument() -> None:
    """Narrow ones are passed as C does."""

    @exported("mixed")
    def mixed(a: i32, b: u8, c: u32, d: u64) -> u64:
        return as_i32_sum(a) + b + c + d

    assert native(mixed)[0](3, 250, 2**32 - 1, 5) == mixed(3, 250, 2**32 - 1, 5)


def as_i32_sum(x: i32) -> u64:
    return as_u8(x)


GREETING = static_text("greeting", "good day, grüß Gott")


@exported("greet")
def greet(to: address) -> i64:
    copy_memory(to, address_of(GREETING) + 8, GREETING.nbytes)
    return GREETING.nbytes


def test_characters_of_the_program_are_there() -> None:
    for call in (native(greet)[0], lambda to: plain(greet, to)):
        to = ctypes.create_string_buffer(40)
        assert call(ctypes.addressof(to)) == 21
        assert to.raw[:21].decode() == "good day, grüß Gott"
