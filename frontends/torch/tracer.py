"""A graph of ATen operators, run on JAX's values: one node after the other."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from shardc.frontends.foreign import describe_error
from shardc.frontends.torch.draw_keys import Draws, draws_numbers
from shardc.frontends.torch.operators import Operators
from shardc.frontends.torch.places import NodePlace, place_of, scope
from shardc.hlo.errors import ShardcError, UnsupportedError

__all__ = ["GraphTracer"]


class GraphTracer:
    """Runs graphs while JAX traces; ``places`` collects where each operator comes from, by the number of its scope.

    ``draws`` gives operators that draw random numbers their keys; without it they are refused.
    """

    def __init__(self, torch: Any, jax: Any) -> None:
        self._torch, self._jax = torch, jax
        self._own = str(torch.__path__[0])
        self._operators = Operators(torch, jax)
        self.places: list[NodePlace] = []
        self.draws: Draws | None = None

    def run(self, graph_module: Any, values: Sequence[Any]) -> list[Any]:
        """The results of ``graph_module`` for the ``values`` of its placeholders, as one list."""
        found: dict[Any, Any] = {}
        waiting = iter(values)
        for node in graph_module.graph.nodes:
            if node.op == "placeholder":
                found[node] = next(waiting)
            elif node.op == "get_attr":
                found[node] = self._attribute(graph_module, node)
            elif node.op == "output":
                results = self._arguments(node.args[0], found)
                return list(results) if isinstance(results, (tuple, list)) else [results]
            else:
                found[node] = self._call(node, self._arguments(node.args, found), self._arguments(node.kwargs, found))
        raise UnsupportedError("the graph has no results")

    def _arguments(self, arguments: Any, found: Mapping[Any, Any]) -> Any:
        """Arguments of a node with the values of the nodes in them, as rows take them."""
        return self._torch.fx.node.map_aggregate(
            arguments, lambda a: found[a] if isinstance(a, self._torch.fx.Node) else self._operators.argument(a)
        )

    def _attribute(self, graph_module: Any, node: Any) -> Any:
        value = operator.attrgetter(node.target)(graph_module)
        if isinstance(value, self._torch.Tensor):
            return self._jax.numpy.asarray(value.detach().numpy())
        return value

    def _call(self, node: Any, args: Any, kwargs: Any) -> Any:
        if node.target is operator.getitem:
            return args[0][args[1]]
        place = place_of(node, self._own)
        self.places.append(place)
        with self._jax.named_scope(scope(len(self.places) - 1)):
            try:
                inner = self._higher_order(node, args)
                if inner is not None:
                    return inner
                row = self._operators.row(node.target, self.draws)
                return self._operators.checked(node, row(*args, **kwargs))
            except ShardcError as e:
                where = str(place) or None
                raise type(e)(e.what, where=e.where or where, fix=e.fix) from None
            except Exception as e:
                raise UnsupportedError(
                    f"{node.target} is not supported with these arguments: {describe_error(e)}",
                    where=str(place) or None,
                    fix="write it with other operators, or keep this part outside of the program",
                ) from e

    def _higher_order(self, node: Any, args: Any) -> Any:
        """What operators that call graphs give; None for all others."""
        ops, lax = self._torch.ops.higher_order, self._jax.lax
        if node.target in (ops.wrap_with_set_grad_enabled, ops.wrap_with_autocast):
            start = next(k for k, a in enumerate(args) if hasattr(a, "graph"))
            return tuple(self.run(args[start], args[start + 1 :]))
        if node.target is ops.with_effects:
            token, operator_, *rest = args
            made = self._operators.row(operator_, self.draws)(*rest)
            return (token, *made) if isinstance(made, tuple) else (token, made)
        if node.target is ops.cond:
            condition, yes, no, *rest = args
            values = tuple(rest[0]) if rest else ()
            return lax.cond(
                condition.reshape(()), lambda *v: tuple(self.run(yes, v)), lambda *v: tuple(self.run(no, v)), *values
            )
        if node.target is ops.while_loop:
            test, body, carried, *rest = args
            others = tuple(rest[0]) if rest else ()
            if any(draws_numbers(self._torch, part) for part in (test, body)):
                raise UnsupportedError(
                    "a loop draws random numbers, which would be the same every time",
                    fix="draw them before the loop, and pass them to it",
                )
            return lax.while_loop(
                lambda c: self.run(test, (*c, *others))[0].reshape(()),
                lambda c: tuple(self.run(body, (*c, *others))),
                tuple(self._jax.numpy.asarray(c) for c in carried),
            )
        return None
