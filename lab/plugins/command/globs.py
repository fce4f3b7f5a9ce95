"""The path rules of assetPaths and archivePaths: `*` stays inside a folder, `**` does not, a leading `!` excludes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_TOKENS = re.compile(
    r"\\(?P<escaped>.)|(?P<any>\*\*)|(?P<part>\*)|(?P<one>\?)|\[(?P<not>!?)(?P<set>[^\]]+)\]|(?P<alt>[{},])"
)


def matching_files(folder: Path, rules: Iterable[str]) -> list[str]:
    """Paths of files under `folder`, relative to it, that the rules choose; rules are applied in their order."""
    compiled = [(rule.startswith("!"), re.compile(_expression(rule.removeprefix("!")))) for rule in rules]
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    chosen = []
    for name in files:
        verdicts = [not excludes for excludes, pattern in compiled if pattern.fullmatch(name)]
        if verdicts and verdicts[-1]:
            chosen.append(name)
    return chosen


def _expression(rule: str) -> str:
    parts, at, depth = [], 0, 0
    for token in _TOKENS.finditer(rule):
        parts.append(re.escape(rule[at : token.start()]))
        at = token.end()
        if token["escaped"]:
            parts.append(re.escape(token["escaped"]))
        elif token["any"]:
            parts.append(".*")
        elif token["part"]:
            parts.append("[^/]*")
        elif token["one"]:
            parts.append("[^/]")
        elif token["set"]:
            parts.append(f"[{'^' if token['not'] else ''}{re.escape(token['set']).replace(chr(92) + '-', '-')}]")
        elif token["alt"] == "{":
            depth += 1
            parts.append("(?:")
        elif token["alt"] == "}" and depth:
            depth -= 1
            parts.append(")")
        else:
            parts.append("|" if depth else re.escape(token["alt"]))
    return "".join([*parts, re.escape(rule[at:])])
