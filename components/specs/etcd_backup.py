"""What a site may set for backups of its cluster's etcd."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from components.specs.weights import BucketSpec
from floor.problems import WrongValueError

# Of the reference site and the pages; its private key was thrown away.
SHOWN_KEY = "age1pt7ndh5mtvwk794wezdejzvn6a9x9h8t5g5w97vxc56jaudgtc7svp45kq"
_ALPHABET = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_GENERATORS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)


class EtcdBackupSpec(BucketSpec):
    """Snapshots of etcd, taken in the cluster by schedule and encrypted before they leave the pod."""

    address: str
    """`https://HOST[:PORT]/BUCKET[/PREFIX]`; snapshots are the objects `SITE-TIME.snap.age` below it, and below the
    site's name without a prefix. What the bucket keeps is its own lifecycle rule."""
    keys_secret: str = Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")
    """Secret in the namespace etcd-backup with `access_key_id` and `secret_access_key`, and `ca.crt` where the server's
    certificate is of a CA of the site's own. The keys must be allowed to put objects, and need nothing else."""
    age_public_key: str
    """Public key of `age-keygen` that snapshots are encrypted for: they hold every Secret of the cluster. Keep the
    private key where neither the cluster nor the bucket is."""
    every_h: Literal[1, 2, 3, 4, 6, 8, 12, 24] = 6
    """Hours from one snapshot to the next. An alert fires after two that are missing."""

    @model_validator(mode="after")
    def _can_be_encrypted_for(self) -> EtcdBackupSpec:
        if not is_age_recipient(self.age_public_key):
            private = self.age_public_key.upper().startswith("AGE-SECRET-KEY-")
            raise WrongValueError(
                "age_public_key is the private key" if private else "age_public_key is no public key of age",
                allowed="age1 and 58 characters, as `age-keygen -y` prints it",
                fix="copy the line `# public key` of the key's file"
                + (", and make a new pair: this one has been in a file of the site" if private else ""),
            )
        return self

    @model_validator(mode="after")
    def _can_be_decrypted(self) -> EtcdBackupSpec:
        # No server has a name below .example (RFC 2606): such a site is for show too.
        if self.age_public_key == SHOWN_KEY and not (urlsplit(self.address).hostname or "").endswith(".example"):
            raise WrongValueError(
                "age_public_key is the one of the reference site, and no one has its private key",
                allowed="the public key of a pair of your own",
                fix="make a pair with age-keygen, and write its public key",
            )
        return self


def is_age_recipient(text: str) -> bool:
    """Whether the text is an X25519 recipient of age with the right checksum (Bech32, BIP 173, with the prefix age)."""
    prefix, _, data = text.partition("1")
    if prefix != "age" or len(data) != 58 or not set(data) <= set(_ALPHABET):
        return False
    values = [ord(c) >> 5 for c in prefix] + [0] + [ord(c) & 31 for c in prefix] + [_ALPHABET.index(c) for c in data]
    checksum = 1
    for value in values:
        top = checksum >> 25
        checksum = (checksum & 0x1FFFFFF) << 5 ^ value
        for bit, generator in enumerate(_GENERATORS):
            checksum ^= generator if top >> bit & 1 else 0
    return checksum == 1
