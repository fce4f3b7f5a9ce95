"""Earlier versions of parts, from which the walk to the pinned ones begins."""

from __future__ import annotations

import pytest

from floor.releases import numbers
from lab.install.earlier import FAMILIES
from lab.install.parts import GO_FAMILIES, GoFamily


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_an_earlier_version_is_earlier_than_the_pinned_one(family: GoFamily) -> None:
    """Where both are one, the walk has no step for the part."""
    (pinned,) = (known for known in GO_FAMILIES if known.name == family.name)
    assert numbers(family.release) < numbers(pinned.release)
