"""What a CEL condition on `disk` gives for a disk that is known in part: true, false, or None where it depends."""

from __future__ import annotations

import re
from collections.abc import Mapping

_TEXT = re.compile(r"\"((?:\\.|[^\"\\])*)\"|'((?:\\.|[^'\\])*)'")
_OPEN, _CLOSE = "([{", ")]}"
_COMPARED = re.compile(r"disk\.(\w+)(==|!=)(\"[^\"]*\"|true|false)")
_REVERSED = re.compile(r"(\"[^\"]*\"|true|false)(==|!=)(disk\.\w+)")
_ATOM = re.compile(r"[\w.]+")


def canonical(selector: str) -> str:
    """The condition in one form: without blanks, in double quotes, with the parts of `&&` and `||` in order."""
    return _ordered(_plain(selector))


def evaluate(selector: str, disk: Mapping[str, str], *, system_disk: bool | None) -> bool | None:
    """Whether the condition matches a disk with these properties; None where others decide it."""
    return _value(_plain(selector), disk, system_disk=system_disk)


def _plain(selector: str) -> str:
    """Without blanks outside of texts, each text in double quotes."""
    pieces, end = [], 0
    for match in _TEXT.finditer(selector):
        text = match[1] if match[1] is not None else match[2].replace('"', '\\"')
        pieces += [re.sub(r"\s", "", selector[end : match.start()]), f'"{text}"']
        end = match.end()
    return "".join((*pieces, re.sub(r"\s", "", selector[end:])))


def _ordered(text: str) -> str:
    text = _unwrapped(text)
    for operator in ("||", "&&"):
        parts = _split(text, operator)
        if len(parts) > 1:
            # A part that is an alternative keeps its brackets.
            inner = sorted({_bracketed(_ordered(part)) for part in parts})
            return operator.join(inner)
    return _REVERSED.sub(r"\3\2\1", text) if _REVERSED.fullmatch(text) else text


def _bracketed(text: str) -> str:
    return f"({text})" if len(_split(text, "||")) > 1 or len(_split(text, "&&")) > 1 else text


def _value(text: str, disk: Mapping[str, str], *, system_disk: bool | None) -> bool | None:
    text = _unwrapped(text)
    if len(_split(text, "?")) > 1:
        return None
    for operator, decisive in (("||", True), ("&&", False)):
        parts = _split(text, operator)
        if len(parts) > 1:
            results = [_value(part, disk, system_disk=system_disk) for part in parts]
            return decisive if decisive in results else None if None in results else not decisive
    if text.startswith("!"):
        rest = text[1:]
        whole = _ATOM.fullmatch(rest) or _unwrapped(rest) != rest
        result = _value(rest, disk, system_disk=system_disk) if whole else None
        return None if result is None else not result
    return _of_leaf(_ordered(text), disk, system_disk=system_disk)


def _of_leaf(text: str, disk: Mapping[str, str], *, system_disk: bool | None) -> bool | None:
    if text in ("true", "false"):
        return text == "true"
    if text == "system_disk":
        return system_disk
    if text.startswith("disk.") and disk.get(text.removeprefix("disk.")) in ("true", "false"):
        return disk[text.removeprefix("disk.")] == "true"
    if (compared := _COMPARED.fullmatch(text)) and compared[1] in disk:
        return (disk[compared[1]] == compared[3].strip('"')) is (compared[2] == "==")
    return None


def _unwrapped(text: str) -> str:
    """Without brackets around all of it."""
    while text.startswith("(") and text.endswith(")") and _closing(text) == len(text) - 1:
        text = text[1:-1]
    return text


def _closing(text: str) -> int:
    depth = 0
    for index, character in _outside_texts(text):
        depth += (character in _OPEN) - (character in _CLOSE)
        if depth == 0:
            return index
    return -1


def _split(text: str, operator: str) -> list[str]:
    """The parts between the operator where it is in no bracket and no text."""
    parts, depth, start = [], 0, 0
    for index, character in _outside_texts(text):
        depth += (character in _OPEN) - (character in _CLOSE)
        if depth == 0 and text.startswith(operator, index) and index >= start:
            parts.append(text[start:index])
            start = index + len(operator)
    return [*parts, text[start:]]


def _outside_texts(text: str) -> list[tuple[int, str]]:
    hidden = {index for match in _TEXT.finditer(text) for index in range(*match.span())}
    return [(index, character) for index, character in enumerate(text) if index not in hidden]
