"""Convolutions on a grid: products whose left side is read through the window, without a copy of the patches.

Rows are the output's dimensions but the features, depth the kernel's (`shardc.compiler.elements.convolution_roles`);
groups are batches. A convolution of a dilated input is several ones without gaps, each of which makes some of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardc.compiler.elements.affine import Expr, InRange, VarSource, condition, delinearise, divmod_expr
from shardc.compiler.elements.convolution_roles import Role, Roles
from shardc.compiler.elements.elements import Index
from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.products.problem import ProductOperand, ProductProblem, Where, power_dividing
from shardc.compiler.gpu.products.product import emit_product, only, reads_in_place
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import Shape

__all__ = ["emit_convolution", "takes_convolution"]

#: Products per element of the result below which a convolution is a map, if it has fewer features per group than this.
_SHALLOW, _FEW = 64, 4


def takes_convolution(kernel: GpuKernel) -> bool:
    """A convolution, or a fusion of one and what is computed from its elements one by one.

    Not of single channels with few taps, which reads as much as it computes; and with something fused only where one
    product makes all of the result.
    """
    i = only(kernel, "convolution")
    if i is None or any(0 in o.shape.dims for o in (i, *i.operands)):
        return False
    roles = Roles(i)
    alone = kernel.computation.root is i
    worth = roles.features >= _FEW or roles.depth_count >= _SHALLOW
    return worth and (alone or (_is_whole(roles) and reads_in_place(kernel, i)))


def _is_whole(roles: Roles) -> bool:
    """Whether the convolution is one product, of all rows."""
    parts = roles.parts()
    return len(parts) == 1 and parts[0].row_count == roles.row_count


def emit_convolution(kernel: GpuKernel) -> None:
    """One product, or one per part of a dilated input; rows that meet no input at all are zero."""
    i = only(kernel, "convolution")
    assert i is not None
    roles = Roles(i)
    parts = roles.parts()
    if sum(p.row_count for p in parts) < roles.row_count:
        kernel.fill(kernel.results[0], 0, i.shape.nbytes)
    for part in parts:
        emit_product(kernel, _problem(i, part), _is_whole(roles))


def _problem(i: Instruction, roles: Roles) -> ProductProblem:
    windows = _Windows(i, roles)
    return ProductProblem(
        i,
        i.shape.dtype.accumulator,
        (roles.groups,) if roles.groups > 1 else (),
        roles.row_count,
        roles.features,
        roles.depth_count,
        ProductOperand(i.operands[0], windows.read, *windows.input_runs(), windowed=True),
        ProductOperand(i.operands[1], windows.weight, *windows.kernel_runs()),
        windows.place,
        *windows.output_runs(),
    )


class _Windows:
    """Where elements of the two operands and of the result lie."""

    def __init__(self, i: Instruction, roles: Roles) -> None:
        self.roles = roles
        self.input, self.kernel, self.output = i.operands[0].shape, i.operands[1].shape, i.shape
        #: Depth in the order in which the operand lies whose neighbours are neighbours in depth.
        inner = _innermost(self.input)
        by_input = any(r.dim == inner and r.step == 1 for r in roles.depth)
        self.depth = roles.depth_as_read if by_input else roles.depth

    def read(self, source: VarSource, batch: Index, row: Expr, depth: Expr) -> Where:
        """The input's element of an output row and a depth; it exists neither in the padding nor in gaps."""
        roles = self.roles
        at = [Expr(n) for n in roles.base]
        at[roles.group.dim] += _group(batch) * roles.group.step
        for some, position in ((roles.rows, row), (self.depth, depth)):
            for role, x in zip(some, _divided(source, position, some), strict=True):
                at[role.dim] = at[role.dim] + x * role.step
        tests: list[InRange | bool] = []
        for dim, gap in enumerate(roles.dilation):
            tests.append(condition(at[dim], 0, (self.input.dims[dim] - 1) * gap + 1))
            if gap > 1:
                at[dim], rest = divmod_expr(source, at[dim], gap)
                tests.append(condition(rest, 0, 1))
        if any(t is False for t in tests):
            return tuple(at), None
        return tuple(at), tuple(t for t in tests if isinstance(t, InRange))

    def weight(self, source: VarSource, batch: Index, feature: Expr, depth: Expr) -> Where:
        """The kernel's element of a feature and a depth."""
        roles = self.roles
        at = {r.own: r.at(x) for r, x in zip(self.depth, _divided(source, depth, self.depth), strict=True)}
        at[roles.kernel_feature_dim] = _group(batch) * roles.features + feature
        return tuple(at[d] for d in range(self.kernel.rank)), ()

    def place(self, source: VarSource, batch: Index, row: Expr, feature: Expr) -> Index:
        roles = self.roles
        at = {r.own: r.at(x) for r, x in zip(roles.rows, _divided(source, row, roles.rows), strict=True)}
        at[roles.feature_dim] = _group(batch) * roles.features + feature
        return tuple(at[d] for d in range(self.output.rank))

    # What lies together.

    def input_runs(self) -> tuple[bool, int]:
        """`ProductOperand.along_depth` and `ProductOperand.run` of the input."""
        roles, inner = self.roles, _innermost(self.input)
        for some, along in ((self.depth, True), (roles.rows, False)):
            for role in some:
                if role.dim == inner and role.size > 1 and role is _last(some):
                    alone = sum(r.dim == inner for r in (*roles.rows, *self.depth) if r.size > 1) == 1
                    plain = role.step == 1 and alone and roles.base[inner] == 0 and roles.dilation[inner] == 1
                    fits = plain and (role.size == self.input.dims[inner] or roles.group.dim == inner)
                    return along, power_dividing(role.size) if fits else 1
        return _innermost_role(self.depth, inner), 1

    def kernel_runs(self) -> tuple[bool, int]:
        roles, inner = self.roles, _innermost(self.kernel)
        if inner == roles.kernel_feature_dim:
            return False, power_dividing(roles.features)
        last = _last(self.depth)
        together = last is not None and last.own == inner and last.every == 1
        return True, power_dividing(last.size) if together and last is not None else 1

    def output_runs(self) -> tuple[bool, int]:
        """`ProductProblem.rows_together` and `ProductProblem.run`."""
        features = _innermost(self.output) == self.roles.feature_dim
        return not features, power_dividing(self.roles.features) if features else 1


def _group(batch: Index) -> Expr:
    return batch[0] if batch else Expr()


def _divided(source: VarSource, position: Expr, roles: Sequence[Role]) -> Index:
    return delinearise(source, position, [r.size for r in roles])


def _innermost(shape: Shape) -> int:
    """The dimension along which neighbours in memory lie; -1 for a single element."""
    return max((d for d, n in enumerate(shape.dims) if n > 1), default=-1)


def _last(roles: Sequence[Role]) -> Role | None:
    """The role that counts neighbours."""
    return next((r for r in reversed(roles) if r.size > 1), None)


def _innermost_role(roles: Sequence[Role], dim: int) -> bool:
    return any(r.dim == dim and r.size > 1 for r in roles)
