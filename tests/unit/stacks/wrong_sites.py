"""What tests of wrong sites share: the annotated site with a change, where it is refused, and what fixes it."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import pytest

from floor.problems import SiteError
from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import prod_with_links

M = "cluster.machines"
N = f"{M}.networks"


class Wrong(NamedTuple):
    """What is changed (dotted keys -> value, None takes the key out), where it is refused, and what fixes it."""

    change: dict[str, Any]
    key: str
    what: str
    fixed: dict[str, Any] | None = None


def changed(site: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The site with these values."""
    for dotted, value in change.items():
        *above, last = dotted.replace("bond0.30", "bond0~30").replace("nvidia.com", "nvidia~com").split(".")
        here: Any = site
        for part in above:
            key = part.replace("~", ".")
            here = here[int(key)] if isinstance(here, list) else here.setdefault(key, {})
        last = last.replace("~", ".")
        if value is None:
            del here[last]
        elif isinstance(here, list):
            here[int(last)] = copy.deepcopy(value)
        else:
            here[last] = copy.deepcopy(value)
    return site


def refused_and_fixed(wrong: Wrong) -> None:
    """The site is refused at this key alone, because consequences of a mistake are not reported too; the fix works."""
    with pytest.raises(SiteError) as caught:
        plan_values(changed(prod_with_links(), wrong.change), "site.yaml")
    error = caught.value
    assert {problem.key for problem in error.problems} == {wrong.key}, str(error)
    assert wrong.what in str(error)
    assert all(problem.fix for problem in error.problems)
    if wrong.fixed is not None:
        assert plan_values(changed(changed(prod_with_links(), wrong.change), wrong.fixed), "site.yaml").site
