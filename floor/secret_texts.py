"""What looks like a secret: refused in a site's file, and never printed, as value or as name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Path = tuple[str, ...]
HIDDEN = "(hidden, as it looks like a secret)"

# Forms of keys and tokens that are secret wherever they are, by their issuers' documentation.
_ISSUED = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:[^-]|-(?!----))*(?:-----END [A-Z0-9 ]*PRIVATE KEY-----)?"
    # Base64 of a PEM text, as Talos and kubeconfigs have it; a certificate is no secret.
    r"|LS0tLS1CRUdJTi(?!BDRVJU)[A-Za-z0-9+/=]*"
    r"|\bsk-(?=[A-Za-z0-9_-]{0,40}[A-Z]|(?:[a-z_-]{0,40}[0-9]){3})[A-Za-z0-9_-]{16,}"
    r"|\bhf_[A-Za-z0-9]{16,}|\bnvapi-[A-Za-z0-9_-]{16,}|\bAIza[A-Za-z0-9_-]{30,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bglpat-[A-Za-z0-9_-]{16,}"
    r"|\bA[KS]IA[A-Z0-9]{16}\b|\bxox[abps]-[A-Za-z0-9-]{10,}|\bAGE-SECRET-KEY-1[A-Z0-9]{20,}"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"
    r"|client-key-data:\s*\S*|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
    r"|(?<![^\s'\"=\[(])--(api-key|hf-token|hf_token)[= ][^\s'\"]+"
    # A token that machines join with: Talos's, kubeadm's.
    r"|(?<![\w.-])[a-z0-9]{6}\.(?=[a-z]*[0-9])[a-z0-9]{16}(?![\w.-])",
    re.DOTALL,
)
# Random bytes in base64 or hex. Digests and fingerprints have this form too, so a value may have it.
_RANDOM = re.compile(r"(?<![A-Za-z0-9+/])(?<!sha256:)(?!LS0tLS1CRUdJTiBDRVJU)[A-Za-z0-9+/]{32,}={0,2}")
_HEX = re.compile(r"[0-9a-f]{32,}")
_SHORTEST_RANDOM, _RANDOM_LENGTH = 20, 28
_TURNS = 0.3
# Random base64 is lower case by 41 %; 32 characters of it are this much by one chance in a thousand.
_WORDS, _DIGITS_OF_WORDS = 0.65, 2

# A name in JSON or in a query, with a value: what it holds is secret, whatever its form.
_NAMED = re.compile(
    r"(?i)\"(api[_-]?key|access[_-]?token|token|password|secret)\"\s*:\s*\"[^\"]"
    r"|[?&](\w*token|api[_-]?key|password|secret)=[^&\s]"
)
# The same in the environment of a service, in a file, or as a kernel argument.
_ASSIGNED = re.compile(r"(?i)(?<![a-z0-9])\w*(auth_?key|api_?key|access_?key|token|password|passwd|secret)=[^\s=]")
# Fields of a machine config that hold a secret in any form.
_SECRET_FIELD = re.compile(r"(?i)(token|secret|password|passphrase|privatekey|auth)$")
# What switches hold, such as a flag `anonymous-auth`.
_SWITCHES = frozenset({"", "true", "false"})
_REGISTRIES = ("cluster", "machines", "registries")
NAMES_ONE = "_secret"
"""End of a key that names a secret and does not hold it."""
_PAIRS = frozenset({"ca", "aggregatorCA", "serviceAccount", "clientIdentity"})

REVOKE = "revoke it where it was issued, as others may have read it"


def looks_secret(text: str) -> bool:
    """Whether the text has a form in which keys, tokens or passwords are issued."""
    return bool(_ISSUED.search(text))


def is_secret_name(text: str) -> bool:
    """Whether a name looks like a secret: no name is random bytes."""
    return looks_secret(text) or any(_is_random(match[0]) for match in _RANDOM.finditer(text))


def without_secrets(text: str) -> str:
    """The text with each secret of an issuer's form hidden."""
    return _ISSUED.sub(HIDDEN, text)


def shown_without_secrets(text: str) -> str:
    """The same for a text that quotes a site: what may be a secret is hidden too."""
    return _RANDOM.sub(lambda match: HIDDEN if _is_random(match[0]) else match[0], without_secrets(text))


def _is_random(text: str) -> bool:
    """Not a path or a word: upper and lower case alternate, with digits if it is short."""
    # Base64 has slashes too: cut at them, the parts of a key may each be as short as a name.
    whole = text.replace("/", "")
    if _is_words(whole):
        return False
    return (len(whole) >= _RANDOM_LENGTH and _turns(whole) and {"A", "a"} <= set(map(_kind, whole))) or any(
        _HEX.fullmatch(part)
        or (len(part) >= _SHORTEST_RANDOM and _turns(part) and {"A", "a", "0"} <= set(map(_kind, part)))
        for part in text.split("/")
    )


