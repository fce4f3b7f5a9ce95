"""Reads PromQL by a parser of the language, and follows the labels of its series through it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import promql_parser
from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    Expr,
    MatrixSelector,
    ParenExpr,
    StringLiteral,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
)

Known = Mapping[str, frozenset[str]]
_PICKING = ("topk", "bottomk", "limitk", "limit_ratio")


@dataclass(kw_only=True)
class Reading:
    """What an expression asks for, and what is wrong with that."""

    known: Known
    """Labels by name of a metric."""
    names: set[str] = field(default_factory=set)
    """Metrics that it asks for."""
    mistakes: list[str] = field(default_factory=list)
    labels: frozenset[str] = frozenset()
    """Labels that its series have."""

    def of(self, node: Expr) -> frozenset[str]:
        """Labels of a part's series."""
        match node:
            case VectorSelector():
                return self._selected(node)
            case MatrixSelector():
                return self._selected(node.vector_selector)
            case ParenExpr() | SubqueryExpr() | UnaryExpr():
                return self.of(node.expr)
            case AggregateExpr():
                return self._grouped(node)
            case BinaryExpr():
                return self._combined(node)
            case Call():
                return self._called(node)
        return frozenset()

    def _selected(self, selector: VectorSelector) -> frozenset[str]:
        name = selector.name or ""
        self.names.add(name)
        if name not in self.known:
            self.mistakes.append(f"no part exposes {name}")
            return frozenset()
        self._need({matcher.name for matcher in selector.matchers.matchers}, self.known[name], name)
        return self.known[name]

    def _grouped(self, node: AggregateExpr) -> frozenset[str]:
        inner = self.of(node.expr)
        if node.modifier is None:
            return inner if str(node.op) in _PICKING else frozenset()
        named = set(node.modifier.labels)
        self._need(named, inner, str(node.expr))
        return frozenset(named) if node.modifier.type == AggModifierType.By else inner - named

    def _combined(self, node: BinaryExpr) -> frozenset[str]:
        left, right = self.of(node.lhs), self.of(node.rhs)
        matching = node.modifier.matching if node.modifier else None
        carried = frozenset((node.modifier.group_labels if node.modifier else None) or ())
        if matching is not None:
            self._need(set(matching.labels), left, str(node.lhs))
            self._need(set(matching.labels), right, str(node.rhs))
        if str(node.op) == "or":
            return left | right
        return left | carried if left else right

    def _called(self, call: Call) -> frozenset[str]:
        inner = frozenset[str]().union(*(self.of(argument) for argument in call.args if isinstance(argument, Expr)))
        texts = [argument.val for argument in call.args if isinstance(argument, StringLiteral)]
        match call.func.name:
            case "label_replace":
                self._need({texts[2]}, inner, str(call.args[0]))
                return inner | {texts[0]}
            case "histogram_quantile":
                self._need({"le"}, inner, str(call.args[1]))
                return inner - {"le"}
            case "absent" | "absent_over_time":
                # It has the labels that its matchers state in full.
                (selector,) = call.args
                plain = selector.vector_selector if isinstance(selector, MatrixSelector) else selector
                return frozenset(matcher.name for matcher in plain.matchers.matchers)
        return inner

    def _need(self, labels: set[str], there: frozenset[str], where: str) -> None:
        if missing := sorted(labels - there):
            self.mistakes.append(f"{where} has no label {', '.join(missing)}")


def read(expression: str, known: Known) -> Reading:
    """Follow every label of an expression. One that does not parse is a mistake."""
    reading = Reading(known=known)
    try:
        reading.labels = reading.of(promql_parser.parse(expression))
    except ValueError as error:
        reading.mistakes.append(str(error))
    return reading
