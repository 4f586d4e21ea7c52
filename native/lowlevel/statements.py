"""Statements of the low-level language, as IR."""

from __future__ import annotations

import ast
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardc.native.lowlevel.emission import Block, Code
from shardc.native.lowlevel.expressions import Definitions, Expressions, Value, llvm_type
from shardc.native.lowlevel.kinds import LITERAL, NOTHING, NULL, FunctionKind, Integer, Kind
from shardc.native.lowlevel.records import kind_of
from shardc.native.lowlevel.sources import names_of, tree_of

__all__ = ["emit_function"]

_I64 = Integer(64, True)


@dataclass(slots=True)
class _Loop:
    """Where ``continue`` and ``break`` of a loop go, and the variables that have a value wherever it is left."""

    following: Block
    done: Block
    assigned: list[set[str]] = field(default_factory=list)


def emit_function(module: Definitions, function: Any, signature: FunctionKind) -> str:
    """The body of ``function``; its parameters are called ``%0``, ``%1``, ..."""
    tree, code = tree_of(function), Code()
    statements = _Statements(Expressions(module, function, code, names_of(function)), signature)
    for n, (parameter, kind) in enumerate(zip(tree.args.args, signature.arguments, strict=True)):
        statements.assign(parameter, parameter.arg, Value(kind, f"%{n}"))
    statements.run(tree.body)
    if not code.here.is_over:
        if signature.result == NOTHING:
            code.end("ret void")
        elif not code.here.is_reached:
            code.end("unreachable")
        else:
            raise statements.e.problem(tree, "it may end without a result", "end every way with return")
    return code.text()


