"""The `pulumi.com/waitFor` annotation: `jsonpath={.path}=value`, `condition=Type=Status`, or a JSON list of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from lab.plugins.kubernetes.awaiting.readiness import READY, Readiness, condition_text, conditions, observed, section
from lab.plugins.kubernetes.errors import ProviderError
from lab.plugins.kubernetes.objects import metadata
from lab.plugins.kubernetes.properties import Tree

Check = Callable[[Tree], Readiness]

_STEP: Final = re.compile(
    r"""\.\.(?P<deep>[\w-]+|\*)
    |\.(?P<name>(?:[\w-]|\\.)+|\*)
    |\[(?P<index>-?\d+|\*)\]
    |\[(?P<quote>['"])(?P<quoted>.*?)(?P=quote)\]
    |\[\?\(\s*@(?P<left>[\w.\-\\\[\]'"]+)\s*(?:(?P<operator>==|!=)\s*(?P<right>.+?)\s*)?\)\]""",
    re.VERBOSE,
)


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
        found = next((item for name, item in conditions(obj).items() if name.lower() == kind.lower()), None)
        if found is None:
            message = f'waiting for condition "{kind}"'
            return Readiness.not_yet(message)
        done = str(found.get("status", "")).lower() == wanted.lower()
        stale = found.get("observedGeneration", metadata(obj).get("generation")) != metadata(obj).get("generation")
        if done and not stale and not _stale(obj):
            return READY
        message = f'waiting for condition "{kind}" to be {wanted}: {condition_text(found)}'
        return Readiness.not_yet(message)

    return holds


def _json_path(text: str) -> Check:
    # A filter holds `==`, which is not the `=` before the value.
    path, value = _split_value(text)
    match = re.fullmatch(r"\{\s*(?P<inner>.*?)\s*\}", path)
    if path.startswith("'"):
        raise ProviderError(f"waitFor {path}: no quotes around it, an annotation passes no shell")
    if match is None:
        raise ProviderError(f"waitFor {path}: a JSONPath needs braces, such as {{.status.phase}}")
    steps = _steps(match["inner"].removeprefix("$"), path)

    def holds(obj: Tree) -> Readiness:
        if _stale(obj):
            message = f"waiting for {text}: the controller has not seen this generation"
            return Readiness.not_yet(message)
        found = next(_select(obj, steps), None)
        if found is None:
            return Readiness.not_yet(f"waiting for {text}", [f"{path} selected nothing"])
        if isinstance(found, (dict, list)):
            if value is not None:
                reason = f'{path} is a {type(found).__name__}, which cannot equal "{value}"'
                return Readiness.never(reason, [reason])
            return READY
        shown = str(found).lower() if isinstance(found, bool) else str(found)
        if value is None or shown == value:
            return READY
        message = f'waiting for {text} (found "{shown}")'
        return Readiness.not_yet(message)

    return holds


def _split_value(text: str) -> tuple[str, str | None]:
    parts = re.split(r"(?<![=!])=(?!=)", text)
    if len(parts) > 2:
        raise ProviderError(f'waitFor "{text}" has more than one "=": it takes {{.path}} or {{.path}}=value')
    if len(parts) == 1:
        return text, None
    if not parts[1]:
        raise ProviderError(f"waitFor {parts[0]}= lacks its value; without the = it waits for the field alone")
    return parts[0], parts[1]


def _steps(text: str, whole: str) -> list[re.Match[str]]:
    steps: list[re.Match[str]] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise ProviderError(f'cannot read JSONPath "{whole}" at "{text[position:]}"')
        steps.append(match)
        position = match.end()
    return steps


def _select(node: Any, steps: list[re.Match[str]]) -> Iterator[Any]:
    if not steps:
        yield node
        return
    for child in _children(node, steps[0]):
        yield from _select(child, steps[1:])


def _children(node: Any, step: re.Match[str]) -> Iterator[Any]:
    if step["deep"] is not None:
        yield from _deep(node, step["deep"])
    elif step["left"] is not None:
        for item in node if isinstance(node, list) else node.values() if isinstance(node, dict) else ():
            if _matches(item, step):
                yield item
    elif step["index"] is not None or step["name"] == "*":
        if step["index"] in ("*", None):
            yield from node if isinstance(node, list) else node.values() if isinstance(node, dict) else ()
        elif isinstance(node, list) and -len(node) <= int(step["index"]) < len(node):
            yield node[int(step["index"])]
    else:
        name = step["quoted"] if step["quoted"] is not None else step["name"].replace("\\.", ".")
        if isinstance(node, dict) and name in node:
            yield node[name]


def _deep(node: Any, name: str) -> Iterator[Any]:
    if isinstance(node, dict):
        if name == "*":
            yield from node.values()
        elif name in node:
            yield node[name]
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _deep(child, name)


def _matches(item: Any, step: re.Match[str]) -> bool:
    found = next(_select(item, _steps(step["left"], step["left"])), None)
    if step["operator"] is None:
        return found is not None
    try:
        wanted = json.loads(step["right"].replace("'", '"'))
    except ValueError:
        wanted = step["right"]
    return bool(found == wanted) == (step["operator"] == "==")
