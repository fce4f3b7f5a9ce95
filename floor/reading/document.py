"""The only reader of our YAML files: values as the engine reads them, with the line of each key.

It refuses what people misread, and what is too large, too deep or no file of text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path as FilePath
from typing import Any

import yaml

from floor.problems import Path, Problem, shown
from floor.reading.files import UnreadableError, text_of
from floor.reading.scalars import is_day, meaning, trap
from floor.reading.yaml_errors import not_yaml, too_deep

# The C parser reads a site in a tenth of the time; its errors are worded otherwise, so the Python one reports them.
_Fast: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN, _QUOTED = "plain", "quoted"
# An anchor that is used by anchors that are used by anchors makes a small file a large site.
_MOST_VALUES = 200_000


class _Reader(_Fast):  # type: ignore[misc]
    """Leaves the meaning of a scalar to us: its tag shows only whether it was quoted."""

    def resolve(self, kind: type[yaml.Node], value: str | None, implicit: Any) -> str:
        if kind is yaml.ScalarNode:
            return _PLAIN if implicit[0] else _QUOTED
        return str(super().resolve(kind, value, implicit))


@dataclass
class YamlDocument:
    """A file's values, the line of each key and list item, and the trouble met while reading."""

    values: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    written: dict[Path, str] = field(default_factory=dict)
    """Numbers and switches as they are written in the file."""
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: Path) -> int | None:
        """Line of a key, or of the section that it is missing in."""
        return next((self.lines[path[:size]] for size in range(len(path), -1, -1) if path[:size] in self.lines), None)

    def section(self, *names: str) -> YamlDocument:
        """The document below these keys, with paths that begin there, and what breaks the file elsewhere."""
        values = self.values
        for name in names:
            values = values.get(name) if isinstance(values, dict) else None
        size = len(names)
        return YamlDocument(
            values=values,
            lines={path[size:]: line for path, line in self.lines.items() if path[:size] == names},
            written={path[size:]: text for path, text in self.written.items() if path[:size] == names},
            problems=[
                replace(problem, path=problem.path[size:]) if _is_within(problem.path, names) else problem
                for problem in self.problems
                if problem.of_whole_file or _is_within(problem.path, names)
            ],
        )


def _is_within(path: Path, names: Path) -> bool:
    return path[: len(names)] == names[: len(path)]


def read_file(path: FilePath, *, plain_days: bool = False) -> YamlDocument:
    """`read` of a file; what keeps it from being read is its one problem. Raises FileNotFoundError."""
    try:
        text = text_of(path)
    except UnreadableError as error:
        return YamlDocument(problems=[error.problem])
    return read(text, plain_days=plain_days)


def read(text: str, *, plain_days: bool = False) -> YamlDocument:
    """The one document of `text`. What cannot be read at all is a problem of the whole file.

    plain_days: a day may be written without quotes, and stays as it is written: the file is not the engine's.
    """
    try:
        if deep := too_deep(yaml.parse(text, Loader=_Reader)):
            return YamlDocument(problems=[deep])
        node = _Reader(text).get_single_node()
    except yaml.YAMLError as error:
        return YamlDocument(problems=[not_yaml(text, error)])
    document = YamlDocument()
    if node is not None:
        _Builder(document, plain_days=plain_days).build(node)
    return document


