"""Expressions of the low-level language, as IR."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from shardc.native.lowlevel import builtins
from shardc.native.lowlevel.builtins import Conversion
from shardc.native.lowlevel.emission import Code
from shardc.native.lowlevel.kinds import (
    ADDRESS,
    BOOL,
    LITERAL,
    NOTHING,
    NULL,
    AddressKind,
    AtomicKind,
    FunctionKind,
    Integer,
    Kind,
    MemoryPlace,
    RecordKind,
    SpanKind,
)
from shardc.native.lowlevel.platform import platform
from shardc.native.lowlevel.records import (
    ACQUIRE,
    ORDERS,
    RELAXED,
    RELEASE,
    SEQ_CST,
    Record,
    address_of,
    places_of,
)
from shardc.native.lowlevel.sources import LanguageError, problem, signature_of

__all__ = ["Definitions", "Expressions", "Value", "llvm_type"]

_I64 = Integer(64, True)
_COMPARISONS: Mapping[type[ast.cmpop], tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Eq: ("eq", operator.eq), ast.NotEq: ("ne", operator.ne), ast.Lt: ("lt", operator.lt),
    ast.LtE: ("le", operator.le), ast.Gt: ("gt", operator.gt), ast.GtE: ("ge", operator.ge),
}  # fmt: skip
_OPERATIONS: Mapping[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("add", operator.add), ast.Sub: ("sub", operator.sub), ast.Mult: ("mul", operator.mul),
    ast.BitAnd: ("and", operator.and_), ast.BitOr: ("or", operator.or_), ast.BitXor: ("xor", operator.xor),
    ast.LShift: ("shl", operator.lshift), ast.RShift: ("ashr", operator.rshift),
    ast.FloorDiv: ("sdiv", operator.floordiv), ast.Mod: ("srem", operator.mod),
}  # fmt: skip
_UNKNOWN = object()
#: By method of an atomic: how many values it takes, and the orders that it may have.
_ATOMICS = {
    "load": (0, (RELAXED, ACQUIRE, SEQ_CST)),
    "store": (1, (RELAXED, RELEASE, SEQ_CST)),
    "exchange": (1, ORDERS),
    "compare_exchange": (2, ORDERS),
    "add": (1, ORDERS),
}


@dataclass(frozen=True, slots=True)
class Value:
    """A value of an expression: an operand of LLVM's. A number whose type is still open is a `LITERAL`."""

    kind: Kind
    text: str

    @property
    def typed(self) -> str:
        return f"{llvm_type(self.kind)} {self.text}"


_DONE = Value(NOTHING, "")


def llvm_type(kind: Kind) -> str:
    """How LLVM has values of a kind."""
    if isinstance(kind, Integer):
        return f"i{kind.bits}"
    return {BOOL: "i1", NOTHING: "void"}.get(kind, "ptr")


class Definitions(Protocol):
    """What a module has besides the function."""

    def function(self, function: Any) -> str:
        """What a function is called there."""

    def variadic(self, function: Any) -> str:
        """The type by which C's functions with any number of arguments are called; else nothing."""

    def static(self, static: builtins.Static) -> str: ...


