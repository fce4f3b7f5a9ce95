"""The lab's site for tests that do not concern monitoring or certificates: a part of each bring-up is saved.

Tests hold its engines still for minutes, with prompts that take so long; no replica is restarted for it.

`python -m tests.lab.plain_site` prints it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from lab.paths import SITE_FILE

# Longer than any test; a simulator gets the prefill of its longest prompt on top.
_HELD_S = 7200


def make_plain(document: dict[str, Any]) -> None:
    """Take out of the checked-in stack file what measures and what certifies: plain HTTP, on any address."""
    site = document["config"]["inference-platform:site"]
    del site["monitoring"], site["certificates"]
    del site["gateway"]["certificate_secret"], site["gateway"]["address"]
    site["gateway"]["port"] = 80
    for model in site["models"].values():
        model.setdefault("overrides", {})["stall_s"] = {"value": _HELD_S, "reason": "tests hold its engine still"}


def plain_text(site_file: Path = SITE_FILE) -> str:
    """The stack file."""
    document = yaml.safe_load(site_file.read_text())
    make_plain(document)
    return yaml.safe_dump(document, sort_keys=False)


if __name__ == "__main__":
    sys.stdout.write(plain_text())
