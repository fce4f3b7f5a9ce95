"""The text of a key, and the digest by which it is known at rest."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_ID_LENGTH, _SECRET_LENGTH = 10, 52
ID = re.compile(f"[a-z2-7]{{{_ID_LENGTH}}}")


@dataclass(frozen=True)
class NewKey:
    """A key, of which only `digest` is kept."""

    id: str
    text: str
    digest: str


def new_key(pepper: bytes) -> NewKey:
    """A random key: 50 bits of id, 260 bits of secret."""
    key_id, secret = ("".join(secrets.choice(_ALPHABET) for _ in range(n)) for n in (_ID_LENGTH, _SECRET_LENGTH))
    text = f"sk-{key_id}-{secret}"
    return NewKey(key_id, text, digest_of(text, pepper))


def digest_of(text: str, pepper: bytes) -> str:
    """HMAC-SHA256 of the whole text, in hex."""
    return hmac.new(pepper, text.encode(), hashlib.sha256).hexdigest()
