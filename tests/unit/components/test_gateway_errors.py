"""The gateway's own errors, and the guide that explains them."""

from __future__ import annotations

import re

import pytest

from components.gateway.gateway_errors import DECIDED_STATUSES, LIMIT_STATUSES
from tests.documented import ROOT

pytestmark = pytest.mark.row("000.34")

_GUIDE = ROOT / "docs" / "how-to" / "call-the-models.md"


def test_the_guide_for_tenants_has_every_error() -> None:
    """With its status: who programs against the platform reads no source."""
    rows = re.findall(r"^\| ([\d, ]+) \| ([^|]+) \|", _GUIDE.read_text(), re.MULTILINE)
    documented = {
        (int(status), code)
        for statuses, codes in rows
        for code in re.findall(r"`(\w+)`", codes)
        for status in statuses.split(",")
    }
    given = {(status, code) for code, status in DECIDED_STATUSES.items()} | LIMIT_STATUSES
    assert given - documented == set()
