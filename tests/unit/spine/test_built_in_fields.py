"""Fields that Kubernetes' own kinds do not have: the official provider drops them without a word, so none may be there.

A misspelt one would be missing on every site, and no preview would show it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.plugins.kubernetes.kinds import is_built_in
from lab.plugins.kubernetes.normalizing import known_fields
from lab.plugins.kubernetes.objects import gvk_of
from stacks.plan.site_plan import plan_values
from tests.unit.spine.test_platform import Recorder, requested
from tests.unit.stacks.site_examples import ON_NODES, prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("C.04")


def dropped(body: Any, kept: Any, path: str) -> Iterator[str]:
    """Paths of values that are gone; empty lists and maps do not count."""
    if isinstance(body, dict):
        for key, value in body.items():
            if key in kept:
                yield from dropped(value, kept[key], f"{path}.{key}")
            elif value not in (None, [], {}):
                yield f"{path}.{key}"
    elif isinstance(body, list):
        for index, (before, after) in enumerate(zip(body, kept, strict=True)):
            yield from dropped(before, after, f"{path}[{index}]")


@pytest.mark.slow
@pytest.mark.parametrize("change", [{}, ON_NODES], ids=["reference", "weights on nodes"])
def test_no_built_in_object_has_a_field_that_its_kind_does_not_know(change: dict[str, Any], tmp_path: Path) -> None:
    recorder = Recorder()
    requested(plan_values(changed(prod(), change), "site.yaml").site, tmp_path, recorder)
    bodies = [made.inputs for made in recorder.resources.values() if "kind" in made.inputs]
    built_in = [body for body in bodies if is_built_in(gvk_of(body))]
    assert len(built_in) > 100
    assert [lost for body in built_in for lost in dropped(body, known_fields(body), body["kind"])] == []