class _Builder:
    """Turns nodes into plain values and notes lines and trouble on the way."""

    def __init__(self, document: YamlDocument, *, plain_days: bool) -> None:
        self.document = document
        self.plain_days = plain_days
        self.open: list[yaml.Node] = []
        self.count = 0

    def build(self, node: yaml.Node) -> None:
        self.document.lines[()] = node.start_mark.line + 1
        self.document.values = self._value(node, ())

    def _problem(self, path: Path, node: yaml.Node, what: str, fix: str, got: str = "") -> None:
        line = node.start_mark.line + 1
        self.document.problems.append(Problem(path=path, what=what, fix=fix, got=got, line=line))

    def _breaks(self, path: Path, node: yaml.Node, what: str, fix: str) -> None:
        """A problem for which the engine refuses the whole file, wherever it is."""
        line = node.start_mark.line + 1
        self.document.problems.append(Problem(path=path, what=what, fix=fix, line=line, of_whole_file=True))

    def _value(self, node: yaml.Node, path: Path) -> Any:
        self.count += 1
        if node in self.open:
            self._breaks(path, node, "the anchor holds itself", "use an anchor outside of the section that it names")
            return None
        if self.count == _MOST_VALUES:
            self._breaks((), node, f"the anchors expand to more than {_MOST_VALUES} values", "use fewer anchors")
        if self.count >= _MOST_VALUES:
            return None
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if node.tag not in ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            self._problem(path, node, f"the tag {_short(node.tag)} is not read here", "take the tag out")
            return None
        self.open.append(node)
        value = self._mapping(node, path) if isinstance(node, yaml.MappingNode) else self._list(node, path)
        self.open.pop()
        return value

    def _list(self, node: yaml.Node, path: Path) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            below = (*path, str(index))
            self.document.lines[below] = item.start_mark.line + 1
            items.append(self._value(item, below))
        return items

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        made: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for (_, before), (key_node, value_node) in pairwise([(None, None), *node.value]):
            if _merges(key_node):
                continue
            key = self._key(key_node, path, _with_comma(before, key_node, value_node) if node.flow_style else "")
            if key is None:
                continue
            line = key_node.start_mark.line + 1
            below = (*path, key)
            if key in lines:
                places = f"here and on line {lines[key]}" if lines[key] != line else f"both times on line {line}"
                self._breaks(below, key_node, f"written twice, {places}", "keep one of the two")
                continue
            lines[key] = self.document.lines[below] = line
            made[key] = self._value(value_node, below)
        for merged in self._merged(node, path):
            for key, value in merged.items():
                made.setdefault(key, value)
        return made

    def _merged(self, node: yaml.MappingNode, path: Path) -> Iterator[dict[str, Any]]:
        """Sections that `<<` brings; their lines are those of the anchor, for the keys that nothing overrides."""
        merges = [(key, value) for key, value in node.value if _merges(key)]
        for again, _ in merges[1:]:
            places = f"here and on line {merges[0][0].start_mark.line + 1}"
            self._breaks((*path, "<<"), again, f"written twice, {places}", "write one <<: [*first, *second]")
        for key, value in merges[:1]:
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(source, yaml.MappingNode):
                    self._breaks(
                        (*path, "<<"), key, "<< takes a section", "name an anchor of a section, as in <<: *name"
                    )
                    continue
                known, texts = dict(self.document.lines), dict(self.document.written)
                merged = self._value(source, path)
                self.document.lines |= known
                self.document.written |= texts
                if isinstance(merged, dict):
                    yield merged

    def _key(self, node: yaml.Node, path: Path, number: str = "") -> str | None:
        """A key's text; None for what is none. `number`: what was probably meant with the value before it."""
        if not isinstance(node, yaml.ScalarNode) or node.tag not in (_PLAIN, _QUOTED):
            self._breaks(path, node, "a key is not a word", "write a plain word before the colon")
            return None
        key = str(node.value)
        if node.tag == _PLAIN:
            unclear = trap(key)
            if unclear:
                self._problem((*path, key), node, f"the key {unclear[0]}", f'write "{key}" in quotes, or another name')
            elif not isinstance(meaning(key), str):
                self._problem(
                    (*path, key),
                    node,
                    f"the key {key or '(nothing)'} is no text without quotes",
                    f'write {number}, if it is the end of a number; else "{key}" in quotes, or another name'
                    if number
                    else f'write "{key}" in quotes, or another name',
                )
        return key

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        text = str(node.value)
        if node.tag == _QUOTED:
            return text
        if node.tag != _PLAIN:
            self._problem(path, node, f"the tag {_short(node.tag)} is not read here", "take the tag out", shown(text))
            return text
        if self.plain_days and is_day(text):
            return text
        unclear = trap(text)
        if unclear:
            self._problem(path, node, *unclear)
        value = meaning(text)
        if not isinstance(value, str):
            self.document.written[path] = text
        return value


def _merges(key: yaml.Node) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.tag == _PLAIN and key.value == "<<"


def _short(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")


def _with_comma(before: yaml.Node | None, key: yaml.Node, value: yaml.Node) -> str:
    """`3.5` of `{price: 3,5}`, which YAML reads as a price of 3 and a key 5 without a value."""
    nodes = [node for node in (before, key, value) if isinstance(node, yaml.ScalarNode)]
    texts = [str(node.value) for node in nodes]
    is_one = len(texts) == 3 and texts[0].isdigit() and texts[1].isdigit() and not texts[2]
    return f"{texts[0]}.{texts[1]}" if is_one else ""
