"""A stack file with the line of each of its keys. Reads it as the engine does, and refuses what people misread."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from stacks.loading.problems import Path, Problem, shown
from stacks.loading.scalars import meaning, trap

# The C parser reads a site in a tenth of the time; its errors are worded otherwise, so the Python one tells them.
_Fast: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN, _QUOTED = "plain", "quoted"
# An anchor that is used by anchors that are used by anchors makes a small file a large site.
_MOST_VALUES = 200_000


class _Reader(_Fast):  # type: ignore[misc]
    """Leaves it to us what a word means: a scalar's tag says only whether it was quoted."""

    def resolve(self, kind: type[yaml.Node], value: str | None, implicit: Any) -> str:
        if kind is yaml.ScalarNode:
            return _PLAIN if implicit[0] else _QUOTED
        return str(super().resolve(kind, value, implicit))


@dataclass
class Document:
    """A file's values, the line of each key and list item, and the trouble met while reading."""

    values: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    written: dict[Path, str] = field(default_factory=dict)
    """Numbers and switches as they are written in the file."""
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: Path) -> int | None:
        """Line of a key, or of the section that it is missing in."""
        return next((self.lines[path[:size]] for size in range(len(path), -1, -1) if path[:size] in self.lines), None)

    def section(self, *names: str) -> Document:
        """The document below these keys, with paths that begin there."""
        values = self.values
        for name in names:
            values = values.get(name) if isinstance(values, dict) else None
        size = len(names)
        return Document(
            values=values,
            lines={path[size:]: line for path, line in self.lines.items() if path[:size] == names},
            written={path[size:]: text for path, text in self.written.items() if path[:size] == names},
            problems=[
                Problem(path=one.path[size:], what=one.what, fix=one.fix, got=one.got, line=one.line)
                for one in self.problems
                if one.path[:size] == names[: len(one.path)]
            ],
        )


def read(text: str) -> Document:
    """The one document of `text`. What cannot be read at all is a problem of the whole file."""
    try:
        node = _Reader(text).get_single_node()
    except yaml.YAMLError as error:
        return Document(problems=[_unreadable(text, error)])
    found = Document()
    if node is not None:
        _Builder(found).build(node)
    return found


# What the parser says -> the same in plain words, and what to do.
_PLAINLY = (
    ("another document", "a second document begins here", "keep one document a file: take the line --- out"),
    ("quoted scalar", "a quote is not closed", "close the quote that begins here"),
    ("flow sequence", "a list is not closed", "close the list that begins here with ], and part its items by commas"),
    (
        "flow mapping",
        "a section is not closed",
        "close the section that begins here with }, and part its keys by commas",
    ),
    ("mapping values", "a colon where none can be", 'put quotes around a text with a colon, as in "a: b"'),
    ("<block end>", "this line is indented otherwise than its section", "indent the keys of one section alike"),
    ("could not find expected ':'", "a key without a colon", "write `key: value`, with a colon and a space"),
    ("undefined alias", "no anchor of this name", "define the anchor (&name) above the place that uses it (*name)"),
    ("cannot start any token", "no text begins with this character", "put quotes around the text"),
)
# Whatever is missing at its end, a thing that was left open is mended where it begins.
_LEFT_OPEN = ("quoted scalar", "flow sequence", "flow mapping")


def _unreadable(text: str, error: yaml.YAMLError) -> Problem:
    """The parser's complaint as one problem of the whole file, with what to do."""
    try:
        yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as plain:
        error = plain
    begin, mark = getattr(error, "context_mark", None), getattr(error, "problem_mark", None)
    said = " ".join(str(getattr(error, part, None) or "") for part in ("problem", "context")) or str(error)
    place = begin if begin and any(word in said for word in _LEFT_OPEN) else mark
    line = place.line + 1 if place else 0
    tab = _line_of(r"^ *\t[ \t]*[^\s#]", text)
    if 0 < tab <= line:
        return Problem(path=(), what="not YAML: a tab indents this line", fix="indent with spaces alone", line=tab)
    glued = _line_of(r"^ *(- )?[a-z_0-9-]+:[^\s:]+ *$", text)
    if "mapping values" in said and 0 < glued <= line:
        return Problem(path=(), what="not YAML: no space behind the colon", fix="write `key: value`", line=glued)
    what, fix = next(
        ((what, fix) for part, what, fix in _PLAINLY if part in said),
        (said.strip(), "mend this line, or the one before"),
    )
    name = re.search("alias '(.+)'", said)
    what = f"not YAML: {what}" + (f", '{name[1]}'" if name else "")
    return Problem(path=(), what=what, fix=fix, line=line or None)


