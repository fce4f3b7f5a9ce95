"""Follows the units of series through an expression in PromQL: what it gives back, and which numbers it meets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import promql_parser
from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    Expr,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
)

_COMPARISONS = {">", "<", ">=", "<=", "==", "!="}
_COUNTING = {"count", "group", "count_values"}
# (unit, factor) -> what a figure of that unit is after it.
_CONVERTED = {
    ("percent", 0.01): "share",
    ("share", 100.0): "percent",
    ("ns", 1e-9): "s",
    ("MiB", 1024.0): "KiB",
    ("KiB", 1024.0): "bytes",
}
_PER_SECOND = {"bytes": "bytes/s", "s": "share"}


@dataclass(kw_only=True)
class Measure:
    """An expression's unit, None where it is a count or not known, and comparisons that mix units."""

    units: Mapping[str, str]
    mistakes: list[str] = field(default_factory=list)
    unit: str | None = None

    def of(self, node: Expr) -> str | None:
        """Unit of a part's value."""
        match node:
            case VectorSelector():
                return self.units.get(node.name or "")
            case MatrixSelector():
                return self.of(node.vector_selector)
            case ParenExpr() | SubqueryExpr() | UnaryExpr():
                return self.of(node.expr)
            case AggregateExpr():
                inner = self.of(node.expr)
                return None if str(node.op) in _COUNTING else inner
            case BinaryExpr():
                return self._combined(node)
            case Call():
                arguments = [self.of(argument) for argument in node.args if isinstance(argument, Expr)]
                unit = next((unit for unit in arguments if unit), None)
                # Of buckets, the unit is that of their bounds.
                per_second = node.func.name in ("rate", "irate") and "_bucket" not in str(node)
                return _PER_SECOND.get(unit or "") if per_second else unit
        return None

    def _combined(self, node: BinaryExpr) -> str | None:
        left, right, operator = self.of(node.lhs), self.of(node.rhs), str(node.op)
        if operator in _COMPARISONS:
            self._compared(node, left, right)
            return left
        if operator in ("*", "/"):
            number = _number(node.rhs) if _number(node.rhs) is not None else _number(node.lhs)
            if number is not None and left != right:
                factor = 1 / number if operator == "/" else number
                return _CONVERTED.get((left or right or "", factor), left or right if number in (0, 1) else None)
            if operator == "/":
                return "share" if left == right and left is not None else None
            return None
        if operator not in ("and", "unless") and left and right and left != right:
            self.mistakes.append(f"{node}: {left} {operator} {right}")
        return left if operator in ("and", "unless") else left or right

    def _compared(self, node: BinaryExpr, left: str | None, right: str | None) -> None:
        number = _number(node.rhs)
        if left and right and left != right:
            self.mistakes.append(f"{node}: {left} beside {right}")
        if left == "percent" and number is not None and 0 < abs(number) <= 1:
            self.mistakes.append(f"{node}: percent are compared with a share")
        if left == "share" and number is not None and abs(number) > 1:
            self.mistakes.append(f"{node}: a share is compared with {number:g}")


def _number(node: Expr) -> float | None:
    match node:
        case NumberLiteral():
            return float(node.val)
        case ParenExpr():
            return _number(node.expr)
    return None


def measure(expression: str, units: Mapping[str, str]) -> Measure:
    """Follow the units of an expression."""
    matching = Measure(units=units)
    matching.unit = matching.of(promql_parser.parse(expression))
    return matching