class _Statements:
    """Emits the statements of one function."""

    def __init__(self, expressions: Expressions, signature: FunctionKind) -> None:
        self.e, self.code, self._signature = expressions, expressions.code, signature
        self._loops: list[_Loop] = []

    def run(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if self.code.here.is_over:
                raise self.e.problem(statement, "a statement that is never reached", "delete it")
            self._one(statement)

    def _one(self, node: ast.stmt) -> None:
        e = self.e
        match node:
            case ast.Pass() | ast.Expr(ast.Constant()):
                pass
            case ast.Expr(ast.Call() as call):
                e.value(call)
            case ast.Return(value):
                self._return(node, value)
            case ast.Assign([ast.Name(name)], value):
                self.assign(node, name, e.value(value, e.variables[name][0] if name in e.variables else None))
            case ast.Assign([target], value):
                given = e.value(value)
                e.stored(node, *e.place(target), given)
            case ast.AnnAssign(ast.Name(name), annotation, value) if value is not None:
                kind = kind_of(self._hint(annotation))
                self.assign(node, name, e.value(value, kind))
            case ast.AugAssign(target, op, value):
                self._change(node, target, op, value)
            case ast.If():
                self._if(node)
            case ast.While():
                self._while(node)
            case ast.For():
                self._for(node)
            case ast.Break() | ast.Continue():
                self._leave(node)
            case _:
                fix = "use assignments, calls, if, while, for over range, break, continue, return"
                raise e.problem(node, f"a statement ({type(node).__name__}) that the language lacks", fix)

    def _hint(self, annotation: ast.expr) -> Any:
        text = ast.unparse(annotation)
        made = typing.get_type_hints(_with_hint(text), globalns=dict(self.e.names), include_extras=True)
        return made["x"]

    def assign(self, node: ast.AST, name: str, value: Value) -> None:
        """Give a variable a value; its kind is that of its first."""
        e = self.e
        if name not in e.variables:
            if value.kind in (NULL, NOTHING):
                raise e.problem(node, f"{name} is None at first", f"declare it: {name}: T | None = None")
            kind: Kind = _I64 if value.kind == LITERAL else value.kind
            e.variables[name] = kind, self.code.memory(llvm_type(kind), 8)
        kind, memory = e.variables[name]
        self.code.do(f"store {e.converted(value, kind, node).typed}, ptr {memory}")
        e.assigned.add(name)

    def _change(self, node: ast.AST, target: ast.expr, op: ast.operator, value: ast.expr) -> None:
        e = self.e
        if isinstance(target, ast.Name):
            self.assign(node, target.id, e.operation(node, op, e.value(target), e.value(value)))
            return
        place, at = e.place(target)
        if place.is_inline:
            raise e.problem(node, f"an operator on {place.kind}", "use its methods")
        e.stored(node, place, at, e.operation(node, op, e.loaded(place, at), e.value(value)))

    def _return(self, node: ast.AST, value: ast.expr | None) -> None:
        result = self._signature.result
        if (value is None) != (result == NOTHING):
            raise self.e.problem(node, f"a return from a function of {result}", "return what it says")
        self.code.end("ret void" if value is None else f"ret {self.e.value(value, result).typed}")

    def _if(self, node: ast.If) -> None:
        known = self.e.constant(node.test)
        if isinstance(known, bool):
            self.run(node.body if known else node.orelse)
            return
        code, e = self.code, self.e
        yes, no, done = (code.block(n) for n in ("then", "else", "after"))
        code.branch_if(e.condition(node.test), yes, no)
        before, ends = set(e.assigned), []
        for block, part in ((yes, node.body), (no, node.orelse)):
            code.enter(block)
            e.assigned = set(before)
            self.run(part)
            if not code.here.is_over:
                code.branch(done)
                ends.append(e.assigned)
        self._continue_at(done, ends)

    def _continue_at(self, block: Block, ways: list[set[str]]) -> None:
        """Go on in ``block``; on each way to it those variables have a value."""
        self.code.enter(block)
        if ways:
            self.e.assigned = set.intersection(*ways)
        else:
            self.code.end("unreachable")

    def _while(self, node: ast.While) -> None:
        if node.orelse:
            raise self.e.problem(node, "an else of a loop", "write it behind the loop")
        code, e = self.code, self.e
        head, body, done = (code.block(n) for n in ("while", "body", "done"))
        code.branch(head)
        code.enter(head)
        loop = _Loop(head, done)
        if e.constant(node.test) is True:
            code.branch(body)
        else:
            code.branch_if(e.condition(node.test), body, done)
            loop.assigned.append(set(e.assigned))
        code.enter(body)
        self._body(loop, node.body)
        self._continue_at(done, loop.assigned)

    def _body(self, loop: _Loop, statements: list[ast.stmt]) -> None:
        self._loops.append(loop)
        self.run(statements)
        self._loops.pop()
        if not self.code.here.is_over:
            self.code.branch(loop.following)

    def _for(self, node: ast.For) -> None:
        code, e = self.code, self.e
        match node:
            case ast.For(ast.Name(name), ast.Call(ast.Name("range"), arguments, []), _, []) if arguments:
                pass
            case _:
                raise e.problem(node, "a loop over something else than a range", "write for NAME in range(...)")
        begin, end = (
            [ast.copy_location(ast.Constant(0), node), *arguments][-2:] if len(arguments) < 2 else arguments[:2]
        )
        step = e.constant(arguments[2]) if len(arguments) > 2 else 1
        if not isinstance(step, int) or step < 1:
            raise e.problem(node, "a range whose step is no positive constant", "write a while loop")
        kind, (first, limit) = e.common(node, e.value(begin), e.value(end))
        head, body, following, done = (code.block(n) for n in ("for", "body", "next", "done"))
        t, counter = llvm_type(kind), code.memory(llvm_type(kind), 8)
        code.do(f"store {first.typed}, ptr {counter}")
        code.branch(head)
        code.enter(head)
        here = code.make(f"load {t}, ptr {counter}")
        less = "slt" if isinstance(kind, Integer) and kind.signed else "ult"
        code.branch_if(code.make(f"icmp {less} {t} {here}, {limit.text}"), body, done)
        loop = _Loop(following, done, [set(e.assigned)])
        code.enter(body)
        self.assign(node, name, Value(kind, here))
        self._body(loop, node.body)
        code.enter(following)
        code.do(f"store {t} {code.make(f'add {t} {here}, {step}')}, ptr {counter}")
        code.branch(head)
        self._continue_at(done, loop.assigned)

    def _leave(self, node: ast.stmt) -> None:
        loop = self._loops[-1]
        if isinstance(node, ast.Break):
            loop.assigned.append(set(self.e.assigned))
            self.code.branch(loop.done)
        else:
            self.code.branch(loop.following)


def _with_hint(text: str) -> Any:
    """A class whose ``x`` is annotated so."""
    annotations: Mapping[str, str] = {"x": text}
    return type("_Hinted", (), {"__annotations__": annotations})
