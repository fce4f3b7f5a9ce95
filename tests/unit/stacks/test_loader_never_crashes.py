"""Whatever a site's file holds, its engineer reads a SiteError and no traceback."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from floor.problems import SiteError
from floor.reading.document import read
from stacks.plan.site_plan import plan_file, plan_values
from stacks.site import loader

SITES = Path(__file__).parents[2] / "fixtures" / "sites"
FULL = SITES / "valid" / "four-hgx-nodes.yaml"
ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    10**30,
    "",
    "x",
    "a.b c",
    [],
    [None],
    [[]],
    {},
    {"x": None},
    {"x": {"y": []}},
)
SEED = 7


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield from places(below, (*path, key))


def loads_or_is_refused(values: Any) -> bool:
    try:
        plan_values(values, "site.yaml")
    except SiteError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.what and problem.fix, problem
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_an_odd_value_at_any_place(odd: Any, every: int) -> None:
    """Each value at each fourth place, others for each value; or at all of them."""
    site = read(FULL.read_text()).section("config", loader.KEY).values
    refused = 0
    for path in list(places(site))[ODD.index(odd) % every :: every]:
        changed = copy.deepcopy(site)
        here = changed
        for key in path[:-1]:
            here = here[key]
        here[path[-1]] = odd
        refused += not loads_or_is_refused(changed)
    assert refused > 10


@pytest.mark.slow
def test_a_missing_key_at_any_place() -> None:
    site = read(FULL.read_text()).section("config", loader.KEY).values
    results = set()
    for path in places(site):
        changed = copy.deepcopy(site)
        here = changed
        for key in path[:-1]:
            here = here[key]
        del here[path[-1]]
        results.add(loads_or_is_refused(changed))
    assert results == {True, False}


@pytest.mark.parametrize("values", [*ODD, "rack", 5], ids=repr)
def test_anything_in_the_place_of_the_site(values: Any) -> None:
    assert not loads_or_is_refused(values)


@pytest.mark.parametrize("file", ["one-gpu", "anchors", "numbers", "overrides", "windows"])
def test_a_file_with_random_damage(file: str, tmp_path: Path) -> None:
    text = (SITES / "valid" / f"{file}.yaml").read_text()
    chance = random.Random(SEED)  # noqa: S311 - the same damage each time
    path = tmp_path / "Pulumi.x.yaml"
    refused = 0
    for _ in range(60):
        at = chance.randrange(len(text))
        junk = chance.choice(
            [":", "\t", "- ", "{", "}", "'", '"', "*", "&a ", "\n", "#", "!!x ", "\x00", "0", "yes", "é", ""]
        )
        path.write_text(text[:at] + junk + text[at + chance.choice([0, 1, 5]) :])
        try:
            plan_file(path)
        except SiteError as error:
            assert error.problems
            refused += 1
    assert refused > 20
