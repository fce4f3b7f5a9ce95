"""The programs of the guide for tenants, as they are written there, against a running site."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lab.paths import CHECKOUT
from tests import documented
from tests.lab.site.running_site import Site

pytestmark = pytest.mark.row("000.08")

_PAGE = CHECKOUT / "docs" / "how-to" / "call-the-models.md"
_PROGRAMS = [block for language, block in documented.fences(_PAGE) if language == "python"]


@pytest.mark.parametrize("program", _PROGRAMS, ids=["openai", "anthropic", "httpx"])
def test_the_guide_for_tenants_works(site: Site, program: str, tmp_path: Path) -> None:
    environment = {
        **site.environment,
        # A proxy that the machine uses for the internet cannot know the lab's addresses.
        "NO_PROXY": "*",
        "INFERENCE_URL": site.front.endpoint.removesuffix("/v1"),
        "INFERENCE_KEY": site.key,
        "INFERENCE_MODEL": "qwen3-32b",
    }
    file = tmp_path / "program.py"
    file.write_text(program)
    done = subprocess.run(
        [sys.executable, file], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