def _line_of(pattern: str, text: str) -> int:
    """The first line that matches, or 0."""
    found = re.search(pattern, text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else 0


class _Builder:
    """Turns nodes into plain values and notes lines and trouble on the way."""

    def __init__(self, found: Document) -> None:
        self.found = found
        self.open: list[yaml.Node] = []
        self.count = 0

    def build(self, node: yaml.Node) -> None:
        self.found.lines[()] = node.start_mark.line + 1
        self.found.values = self._value(node, ())

    def _problem(self, path: Path, node: yaml.Node, what: str, fix: str, got: str = "") -> None:
        line = node.start_mark.line + 1
        self.found.problems.append(Problem(path=path, what=what, fix=fix, got=got, line=line))

    def _value(self, node: yaml.Node, path: Path) -> Any:
        self.count += 1
        if node in self.open:
            self._problem(path, node, "the anchor holds itself", "use an anchor outside of the section that it names")
            return None
        if self.count == _MOST_VALUES:
            self._problem((), node, f"the anchors expand to more than {_MOST_VALUES} values", "use fewer anchors")
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
            self.found.lines[below] = item.start_mark.line + 1
            items.append(self._value(item, below))
        return items

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        made: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if _merges(key_node):
                continue
            key = self._key(key_node, path)
            if key is None:
                continue
            line = key_node.start_mark.line + 1
            below = (*path, key)
            if key in lines:
                places = f"here and on line {lines[key]}" if lines[key] != line else f"both times on line {line}"
                self._problem(below, key_node, f"written twice, {places}", "keep one of the two")
                continue
            lines[key] = self.found.lines[below] = line
            made[key] = self._value(value_node, below)
        for merged in self._merged(node, path):
            for key, value in merged.items():
                made.setdefault(key, value)
        return made

    def _merged(self, node: yaml.MappingNode, path: Path) -> Iterator[dict[str, Any]]:
        """Sections that `<<` brings; their lines are those of the anchor, for the keys that nothing overrides."""
        for key, value in node.value:
            if not _merges(key):
                continue
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(source, yaml.MappingNode):
                    self._problem(
                        (*path, "<<"), key, "<< takes a section", "name an anchor of a section, as in <<: *name"
                    )
                    continue
                known, texts = dict(self.found.lines), dict(self.found.written)
                merged = self._value(source, path)
                self.found.lines |= known
                self.found.written |= texts
                if isinstance(merged, dict):
                    yield merged

    def _key(self, node: yaml.Node, path: Path) -> str | None:
        if not isinstance(node, yaml.ScalarNode) or node.tag not in (_PLAIN, _QUOTED):
            self._problem(path, node, "a key is not a word", "write a plain word before the colon")
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
                    f'write "{key}" in quotes, or another name',
                )
        return key

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        text = str(node.value)
        if node.tag == _QUOTED:
            return text
        if node.tag != _PLAIN:
            self._problem(path, node, f"the tag {_short(node.tag)} is not read here", "take the tag out", shown(text))
            return text
        unclear = trap(text)
        if unclear:
            self._problem(path, node, *unclear)
        value = meaning(text)
        if not isinstance(value, str):
            self.found.written[path] = text
        return value


def _merges(key: yaml.Node) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.tag == _PLAIN and key.value == "<<"


def _short(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")
