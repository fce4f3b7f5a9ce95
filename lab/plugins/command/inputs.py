"""The inputs of `local.Command` and `local.run`: which there are, their types, and what changed between two sets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from lab.plugins import values

LOGGING = ("stdout", "stderr", "stdoutAndStderr", "none")
REPLACED_BY = "triggers"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or value == values.UNKNOWN


def _is_texts(value: Any) -> bool:
    return value == values.UNKNOWN or (isinstance(value, list) and all(_is_text(item) for item in value))


def _is_text_map(value: Any) -> bool:
    return value == values.UNKNOWN or (isinstance(value, dict) and all(_is_text(item) for item in value.values()))


def _is_list(value: Any) -> bool:
    return value == values.UNKNOWN or isinstance(value, list)


def _is_logging(value: Any) -> bool:
    return value == values.UNKNOWN or value in LOGGING


_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "stdin": (_is_text, "a string"),
    "logging": (_is_logging, f"one of {', '.join(LOGGING)}"),
    "interpreter": (_is_texts, "a list of strings"),
    "dir": (_is_text, "a string"),
    "environment": (_is_text_map, "a map of strings"),
    "assetPaths": (_is_texts, "a list of strings"),
    "archivePaths": (_is_texts, "a list of strings"),
    "addPreviousOutputInEnv": (_is_flag, "true or false"),
}
RUN_RULES = {**_RULES, "command": (_is_text, "a string")}
COMMAND_RULES = {
    **_RULES,
    "create": (_is_text, "a string"),
    "update": (_is_text, "a string"),
    "delete": (_is_text, "a string"),
    "triggers": (_is_list, "a list"),
}


def accepted(inputs: Mapping[str, Any], rules: Mapping[str, Any] = COMMAND_RULES) -> dict[str, Any]:
    """The inputs that the provider knows, as they came; the official plugin drops the others too."""
    return {name: value for name, value in inputs.items() if name in rules and value is not None}


def failures(inputs: Mapping[str, Any], rules: Mapping[str, Any] = COMMAND_RULES) -> dict[str, str]:
    """Input name -> what is wrong with it. Values are never quoted: they may be secret."""
    problems = {}
    for name, value in accepted(inputs, rules).items():
        fits, allowed = rules[name]
        bare = values.plain(value)
        if not fits(bare):
            problems[name] = f"got {_kind(bare)}, allowed is {allowed}"
    return problems


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """Property path -> "add", "delete" or "update", for everything that differs between two sets of inputs."""
    differences: dict[str, str] = {}
    for name in sorted(old.keys() | new.keys()):
        _compare(name, old.get(name), new.get(name), differences)
    return differences


def _compare(path: str, old: Any, new: Any, differences: dict[str, str]) -> None:
    if _same(old, new):
        return
    if old is None or new is None:
        differences[path] = "add" if old is None else "delete"
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            _compare(f"{path}[{index}]", _item(old, index), _item(new, index), differences)
    elif _is_object(old) and _is_object(new):
        for key in sorted(old.keys() | new.keys()):
            _compare(path + _step(key), old.get(key), new.get(key), differences)
    else:
        differences[path] = "update"


def _same(old: Any, new: Any) -> bool:
    marks = (values.ASSET, values.ARCHIVE)
    for side in (old, new):
        if not (isinstance(side, Mapping) and side.get(values.SIGNATURE) in marks and side.get("hash")):
            return bool(old == new)
    # Files are the same when their content is, wherever they lie.
    return bool(old["hash"] == new["hash"])


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping) and values.SIGNATURE not in value


def _item(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else None


def _step(key: str) -> str:
    return f".{key}" if key.replace("_", "a").isalnum() else f"[{json.dumps(key)}]"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    return {str: "a string", float: "a number", int: "a number", list: "a list", dict: "a map"}.get(
        type(value), type(value).__name__
    )
