"""Keeping a machine config's secrets out of what is shown: diffs of configs, and errors that quote them.

Nothing is shown because it does not look like a secret; a value is shown only if it looks like none that could be one.
"""

from __future__ import annotations

import re

import yaml

HIDDEN = "***"
# The value of these keys is a name, never a secret.
_PLAIN_WORDS = "apiVersion kind version name hostname image type mode state op disk format interface parent protocol"
_PLAIN_KEYS = frozenset(_PLAIN_WORDS.split(" "))
_PLAIN_VALUE = re.compile(
    r"""(?x) ^(?: true | false | null | -?\d{1,8}(?:\.\d+)?[A-Za-z%]{0,3} | v\d+(?:\.\d+)+ |
    [\d.]+/\d+ | \d+(?:\.\d+){3}(?::\d+)? | [a-z0-9.-]+(?:/[a-z0-9._-]+)+:[A-Za-z0-9_.-]{1,40} | \{\} | \[\] )$"""
)
_SECRET_KEY = re.compile(r"(?i)token|secret|passw|passphrase|auth|key$|crt$|cert|credential|private|identity|id$")
_LINE = re.compile(r"^(?P<mark>[-+ ]?)(?P<indent>\s*(?:-\s+)*)(?P<key>[A-Za-z0-9_./-]+):(?:\s+(?P<value>.*))?$")
_HEADER = re.compile(r"^(?:---|\+\+\+|@@).*$")
_SHORTEST_BYTES = 6


def redacted_diff(details: str) -> str:
    """A dry run's text, with every value of its diff hidden that is not certainly harmless."""
    head, mark, diff = details.partition("Config diff:")
    return head + mark + "\n".join(_redacted_line(line) for line in diff.split("\n"))


def _redacted_line(line: str) -> str:
    if not line.strip() or _HEADER.match(line) or line.strip() == "No changes.":
        return line
    match = _LINE.match(line)
    if not match:
        indent = re.match(r"[-+ ]?\s*", line)
        return f"{indent.group(0) if indent else ''}{HIDDEN}"
    value = (match["value"] or "").strip()
    if not value or value in {"|", "|-", ">", ">-"}:
        return line
    bare = value.strip("\"'")
    harmless = not _SECRET_KEY.search(match["key"]) and (
        bool(_PLAIN_VALUE.match(bare)) or (match["key"] in _PLAIN_KEYS and len(bare) <= 120)
    )
    return line if harmless else f"{line[: line.index(':') + 1]} {HIDDEN}"


def config_texts(config: bytes) -> frozenset[str]:
    """Every text in a machine config that an error might quote: whole values, and each line of long ones."""
    texts: set[str] = set()
    try:
        documents = list(yaml.safe_load_all(config))
    except yaml.YAMLError:
        return frozenset(line.strip() for line in config.decode(errors="replace").splitlines() if line.strip())
    _collect(documents, texts)
    return frozenset(text for text in texts if len(text) >= _SHORTEST_BYTES)


def _collect(value: object, texts: set[str], key: str = "") -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            _collect(inner, texts, str(name))
    elif isinstance(value, list):
        for inner in value:
            _collect(inner, texts, key)
    elif isinstance(value, str) and (key not in _PLAIN_KEYS or len(value) > 120):
        texts.update((value.strip(), *(line.strip() for line in value.splitlines())))


def without_texts(message: str, texts: frozenset[str]) -> str:
    """A message from the machine without quotations from the config; of shortened ones no beginning stays either."""
    for text in sorted(texts, key=len, reverse=True):
        message = message.replace(text, HIDDEN)
    return re.sub(r"`[^`]*`", HIDDEN, message)
