"""A site's file in which a model is served that was ordered: the least change of its text, which keeps comments."""

from __future__ import annotations

from dataclasses import dataclass

import yaml

from stacks.site.loader import KEY

_STEP = 2


@dataclass(frozen=True)
class _Edit:
    """Characters from `start` to `end` become `text`."""

    start: int
    end: int
    text: str


def with_order(text: str, model: str, tenant: str) -> str:
    """The text, with the model moved from `orderable` to `models` if it is there, and in the tenant's list.

    Raises ValueError for a form that this does not edit, such as an alias in place of a section. Whether the new text
    has the values that it should have is the caller's to check.
    """
    site = _at(yaml.compose(text, yaml.SafeLoader), "config", KEY)
    edits = [_appended(text, _at(site, "tenants", tenant, "models"), model)]
    pair = _pair(site, "orderable")
    if pair and _pair(pair[1], model):
        edits += _moved(text, site, pair, model)
    for edit in sorted(edits, key=lambda edit: -edit.start):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _at(node: yaml.Node | None, *keys: str) -> yaml.Node:
    for key in keys:
        node = _required(node, key)[1]
    if node is None:
        raise ValueError("the file is empty")
    return node


def _required(node: yaml.Node | None, name: str) -> tuple[yaml.Node, yaml.Node]:
    if (pair := _pair(node, name)) is None:
        raise ValueError(f"there is no {name}")
    return pair


def _pair(node: yaml.Node | None, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next(((key, value) for key, value in pairs if key.value == name), None)


def _appended(text: str, items: yaml.Node, name: str) -> _Edit:
    """One more item of a list that has some."""
    if not isinstance(items, yaml.SequenceNode) or not items.value:
        raise ValueError("the tenant's models are no list")
    last = items.value[-1].end_mark.index
    if items.flow_style:
        return _Edit(last, last, f", {name}")
    end = _line_end(text, last)
    return _Edit(end, end, f"\n{' ' * items.start_mark.column}- {name}")


def _moved(text: str, site: yaml.Node, orderable: tuple[yaml.Node, yaml.Node], model: str) -> list[_Edit]:
    section, (key, value) = orderable[1], _required(orderable[1], model)
    served, models = _required(site, "models")
    if not isinstance(section, yaml.MappingNode) or not isinstance(models, yaml.MappingNode):
        raise ValueError("models is no section")
    pairs = section.value
    alone = len(pairs) == 1
    if section.flow_style:
        entry = text[key.start_mark.index : value.end_mark.index]
        others = [text[name.start_mark.index : kept.end_mark.index] for name, kept in pairs if name is not key]
        out = _Edit(section.start_mark.index, section.end_mark.index, f"{{{', '.join(others)}}}")
        if alone:
            out = _Edit(_line_start(text, orderable[0]), _line_end(text, section.end_mark.index) + 1, "")
        lines = [entry]
    else:
        start, end = _line_start(text, key), _line_end(text, _end(text, value))
        indent = key.start_mark.column
        lines = [line[indent:] if line[:indent].isspace() else line for line in text[start:end].split("\n")]
        out = _Edit(_line_start(text, orderable[0]) if alone else start, end + 1, "")
    if models.flow_style and models.value:
        raise ValueError("models is written in one line")
    if models.flow_style:
        column, place = served.start_mark.column + _STEP, text.index(":", served.end_mark.index) + 1
        return [out, _Edit(place, models.end_mark.index, _block(lines, column))]
    place = _line_end(text, _end(text, models.value[-1][1]))
    return [out, _Edit(place, place, _block(lines, models.value[0][0].start_mark.column))]


def _block(lines: list[str], column: int) -> str:
    return "".join(f"\n{' ' * column}{line}" if line.strip() else "\n" for line in lines)


def _end(text: str, node: yaml.Node) -> int:
    """Behind the last character of a value: a section in lines ends, for YAML, where the next one begins."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(text, last[1] if isinstance(last, tuple) else last)
    end = node.end_mark.index
    return len(text[:end].rstrip()) if node.end_mark.column == 0 else end


def _line_start(text: str, node: yaml.Node) -> int:
    return text.rfind("\n", 0, node.start_mark.index) + 1


def _line_end(text: str, place: int) -> int:
    """Of the line that has this place: where its line break is."""
    end = text.find("\n", place)
    return len(text) if end < 0 else end
