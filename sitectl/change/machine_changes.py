"""What changes on the machines between two states of a site: each key by name, before and after, and what that does."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, takewhile
from typing import Any

from floor.problems import Path
from floor.secret_texts import without_secrets
from sitectl.change.saved_previews import SAVE_ONE
from sitectl.change.verdicts.model import Severity
from sitectl.shell.errors import SitectlError
from talos.effects import MAIN, Effect, State, effect_of

# Values of a document by the keys that lead to them.
_Leaves = dict[Path, str | tuple[str, ...]]
# What of one site `checkout` and `render` have: by machine `keys` and `documents`, None where no one knows.
Shown = Mapping[str, Mapping[str, Any]] | None
NOT_COMPARED = (
    "machine configs are not compared: one side was made by a program that does not show them, see "
    "`python -m sitectl docs sitectl`"
)
_LONGEST = 160
# An effect that is not known is read as what may cost the most of the usual ones.
_SEVERITIES = {"": Severity.LIVE, "live": Severity.LIVE, "reinstall": Severity.LIVE, "wipe": Severity.REPLACED}
_NUMBERED = re.compile(r"(.*?)(\d+)")
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
_AUDIT_POLICY = ("cluster", "apiServer", "auditPolicy")
_TELLING = 7
_CONTEXT = 20


@dataclass(frozen=True, kw_only=True)
class MachineChange:
    """One key, or one field of a config, that changes on these machines in the same way."""

    machines: tuple[str, ...]
    key: str
    """As the site has it; a field of a config that no key has by itself begins with its document."""
    before: str | None
    after: str | None
    """As text without secrets; None where there is nothing."""
    effect: str
    """`live`, `reboot`, `reinstall`, `wipe` or `unknown`; empty for a key that works by other lines."""
    why: str

    @property
    def severity(self) -> Severity:
        return _SEVERITIES.get(self.effect, Severity.RESTARTS)

    def record(self) -> dict[str, Any]:
        """As `--json` and a saved preview have it."""
        return asdict(self)


def between(before: Shown, after: Shown) -> list[MachineChange]:
    """Of the machines that are on both sides; new ones and those that leave have resources of their own."""
    if before is None or after is None:
        return []
    changes = [
        (machine, change)
        for machine in after
        if machine in before
        for change in _of_machine(before[machine], after[machine])
    ]
    groups: dict[tuple[Any, ...], list[str]] = {}
    for machine, change in changes:
        groups.setdefault(change, []).append(machine)
    return [
        MachineChange(machines=tuple(names), key=key, before=old, after=new, effect=effect, why=why)
        for (key, old, new, effect, why), names in groups.items()
    ]


def of_records(records: Any) -> list[MachineChange]:
    """From a saved preview, which may come from any source. Raises SitectlError for another form."""
    try:
        return [
            MachineChange(
                machines=tuple(map(str, record["machines"])),
                key=str(record["key"]),
                before=None if record["before"] is None else str(record["before"]),
                after=None if record["after"] is None else str(record["after"]),
                effect=str(record["effect"]),
                why=str(record["why"]),
            )
            for record in records or ()
        ]
    except (TypeError, ValueError, KeyError) as error:
        raise SitectlError(
            "the machines in this preview have not the form that sitectl writes", fix=SAVE_ONE
        ) from error


def names(machines: Sequence[str]) -> str:
    """`hgx-1..4, infra-1`: machines whose numbers follow each other are one range."""
    numbered = [
        (match[1], int(match[2])) if (match := _NUMBERED.fullmatch(name)) else (name, None) for name in machines
    ]
    ranges = []
    ordered = sorted(enumerate(numbered), key=lambda item: (item[1][0], item[1][1] or 0))
    for _, group in groupby(
        enumerate(item for _, item in ordered), key=lambda item: (item[1][0], item[0] - (item[1][1] or 0))
    ):
        own = [item for _, item in group]
        prefix, first = own[0]
        last = own[-1][1]
        ranges.append(prefix + ("" if first is None else str(first)) + ("" if last == first else f"..{last}"))
    return ", ".join(ranges)


def between_words(change: MachineChange) -> str:
    """`1500 -> 9000`."""
    if change.before is None:
        return f"set to {change.after}"
    return f"no longer set (was {change.before})" if change.after is None else f"{change.before} -> {change.after}"


def _of_machine(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any, str, str]]:
    """(key, before, after, effect, why) of each; a field that a key sets as it is shows at the key only."""
    fields = list(_fields(before["documents"], after["documents"]))
    at_keys: set[int] = set()
    for path, old, new in _differences(before["keys"], after["keys"]):
        same = [place for place, field in enumerate(fields) if (field.before, field.after) == (old, new)]
        same = [place for place in same if _joined(path[-1:]) in _joined(fields[place].path) or _is_telling(old, new)]
        at_keys.update(same)
        effect = _worst(fields[place].effect for place in same)
        yield _dotted(path), old, new, *((effect.word, effect.why) if effect else ("", ""))
    for place, field in enumerate(fields):
        if place not in at_keys:
            yield (
                f"{field.document} {_dotted(field.path)}",
                field.before,
                field.after,
                field.effect.word,
                field.effect.why,
            )


@dataclass(frozen=True)
class _ConfigField:
    """A changed field of a config."""

    document: str
    path: Path
    before: str | None
    after: str | None
    effect: Effect


def _fields(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Iterator[_ConfigField]:
    old, new = ({_identity(document): document for document in side} for side in (before, after))
    for kind, name in dict.fromkeys([*old, *new]):
        was, now = old.get((kind, name)), new.get((kind, name))
        state: State = "added" if was is None else "removed" if now is None else "changed"
        document = f"{kind} {name}".strip() if kind != MAIN else "config"
        for path, left, right in _differences(_own(was), _own(now)):
            yield _ConfigField(document, path, left, right, effect_of(kind, path, state))


def _own(document: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """What is in a document beside its identity; one of its name only is there all the same."""
    own = {key: value for key, value in (document or {}).items() if key not in ("apiVersion", "kind", "name")}
    return own or ({} if document is None else {"document": "present"})


def _identity(document: Mapping[str, Any]) -> tuple[str, str]:
    return str(document.get("kind", MAIN)), str(document.get("name", ""))


def _differences(before: Any, after: Any) -> Iterator[tuple[Path, str | None, str | None]]:
    old, new = dict(_leaves(before, ())), dict(_leaves(after, ()))
    old, new = _policy_at_once(old, new)
    for path in dict.fromkeys([*old, *new]):
        was, now = old.get(path), new.get(path)
        # A switch of a new section that is off is not worth a line.
        if was != now and (was, now) not in ((None, "false"), ("false", None)):
            yield path, *_shown(was, now)


def _policy_at_once(old: _Leaves, new: _Leaves) -> tuple[_Leaves, _Leaves]:
    """The API servers' audit policy as one field where several parts differ: rules count together."""
    size = len(_AUDIT_POLICY)
    inside = {path for path in (*old, *new) if path[:size] == _AUDIT_POLICY}
    if sum(old.get(path) != new.get(path) for path in inside) <= 1:
        return old, new
    before, after = ({path: value for path, value in side.items() if path not in inside} for side in (old, new))
    if inside & set(old):
        before[_AUDIT_POLICY] = "a policy"
    if inside & set(new):
        after[_AUDIT_POLICY] = "another policy" if _AUDIT_POLICY in before else "a policy"
    return before, after


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, str | tuple[str, ...]]]:
    """Values as text by the keys that lead to them; what is empty is not there."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        names_of_items = {key for item in value for key in item}
        if len(names_of_items) == 1:
            (name,) = names_of_items
            yield from _leaves([item[name] for item in value], (*path, name))
            return
        for place, inner in enumerate(value):
            yield from _leaves(inner, (*path, str(place)))
    elif isinstance(value, list):
        if value:
            yield path, tuple(map(_text, value))
    elif value is not None:
        yield path, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = without_secrets(str(int(value) if isinstance(value, float) and value.is_integer() else value))
    return _DIGEST.sub(lambda match: f"{match[0][:12]}...", text).replace("\n", "\\n") or '""'


def _shown(before: Any, after: Any) -> tuple[str | None, str | None]:
    """Both on a line; of what is long, the part that differs."""
    if isinstance(before, tuple) and isinstance(after, tuple) and len("".join((*before, *after))) > _LONGEST:
        kept = set(before) & set(after)
        before, after = (
            ("...", *(item for item in side if item not in kept)) if kept else side for side in (before, after)
        )
    old, new = (", ".join(side) if isinstance(side, tuple) else side for side in (before, after))
    if old is not None and new is not None and len(old) + len(new) > _LONGEST:
        parts = _differing(old, new)
        old, new = parts if max(map(len, parts)) <= _LONGEST else (old, new)
    return _short(old), _short(new)


def _differing(before: str, after: str) -> tuple[str, str]:
    """Without what both begin and end with, but for a few characters."""
    start = max(0, _common(before, after) - _CONTEXT)
    most = min(len(before), len(after)) - start
    end = max(0, min(most, _common(before[::-1], after[::-1])) - _CONTEXT)
    ends = "..." if end else ""
    old, new = (f"{'...' if start else ''}{side[start : len(side) - end]}{ends}" for side in (before, after))
    return old, new


def _common(left: str, right: str) -> int:
    """How many characters both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


def _short(text: str | None) -> str | None:
    """A text that is still long by its digest, as a change may lie behind its beginning."""
    if text is None or len(text) <= _LONGEST:
        return text
    return f"a text of {len(text):,} characters, sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _worst(effects: Iterable[Effect]) -> Effect | None:
    order = ("unknown", "wipe", "reboot", "reinstall", "live")
    return min(effects, key=lambda effect: order.index(effect.word), default=None)


def _joined(path: Path) -> str:
    """Keys in one form, as the site writes `min_size` and Talos `minSize`."""
    return "".join(path).replace("_", "").lower()


def _is_telling(before: str | None, after: str | None) -> bool:
    """Whether a pair of values is long enough to be the same by no chance."""
    return len(before or "") + len(after or "") >= _TELLING


def _dotted(path: Path) -> str:
    """As previews have it: a key with dots of its own is in brackets, a place of a list too."""
    text = ""
    for part in path:
        quoted = (
            f"[{part}]" if part.isdecimal() else f'["{part}"]' if "." in part and not part.endswith("patches") else ""
        )
        text += quoted or (f".{part}" if text else part)
    return text
