"""Why a text is not YAML that is read here, in plain English: the parser's errors, and the limits."""

from __future__ import annotations

import re
from typing import Any

import yaml

from floor.problems import Problem

# The parser builds nested values by recursion, and a few ten thousand brackets would end the program itself.
_DEEPEST = 100
_LARGEST_PARSED_TWICE = 100_000

# The parser's words -> the same in plain English, and the fix.
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
# Whatever is missing at its end, a thing that was left open is closed where it begins.
_LEFT_OPEN = ("quoted scalar", "flow sequence", "flow mapping")


def not_yaml(text: str, error: yaml.YAMLError) -> Problem:
    """The parser's complaint as one problem of the whole file, with what to do."""
    try:
        # Its messages are clearer than those of the C parser, but it takes ten times as long.
        if len(text) <= _LARGEST_PARSED_TWICE and not too_deep(yaml.parse(text, Loader=yaml.SafeLoader)):
            yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as plain:
        error = plain
    begin, mark = getattr(error, "context_mark", None), getattr(error, "problem_mark", None)
    reason = " ".join(str(getattr(error, part, None) or "") for part in ("problem", "context")) or str(error)
    place: Any = begin if begin and any(word in reason for word in _LEFT_OPEN) else mark
    line = place.line + 1 if place else 1
    if isinstance(error, yaml.reader.ReaderError):
        line, reason = text.count("\n", 0, error.position) + 1, f"a character that no text holds, #x{_code(error):04x}"
    tab = _line_of(r"^ *\t[ \t]*[^\s#]", text)
    if 0 < tab <= line:
        return Problem(path=(), what="not YAML: a tab indents this line", fix="indent with spaces alone", line=tab)
    if "'\\t'" in reason and "cannot start any token" in reason:
        indented = f"; a tab also indents line {tab}" if tab else ""
        what, fix = f"not YAML: a tab where a space has to be{indented}", "write spaces in the place of tabs"
        return Problem(path=(), what=what, fix=fix, line=line)
    glued = _line_of(r"^ *(- )?[a-z_0-9-]+:[^\s:]+ *$", text)
    if "mapping values" in reason and 0 < glued <= line:
        return Problem(path=(), what="not YAML: no space behind the colon", fix="write `key: value`", line=glued)
    what, fix = next(
        ((what, fix) for part, what, fix in _PLAINLY if part in reason),
        (reason.strip(), "correct this line, or the one before"),
    )
    name = re.search("alias '(.+)'", reason)
    what = f"not YAML: {what}" + (f", '{name[1]}'" if name else "")
    return Problem(path=(), what=what, fix=fix, line=min(line, last_line(text)))


def _line_of(pattern: str, text: str) -> int:
    """The first line that matches, or 0."""
    match = re.search(pattern, text, re.MULTILINE)
    return text.count("\n", 0, match.start()) + 1 if match else 0


def _code(error: Any) -> int:
    return error.character if isinstance(error.character, int) else ord(error.character)


def _line_number(event: Any) -> int:
    return int(event.start_mark.line) + 1


def last_line(text: str) -> int:
    """Number of the last line that has text."""
    return max(1, len(text.splitlines()))


def too_deep(events: Any) -> Problem | None:
    """The problem of a text that nests deeper than any site needs. Raises yaml.YAMLError as the parser does."""
    depth = 0
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                return Problem(
                    path=(),
                    what=f"nested deeper than {_DEEPEST} levels",
                    fix="close the brackets that begin here, or take out what is nested",
                    line=_line_number(event),
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return None
