"""The programs of the guide for tenants, run as they are written there."""

from __future__ import annotations

import subprocess
import sys

from lab.paths import CHECKOUT
from tests import documented
from tests.lab.site.running_site import Site

_PAGE = CHECKOUT / "docs" / "how-to" / "call-the-models.md"


def programs(module: str) -> list[str]:
    """Those that import it."""
    return [
        block for language, block in documented.fences(_PAGE) if language == "python" and f"import {module}\n" in block
    ]


def run(program: str, site: Site, key: str) -> None:
    """Run it with this key; it prints an answer."""
    environment = {
        **site.environment,
        # A proxy that the machine uses for the internet cannot know the lab's addresses.
        "NO_PROXY": "*",
        "INFERENCE_URL": site.address,
        "INFERENCE_KEY": key,
        "INFERENCE_MODEL": "qwen3-32b",
    }
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