def _is_words(text: str) -> bool:
    """A name of several words, such as a feature gate's: capitals begin them, and few digits are in them."""
    kinds = [_kind(character) for character in text]
    few = kinds.count("0") <= _DIGITS_OF_WORDS and "A" in kinds and "+" not in kinds
    return few and kinds.count("a") >= _WORDS * len(text)


def _turns(text: str) -> bool:
    """Whether characters change their kind as often as in random base64 (64 % of the time, by count), or nearly."""
    return sum(_kind(left) != _kind(right) for left, right in pairwise(text)) >= _TURNS * len(text)


def _kind(character: str) -> str:
    return "A" if character.isupper() else "a" if character.islower() else "0" if character.isdigit() else "+"


@dataclass(frozen=True, kw_only=True)
class PlainSecret:
    """A secret in plain text: the file is committed, and its readers would have it."""

    written: Path
    """Where it is in the file."""
    path: Path
    """The same with names hidden that are secrets themselves."""
    what: str
    fix: str
    got: str = ""


def masked(value: Any, secrets: list[PlainSecret], written: Path = (), path: Path = ()) -> Any:
    """The value with each secret hidden, so that no later message can be made of it; `secrets` gets where they were."""
    if isinstance(value, Mapping) and list(value) == ["secure"] and isinstance(value["secure"], str):
        what = "an encrypted value, and no key of a site holds a secret"
        secrets.append(PlainSecret(written=written, path=path, what=what, fix=_place_of_secret(path)))
        return {"secure": HIDDEN}
    if isinstance(value, Mapping):
        made = {}
        for number, (key, inner) in enumerate(value.items(), start=1):
            below, name = (*written, key), key
            if is_secret_name(key):
                # Two hidden names stay two names.
                name = f"{HIDDEN} {number}"
                what = "a key that looks like a secret, and this file is committed"
                secrets.append(PlainSecret(written=below, path=(*path, name), what=what, fix=f"rename it; {REVOKE}"))
            made[name] = masked(inner, secrets, below, (*path, name))
        return made
    if isinstance(value, list):
        return [
            masked(inner, secrets, (*written, str(index)), (*path, str(index))) for index, inner in enumerate(value)
        ]
    if isinstance(value, str) and _is_secret_value(value, path):
        what = "looks like a secret in plain text, and this file is committed"
        fix = f"{_place_of_secret(path)}; {REVOKE}"
        secrets.append(PlainSecret(written=written, path=path, what=what, fix=fix, got=HIDDEN))
        return HIDDEN
    return value


def _is_secret_value(value: str, path: Path) -> bool:
    named = _NAMED.search(value) or (_ASSIGNED.search(value) and ("patches" in path or "kernel_args" in path))
    return looks_secret(value) or bool(named) or (value not in _SWITCHES and _is_secret_field(path))


def _is_secret_field(path: Path) -> bool:
    """A machine's own secret, or a registry's; a key that ends in _secret names where one is."""
    *_, parent, key = ("", *path)
    if path[: len(_REGISTRIES)] == _REGISTRIES:
        return bool(_SECRET_FIELD.search(key)) and not key.endswith(NAMES_ONE)
    return "patches" in path and (bool(_SECRET_FIELD.search(key)) or (key == "key" and parent in _PAIRS))


def _place_of_secret(path: Path) -> str:
    """Where the secret belongs instead, as a fix."""
    if path[:1] == ("tenants",):
        return "write {} for a key: `up` makes it and keeps it encrypted"
    if path[-1:] == ("kubeconfig",):
        return "name the file that holds it"
    if path[-1:] == ("certificate_secret",):
        return "make a TLS Secret in the cluster and write its name"
    if path[: len(_REGISTRIES)] == _REGISTRIES and "endpoints" in path:
        return (
            "take it out of the address, run `pulumi config set --secret registry-password`, and write below "
            "registries.auth, by the address's host, {username: NAME, password_secret: registry-password}"
        )
    if path[: len(_REGISTRIES)] == _REGISTRIES:
        key = path[-1] if path[-1].endswith(NAMES_ONE) else f"{path[-1]}{NAMES_ONE}"
        return f"run `pulumi config set --secret registry-password`, and write {key}: registry-password"
    if "extra_args" in path:
        return "take the flag out: the gateway checks keys, and weights can be put into the volume beforehand"
    if "patches" in path:
        return "take it out: `up` makes the machines' secrets and keeps them encrypted"
    return "keep it in a Secret of the cluster"
