"""The `pulumi.com/waitFor` annotation: `jsonpath={.path}=value`, `condition=Type=Status`, or a JSON list of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from jsonpath_ng import Child, Descendants, JSONPath, Root
from jsonpath_ng.exceptions import JSONPathError
from jsonpath_ng.ext.parser import ExtendedJsonPathParser

from lab.plugins.kubernetes.awaiting.readiness import READY, Readiness, condition_text, conditions, observed, section
from lab.plugins.kubernetes.errors import ProviderError
from lab.plugins.kubernetes.objects import metadata
from lab.plugins.kubernetes.properties import Tree

Check = Callable[[Tree], Readiness]

# The official provider reads RFC 9535. The library reads more: arithmetic, sorting, `len`, regular expressions, where.
_QUOTED: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_BEYOND_RFC: Final = re.compile(r"[`+/~\\]|(?<!\|)\|(?!\|)|(?<!&)&(?!&)|(?<![\w-])where(?:not)?(?![\w-])")


def parse(annotation: str) -> list[Check]:
    """Checks of the annotation, all of which must hold. Raises ProviderError on an expression that cannot be read."""
    try:
        parsed = json.loads(annotation)
    except ValueError:
        parsed = None
    expressions = parsed if isinstance(parsed, list) else [annotation]
    if not expressions:
        raise ProviderError("pulumi.com/waitFor is an empty list: it takes one expression or more")
    return [_parse_one(str(expression)) for expression in expressions]


def _parse_one(expression: str) -> Check:
    if expression.startswith("jsonpath="):
        return _json_path(expression.removeprefix("jsonpath="))
    if expression.startswith("condition="):
        kind, _, status = expression.removeprefix("condition=").partition("=")
        return _condition(kind, status or "True")
    raise ProviderError(f'waitFor "{expression}" begins with neither "jsonpath=" nor "condition="')


def _stale(obj: Tree) -> bool:
    return "observedGeneration" in section(obj, "status") and not observed(obj)


def _condition(kind: str, wanted: str) -> Check:
    def holds(obj: Tree) -> Readiness:
        condition = next((item for name, item in conditions(obj).items() if name.lower() == kind.lower()), None)
        if condition is None:
            message = f'waiting for condition "{kind}"'
            return Readiness.not_yet(message)
        done = str(condition.get("status", "")).lower() == wanted.lower()
        stale = condition.get("observedGeneration", metadata(obj).get("generation")) != metadata(obj).get("generation")
        if done and not stale and not _stale(obj):
            return READY
        message = f'waiting for condition "{kind}" to be {wanted}: {condition_text(condition)}'
        return Readiness.not_yet(message)

    return holds


def _json_path(text: str) -> Check:
    # A filter compares by `==` and `<=`, which are not the `=` before the value.
    path, value = _split_value(text)
    match = re.fullmatch(r"\{\s*(?P<inner>.*?)\s*\}", path)
    if path.startswith("'"):
        raise ProviderError(f"waitFor {path}: no quotes around it, an annotation passes no shell")
    if match is None:
        raise ProviderError(f"waitFor {path}: a JSONPath needs braces, such as {{.status.phase}}")
    parsed = _read(match["inner"], path)

    def holds(obj: Tree) -> Readiness:
        if _stale(obj):
            message = f"waiting for {text}: the controller has not seen this generation"
            return Readiness.not_yet(message)
        selected = parsed.find(obj)
        actual = selected[0].value if selected else None
        if actual is None:
            return Readiness.not_yet(f"waiting for {text}", [f"{path} selected nothing"])
        if isinstance(actual, (dict, list)):
            if value is not None:
                reason = f'{path} is a {type(actual).__name__}, which cannot equal "{value}"'
                return Readiness.never(reason, [reason])
            return READY
        shown = str(actual).lower() if isinstance(actual, bool) else str(actual)
        if value is None or shown == value:
            return READY
        message = f'waiting for {text} (found "{shown}")'
        return Readiness.not_yet(message)

    return holds


def _split_value(text: str) -> tuple[str, str | None]:
    parts = re.split(r"(?<![=!<>])=(?!=)", text)
    if len(parts) > 2:
        raise ProviderError(f'waitFor "{text}" has more than one "=": it takes {{.path}} or {{.path}}=value')
    if len(parts) == 1:
        return text, None
    if not parts[1]:
        raise ProviderError(f"waitFor {parts[0]}= lacks its value; without the = it waits for the field alone")
    return parts[0], parts[1]


def _read(inner: str, path: str) -> JSONPath:
    text = inner if inner.startswith("$") else f"${inner}"
    beyond = _BEYOND_RFC.search(_QUOTED.sub("''", text))
    if beyond:
        raise ProviderError(f'cannot read JSONPath "{path}": "{beyond[0]}" is read in quotes alone, as in .a[\'b/c\']')
    try:
        parsed = ExtendedJsonPathParser().parse(text)
    except JSONPathError as error:
        raise ProviderError(f'cannot read JSONPath "{path}": {error}') from error
    if not isinstance(parsed, (Root, Child, Descendants)):
        raise ProviderError(f'cannot read JSONPath "{path}": it calculates, and a path only selects')
    return parsed