class Expressions:
    """Emits the expressions of one function."""

    def __init__(self, module: Definitions, function: Any, code: Code, names: Mapping[str, Any]) -> None:
        self.module, self.function, self.code, self.names = module, function, code, names
        #: Kind and memory of the function's own variables; those that have a value here.
        self.variables: dict[str, tuple[Kind, str]] = {}
        self.assigned: set[str] = set()

    def problem(self, node: ast.AST, what: str, fix: str) -> LanguageError:
        """What is wrong at a place."""
        return problem(self.function, node, what, fix)

    # Constants.

    def constant(self, node: ast.expr) -> Any:
        """What an expression is before the program runs, or `_UNKNOWN`."""
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                return _UNKNOWN if name in self.variables else self.names.get(name, _UNKNOWN)
            case ast.Attribute(owner, name):
                found = self.constant(owner)
                plain = found is not _UNKNOWN and not isinstance(found, builtins.StaticInRun | int | str)
                return getattr(found, name, _UNKNOWN) if plain else _UNKNOWN
            case ast.Call(ast.Name(), [], []) if self.constant(node.func) is platform:
                return platform()
            case ast.UnaryOp(ast.USub(), operand) if type(value := self.constant(operand)) is int:
                return -value
            case ast.UnaryOp(ast.Not(), operand) if type(value := self.constant(operand)) is bool:
                return not value
            case ast.BinOp(left, op, right) if type(op) in _OPERATIONS:
                return self._folded(_OPERATIONS[type(op)][1], left, right)
            case ast.BoolOp(op, [first, *_]) if self.constant(first) is isinstance(op, ast.Or):
                return isinstance(op, ast.Or)
            case ast.Compare(left, [op], [right]) if type(op) in _COMPARISONS:
                return self._folded(_COMPARISONS[type(op)][1], left, right)
        return _UNKNOWN

    def _folded(self, function: Callable[[Any, Any], Any], left: ast.expr, right: ast.expr) -> Any:
        a, b = self.constant(left), self.constant(right)
        return function(a, b) if isinstance(a, int) and isinstance(b, int) else _UNKNOWN

    # Values.

    def value(self, node: ast.expr, wanted: Kind | None = None) -> Value:
        """The value of an expression, as ``wanted``."""
        found = self._choice(node, wanted) if isinstance(node, ast.IfExp) else self._value(node)
        return found if wanted is None else self.converted(found, wanted, node)

    def _value(self, node: ast.expr) -> Value:
        known = self.constant(node)
        if known is not _UNKNOWN:
            return self._of_constant(node, known)
        match node:
            case ast.Name(name):
                return self._variable(node, name)
            case ast.Attribute() | ast.Subscript():
                return self.loaded(*self.place(node))
            case ast.BinOp(left, op, right):
                return self.operation(node, op, self.value(left), self.value(right))
            case ast.UnaryOp():
                return self._unary(node)
            case ast.BoolOp():
                return self._short_circuit(node)
            case ast.Compare():
                return self._comparison(node)
            case ast.Call():
                return self._call(node)
        raise self.problem(node, f"a {type(node).__name__}", "use what the language has")

    def _of_constant(self, node: ast.expr, known: Any) -> Value:
        if isinstance(known, bool):
            return Value(BOOL, "true" if known else "false")
        if isinstance(known, int):
            return Value(LITERAL, str(int(known)))
        if known is None:
            return Value(NULL, "null")
        if isinstance(known, builtins.StaticInRun):
            static = builtins.static_of(known)
            return Value(RecordKind(static.cls), self.module.static(static))
        if callable(known) and hasattr(known, "__code__"):
            return Value(signature_of(known), self.module.function(known))
        raise self.problem(node, f"{known!r} is no value of the language", "use numbers, records, functions")

    def _variable(self, node: ast.Name, name: str) -> Value:
        if name not in self.assigned:
            known = name in self.variables
            raise self.problem(
                node, f"{name} {'may have' if known else 'has'} no value here", "assign to it before, on every way"
            )
        kind, memory = self.variables[name]
        return Value(kind, self.code.make(f"load {llvm_type(kind)}, ptr {memory}"))

    def converted(self, value: Value, wanted: Kind, node: ast.AST) -> Value:
        """``value`` as ``wanted``, where that has every value of its kind."""
        kind = value.kind
        if kind == wanted:
            return value
        if kind == NULL and not isinstance(wanted, Integer) and wanted not in (BOOL, NOTHING):
            return Value(wanted, "null")
        if kind == LITERAL and isinstance(wanted, Integer) and wanted.lowest <= int(value.text) <= wanted.highest:
            return Value(wanted, value.text)
        if kind == LITERAL and wanted == ADDRESS and value.text == "0":
            return Value(wanted, "null")
        if isinstance(kind, Integer) and isinstance(wanted, Integer) and wanted.contains(kind):
            return self._resized(value, kind, wanted)
        fix = f"convert it: as_{wanted}(...)" if isinstance(wanted, Integer) else f"give a value of type {wanted}"
        raise self.problem(node, f"{_said(value)} where {wanted} is needed", fix)

    def _resized(self, value: Value, kind: Integer, wanted: Integer) -> Value:
        if kind.bits == wanted.bits:
            return Value(wanted, value.text)
        how = "trunc" if kind.bits > wanted.bits else "sext" if kind.signed else "zext"
        return Value(wanted, self.code.make(f"{how} {value.typed} to {llvm_type(wanted)}"))

    def common(self, node: ast.AST, *values: Value, wide: tuple[Integer, ...] = ()) -> tuple[Kind, list[Value]]:
        """``values`` as the smallest kind that has all of theirs; where they are narrow, as ``wide``."""
        kinds = {v.kind for v in values if v.kind != LITERAL} or {_I64}
        if all(isinstance(k, Integer) and k.bits < 64 for k in kinds):
            kinds |= set(wide)
        integers = [k for k in kinds if isinstance(k, Integer)]
        if len(integers) == len(kinds):
            literals = [int(v.text) for v in values if v.kind == LITERAL]
            for c in sorted({*integers, _I64}, key=lambda k: k.bits):
                if all(c.lowest <= n <= c.highest for n in literals) and all(c.contains(k) for k in integers):
                    return c, [self.converted(v, c, node) for v in values]
        elif len(kinds - {NULL}) == 1:
            (kind,) = kinds - {NULL}
            return kind, [self.converted(v, kind, node) for v in values]
        what = " and ".join(sorted(str(k) for k in kinds))
        raise self.problem(node, f"{what} have no type in common", "convert one of them: as_i64(...), as_u64(...)")

    # Operations.

    def operation(self, node: ast.AST, op: ast.operator, left: Value, right: Value) -> Value:
        """An arithmetic operator."""
        if type(op) not in _OPERATIONS:
            raise self.problem(node, "an operator that the language lacks", "use + - * // % & | ^ << >>")
        if right.kind == ADDRESS and isinstance(op, ast.Add):
            left, right = right, left
        if left.kind == ADDRESS:
            return self._on_address(node, op, left, right)
        wide = () if isinstance(op, ast.BitAnd | ast.BitOr | ast.BitXor | ast.Mod) else (_I64,)
        kind, (a, b) = self.common(node, left, right, wide=wide)
        if not isinstance(kind, Integer):
            raise self.problem(node, f"an operator on {kind}", "use integers, or address_of(...)")
        name = _OPERATIONS[type(op)][0]
        if isinstance(op, ast.FloorDiv | ast.Mod) and kind.signed:
            return self._floored(kind, name, a.text, b.text)
        name = {"sdiv": "udiv", "srem": "urem", "ashr": "lshr"}.get(name, name) if not kind.signed else name
        return Value(kind, self.code.make(f"{name} {a.typed}, {b.text}"))

    def _on_address(self, node: ast.AST, op: ast.operator, left: Value, right: Value) -> Value:
        make = self.code.make
        if isinstance(op, ast.Sub) and right.kind == ADDRESS:
            here, there = (make(f"ptrtoint ptr {v.text} to i64") for v in (left, right))
            return Value(_I64, make(f"sub i64 {here}, {there}"))
        if not isinstance(op, ast.Add | ast.Sub):
            raise self.problem(node, "an operator that addresses lack", "add, subtract, or take as_u64(...)")
        offset = self.converted(right, _I64, node).text
        if isinstance(op, ast.Sub):
            offset = make(f"sub i64 0, {offset}")
        return Value(ADDRESS, self._behind(left.text, 1, offset))

    def _floored(self, kind: Integer, name: str, a: str, b: str) -> Value:
        """Quotient or remainder as Python rounds: down, where the machine rounds to zero."""
        make, t = self.code.make, llvm_type(kind)
        rest = make(f"srem {t} {a}, {b}")
        signs, inexact = make(f"xor {t} {rest}, {b}"), make(f"icmp ne {t} {rest}, 0")
        below = make(f"and i1 {inexact}, {make(f'icmp slt {t} {signs}, 0')}")
        if name == "srem":
            return Value(kind, make(f"select i1 {below}, {t} {make(f'add {t} {rest}, {b}')}, {t} {rest}"))
        quotient = make(f"sdiv {t} {a}, {b}")
        return Value(kind, make(f"select i1 {below}, {t} {make(f'sub {t} {quotient}, 1')}, {t} {quotient}"))

    def _unary(self, node: ast.UnaryOp) -> Value:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return Value(BOOL, self.code.make(f"xor i1 {self.converted(value, BOOL, node).text}, true"))
        if isinstance(value.kind, Integer) and isinstance(node.op, ast.USub):
            return self.operation(node, ast.Sub(), Value(LITERAL, "0"), value)
        if isinstance(value.kind, Integer) and isinstance(node.op, ast.Invert):
            if value.kind.bits < 64:
                value = self.converted(value, _I64, node)
            return Value(value.kind, self.code.make(f"xor {value.typed}, -1"))
        raise self.problem(node, f"this operator on {value.kind}", "use -x and ~x of integers, not x of truth values")

    def condition(self, node: ast.expr) -> str:
        """A truth value."""
        value = self.value(node)
        if value.kind != BOOL:
            raise self.problem(node, f"{_said(value)} is no truth value", "compare it: x != 0, x is not None")
        return value.text

    def _short_circuit(self, node: ast.BoolOp) -> Value:
        code, is_or = self.code, isinstance(node.op, ast.Or)
        done, ways = code.block("decided"), []
        for part in node.values[:-1]:
            value = self.condition(part)
            ways.append(("true" if is_or else "false", code.here))
            following = code.block("or" if is_or else "and")
            code.branch_if(value, *((done, following) if is_or else (following, done)))
            code.enter(following)
        ways.append((self.condition(node.values[-1]), code.here))
        code.branch(done)
        code.enter(done)
        return Value(BOOL, code.phi("i1", ways))

    def _comparison(self, node: ast.Compare) -> Value:
        if len(node.ops) > 1:
            raise self.problem(node, "a chain of comparisons", "write a < b and b < c")
        op, left = node.ops[0], self.value(node.left)
        if isinstance(op, ast.In | ast.NotIn):
            return self._membership(node, left, node.comparators[0], isinstance(op, ast.NotIn))
        right = self.value(node.comparators[0])
        if isinstance(op, ast.Is | ast.IsNot):
            if right.kind != NULL or llvm_type(left.kind) != "ptr":
                raise self.problem(node, "`is` of two values", "compare with None by `is`, address_of(...) by ==")
            return Value(BOOL, self.code.make(f"icmp {'eq' if isinstance(op, ast.Is) else 'ne'} ptr {left.text}, null"))
        if type(op) not in _COMPARISONS:
            raise self.problem(node, "a comparison that the language lacks", "use == != < <= > >= is")
        kind, (x, y) = self.common(node, left, right)
        if not isinstance(kind, Integer | AddressKind) and kind != BOOL:
            raise self.problem(node, f"a comparison of {kind}", "compare fields, or address_of(...) of both")
        return Value(BOOL, self._compared(kind, _COMPARISONS[type(op)][0], x.text, y.text))

    def _membership(self, node: ast.AST, value: Value, among: ast.expr, is_not: bool) -> Value:
        """Whether a value is one of a few constants."""
        if not isinstance(among, ast.Tuple) or any(not isinstance(self.constant(e), int) for e in among.elts):
            raise self.problem(node, "`in` of something", "write x in (A, B) with constants")
        found = "false"
        for element in among.elts:
            kind, (x, y) = self.common(node, value, self.value(element))
            found = self.code.make(f"or i1 {found}, {self._compared(kind, 'eq', x.text, y.text)}")
        return Value(BOOL, self.code.make(f"xor i1 {found}, {'true' if is_not else 'false'}"))

    def _compared(self, kind: Kind, how: str, x: str, y: str) -> str:
        sign = "" if how in ("eq", "ne") else "s" if isinstance(kind, Integer) and kind.signed else "u"
        return self.code.make(f"icmp {sign}{how} {llvm_type(kind)} {x}, {y}")

    def _choice(self, node: ast.IfExp, wanted: Kind | None) -> Value:
        known = self.constant(node.test)
        if isinstance(known, bool):
            return self.value(node.body if known else node.orelse, wanted)
        code = self.code
        yes, no, done = (code.block(n) for n in ("yes", "no", "chosen"))
        code.branch_if(self.condition(node.test), yes, no)
        found = []
        for block, part in ((yes, node.body), (no, node.orelse)):
            code.enter(block)
            found.append((self.value(part, wanted), code.here))
        kind = self._common_kind(node, [v for v, _ in found])
        ways = []
        for value, block in found:
            code.here = block
            ways.append((self.converted(value, kind, node).text, block))
            code.branch(done)
        code.enter(done)
        return Value(kind, code.phi(llvm_type(kind), ways))

    def _common_kind(self, node: ast.AST, values: list[Value]) -> Kind:
        """What `common` would make of them, without doing it."""
        typed = [v for v in values if v.kind != LITERAL]
        if len({v.kind for v in typed}) == 1:
            return typed[0].kind
        here, code = self.code.here, self.code
        code.here = code.block("unused")
        try:
            return self.common(node, *values)[0]
        finally:
            code.here = here

    # Memory.

    def place(self, node: ast.expr) -> tuple[MemoryPlace, str]:
        """What a field or an element is, and where."""
        if isinstance(node, ast.Subscript):
            array, index = self.value(node.value), self.value(node.slice, _I64)
            if not isinstance(array.kind, SpanKind):
                raise self.problem(node, f"an element of {array.kind}", "declare an Span")
            element = array.kind.element
            return element, self._behind(array.text, element.nbytes, index.text)
        if not isinstance(node, ast.Attribute):
            raise self.problem(node, "an assignment to this", "assign to variables, fields and elements")
        record = self.value(node.value)
        if not isinstance(record.kind, RecordKind):
            raise self.problem(node, f"a field of {record.kind}", "declare it as a Record")
        places = places_of(record.kind.cls)
        if node.attr not in places:
            raise self.problem(node, f"{record.kind} has no field {node.attr}", f"it has {', '.join(places)}")
        return places[node.attr], self._behind(record.text, 1, str(record.kind.cls.offset_of(node.attr)))

    def _behind(self, base: str, nbytes: int, index: str) -> str:
        """The address of element ``index`` of ``nbytes`` each."""
        t = "i8" if nbytes == 1 else f"[{nbytes} x i8]"
        return base if index == "0" else self.code.make(f"getelementptr {t}, ptr {base}, i64 {index}")

    def loaded(self, place: MemoryPlace, at: str) -> Value:
        """A reference to what lies in a place, or its value."""
        return Value(place.kind, at if place.is_inline else self.code.make(f"load {llvm_type(place.kind)}, ptr {at}"))

    def stored(self, node: ast.AST, place: MemoryPlace, at: str, value: Value) -> None:
        """Assign to a place; a record that lies in it is copied."""
        given = self.converted(value, place.kind, node)
        if not place.is_inline:
            self.code.do(f"store {given.typed}, ptr {at}")
        elif isinstance(place.kind, RecordKind):
            self._memory_call("memcpy.p0.p0", f"ptr {at}, {given.typed}, i64 {place.nbytes}")
        else:
            raise self.problem(node, f"an assignment to {place.kind}", "use its methods")

    def _memory_call(self, name: str, arguments: str) -> None:
        self.code.do(f"call void @llvm.{name}.i64({arguments}, i1 false)")

    # Calls.

    def _call(self, node: ast.Call) -> Value:
        if node.keywords:
            raise self.problem(node, "an argument by keyword", "give arguments by position")
        known = self.constant(node.func)
        if isinstance(known, Conversion):
            return self._conversion(node, known)
        if any(known is special for special in builtins.SPECIAL):
            return self._special(node, known)
        if isinstance(node.func, ast.Attribute):
            cls = self.constant(node.func.value)
            if node.func.attr == "at" and isinstance(cls, type) and issubclass(cls, Record):
                return Value(RecordKind(cls), self._arguments(node, [ADDRESS])[0].text)
            method = self._method(node, node.func) if known is _UNKNOWN else None
            if method is not None:
                return method
        callee = self.value(node.func)
        if not isinstance(callee.kind, FunctionKind):
            raise self.problem(node, f"a call of {callee.kind}", "call functions, or values of a Callable type")
        arguments = ", ".join(a.typed for a in self._arguments(node, callee.kind.arguments))
        result = llvm_type(callee.kind.result)
        call = f"call {self.module.variadic(known) or result} {callee.text}({arguments})"
        if callee.kind.result == NOTHING:
            self.code.do(call)
            return _DONE
        return Value(callee.kind.result, self.code.make(call))

    def _arguments(self, node: ast.Call, kinds: Sequence[Kind]) -> list[Value]:
        if len(node.args) != len(kinds):
            raise self.problem(node, f"{len(node.args)} arguments", f"give {len(kinds)}")
        return [self.value(argument, kind) for argument, kind in zip(node.args, kinds, strict=True)]

    def _conversion(self, node: ast.Call, conversion: Conversion) -> Value:
        if len(node.args) != 1:
            raise self.problem(node, "a conversion of several values", "give one")
        value, kind = self.value(node.args[0]), conversion.kind
        if value.kind == LITERAL:
            return Value(kind, str(kind.wrapped(int(value.text))))
        if value.kind == ADDRESS:
            value = Value(_I64, self.code.make(f"ptrtoint {value.typed} to i64"))
        if value.kind == BOOL:
            return Value(kind, self.code.make(f"zext {value.typed} to {llvm_type(kind)}"))
        if not isinstance(value.kind, Integer):
            raise self.problem(node, f"a number from {value.kind}", "convert integers, addresses and truth values")
        return self._resized(value, value.kind, kind)

    def _method(self, node: ast.Call, method: ast.Attribute) -> Value | None:
        owner = self.value(method.value)
        if isinstance(owner.kind, AtomicKind):
            return self._atomic(node, owner.text, owner.kind.value, method.attr)
        if isinstance(owner.kind, SpanKind) and method.attr == "behind":
            (count,) = self._arguments(node, [_I64])
            return Value(owner.kind, self._behind(owner.text, owner.kind.element.nbytes, count.text))
        return None

    def _atomic(self, node: ast.Call, at: str, kind: Integer | AddressKind | FunctionKind, method: str) -> Value:
        if method not in _ATOMICS:
            raise self.problem(node, f"an atomic has no {method}", f"it has {', '.join(_ATOMICS)}")
        count, orders = _ATOMICS[method]
        if len(node.args) != count + 1:
            raise self.problem(node, f"{len(node.args)} arguments", f"give {count} and a memory order")
        if method == "add" and not isinstance(kind, Integer):
            raise self.problem(node, f"a sum of {kind}", "add to integers")
        order = self._order(node, orders)
        values = [self.value(a, kind).typed for a in node.args[:-1]]
        t, align = llvm_type(kind), kind.bits // 8 if isinstance(kind, Integer) else 8
        make = self.code.make
        if method == "store":
            self.code.do(f"store atomic {values[0]}, ptr {at} {order}, align {align}")
            return _DONE
        if method == "load":
            return Value(kind, make(f"load atomic {t}, ptr {at} {order}, align {align}"))
        if method == "compare_exchange":
            failed = {"release": "monotonic", "acq_rel": "acquire"}.get(order, order)
            pair = make(f"cmpxchg ptr {at}, {', '.join(values)} {order} {failed}")
            return Value(kind, make(f"extractvalue {{ {t}, i1 }} {pair}, 0"))
        return Value(kind, make(f"atomicrmw {'add' if method == 'add' else 'xchg'} ptr {at}, {values[0]} {order}"))

    def _order(self, node: ast.Call, allowed: Sequence[str]) -> str:
        """LLVM's name of a memory order."""
        order = self.constant(node.args[-1]) if node.args else None
        if order not in allowed:
            raise self.problem(node, "no memory order that it may have", f"end with one of {', '.join(allowed)}")
        return "monotonic" if order == RELAXED else str(order)

    def _special(self, node: ast.Call, known: Any) -> Value:
        if known is builtins.local:
            cls = self.constant(node.args[0])
            return Value(RecordKind(cls), self.code.memory(f"[{MemoryPlace(RecordKind(cls)).nbytes} x i8]", 16))
        if known is builtins.local_array:
            bits, count = (self.constant(a) for a in node.args)
            if bits not in (8, 32, 64) or not isinstance(count, int):
                raise self.problem(node, "memory of a size that is not constant", "give constants")
            return Value(SpanKind(MemoryPlace(Integer(bits, False))), self.code.memory(f"[{count} x i{bits}]", 16))
        if known is builtins.fence:
            self.code.do(f"fence {self._order(node, ORDERS[1:])}")
        elif known is address_of:
            value = self.value(node.args[0])
            if llvm_type(value.kind) != "ptr":
                raise self.problem(
                    node, f"the address of {value.kind}", "take that of a record, an array, an atomic, a function"
                )
            return Value(ADDRESS, value.text)
        elif known in (min, max):
            return self._extreme(node, "lt" if known is min else "gt")
        else:
            filled = known is builtins.fill_memory
            kinds = [ADDRESS, Integer(8, False) if filled else ADDRESS, _I64]
            arguments = ", ".join(a.typed for a in self._arguments(node, kinds))
            self._memory_call("memset.p0" if filled else "memcpy.p0.p0", arguments)
        return _DONE

    def _extreme(self, node: ast.Call, how: str) -> Value:
        kind, values = self.common(node, *(self.value(a) for a in node.args))
        if not isinstance(kind, Integer):
            raise self.problem(node, f"the least or greatest of {kind}", "give integers")
        result, t = values[0].text, llvm_type(kind)
        for v in values[1:]:
            better = self._compared(kind, how, v.text, result)
            result = self.code.make(f"select i1 {better}, {t} {v.text}, {t} {result}")
        return Value(kind, result)


def _said(value: Value) -> str:
    return f"the number {value.text}" if value.kind == LITERAL else str(value.kind)
