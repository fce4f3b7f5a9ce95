"""Damages site files as people and accidents do, in structure and bytes. The same seed gives the same files."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
SITES = ROOT / "tests" / "fixtures" / "sites" / "valid"
SEEDS = (*sorted(SITES.glob("*.yaml")), ROOT / "Pulumi.prod.yaml", ROOT / "Pulumi.lab.yaml")
# One value with a secret of each form; none of them may be printed.
SECRETS = (
    "sk-TRACERtracer0123456789abcdef",
    "tracer.0123456789abcdef",
    "Q0FOQVJZY2FuYXJ5MDEyMzQ1Njc4OWFiY2RlZmdoaWo=",
    "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tQ0FOQVJZ",
    "-----BEGIN PRIVATE KEY-----\nMIITRACERtracer0123456789+/abcdefghijklmnop\n-----END PRIVATE KEY-----\n",
)
# What remains of them, and is no key of a site, when they are cut, lowered or read by line.
TRACES = ("tracer", "q0foqvjzy2fuyxj5", "ls0tls1crudjtibquklwqvrf")

_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 2**63, 10**40, 0.5, -0.0, 1e300, "", " ", "x", "0", "é", "a b",
    "a.b", "-", "*", "../..", "10.0.0.0/8", "10.5.0.10", "::1", "https://", "x" * 5000, [], {}, [[]], [{}], [None],
    ["x"], [1], {"x": 1}, {"": ""}, {"x": {"y": []}}, {"secure": "v1:a:b"},
)  # fmt: skip
_SCRAPS = (
    ":", ": ", "\t", "- ", "{", "}", "[", "]", "'", '"', "*a", "&a ", "<<: *a\n", "<<: {}\n", "\n", "\r", "#", "!!x ",
    "!", "\x00", "\ufeff", "\u2028", "\x85", "é", "0", "0x", "0b2", "1e999", "1_0", "9" * 400, "yes", "~", "2027-02-30",
    "|", ">-\n", "%", "@", "`", "---\n", "...\n", "? ", "&a [*a]", "[" * 900, "- " * 900, "{a: " * 200, "12:30:45", "=",
    ".nan",
)  # fmt: skip


def sites(count: int, seed: int) -> Iterator[bytes]:
    """`files` of the sites that are right."""
    return files([path.read_text() for path in SEEDS], count, seed)


def files(texts: Sequence[str], count: int, seed: int) -> Iterator[bytes]:
    """The content of `count` damaged files; some have a secret in them."""
    chance = random.Random(seed)  # noqa: S311 - the same damage each time
    for _ in range(count):
        text, planted = chance.choice(texts), chance.random() < 0.3
        if chance.random() < 0.6:
            text = structured(text, chance, planted)
            yield damaged(text.encode(), chance) if chance.random() < 0.2 else text.encode()
        else:
            yield damaged(_with_secret(text, chance) if planted else text.encode(), chance)


def holds_a_secret(content: bytes) -> bool:
    """Whether one of them is intact after all the damage, and not lengthened; the rest of a broken one is unknown."""
    forms = (form.encode() for secret in SECRETS for form in (secret, json.dumps(secret)[1:-1]))
    return any(re.search(re.escape(form) + rb"(?![A-Za-z0-9])", content) for form in forms)


def structured(text: str, chance: random.Random, planted: bool) -> str:
    """The file with a few values, keys or sections changed, in one of several forms of YAML."""
    document = yaml.safe_load(text)
    for _ in range(chance.choice((1, 1, 2, 5))):
        changed(document, chance)
    if planted:
        _change(document, chance, chance.choice(SECRETS))
    match chance.randrange(4):
        case 0:
            return json.dumps(document, default=str)
        case 1:
            return yaml.safe_dump(document, default_flow_style=True)
    return yaml.safe_dump(document, sort_keys=False)


def changed(document: Any, chance: random.Random) -> None:
    """Put something odd at a random place."""
    _change(document, chance, copy.deepcopy(chance.choice(_ODD)))


def _change(document: Any, chance: random.Random, value: Any) -> None:
    """Replace, rename, remove, move or double something at a random place."""
    where = list(places(document))
    if not where:
        return
    *parents, last = chance.choice(where)
    for key in parents:
        document = document[key]
    match chance.randrange(6):
        case 0 if isinstance(document, dict):
            document[value if isinstance(value, str | int) else str(value)] = document.pop(last)
        case 1:
            del document[last]
        case 2:
            document[last] = [copy.deepcopy(document[last])]
        case 3:
            document[last] = {str(value): copy.deepcopy(document[last])}
        case 4 if isinstance(document, list):
            document.append(value)
        case _:
            document[last] = value


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Path of each value below the top."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield from places(below, (*path, key))


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Bytes cut, doubled, exchanged or written over."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(content) + 1)
        end = min(len(content), at + chance.choice((0, 1, 2, 8, 80)))
        match chance.randrange(5):
            case 0:
                content = content[:at]
            case 1:
                content = content[:at] + content[at:end] * 2 + content[end:]
            case 2:
                content = content[:at] + chance.randbytes(chance.randrange(4)) + content[end:]
            case _:
                content = content[:at] + chance.choice(_SCRAPS).encode() + content[end:]
    return content


def _with_secret(text: str, chance: random.Random) -> bytes:
    lines = text.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    key, colon, _ = lines[at].partition(":")
    lines[at] = f"{key}{colon} {json.dumps(chance.choice(SECRETS))}\n"
    return "".join(lines).encode()
