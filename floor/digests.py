"""Digests of files."""

from __future__ import annotations

import hashlib
from pathlib import Path


def sha256_of(file: Path) -> str:
    """In hex. Reads in pieces, as a layer of an image or a shard of weights is larger than memory."""
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
