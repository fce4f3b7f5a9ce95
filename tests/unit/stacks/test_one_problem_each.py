"""One mistake is one problem: nothing that follows from a misspelt key or a wrong address is reported beside it."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest

from floor.problems import Problem, SiteError
from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.site_mutations import places

ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
# Names that the site chose, which other keys repeat.
CHOSEN = {"bond0", "glm-5-1", "qwen3-32b", "controlplane", "worker", "interactive", "batch"}


def problems(site: Any) -> tuple[Problem, ...]:
    try:
        plan_values(site, "site.yaml")
    except SiteError as error:
        return error.problems
    return ()


def section(site: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        site = site[key]
    return site


def misspelt() -> Iterator[tuple[Any, ...]]:
    for path in places(prod()):
        key = path[-1]
        if isinstance(key, str) and len(key) > 4 and "." not in key and key not in CHOSEN and "-" not in key:
            yield path


def with_addresses() -> Iterator[tuple[Any, ...]]:
    site = prod()
    for path in places(site):
        value = section(site, path)
        if isinstance(value, str) and ADDRESS.search(value) and "://" not in value and path != ("gateway", "address"):
            yield path


def name(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


@pytest.mark.parametrize("path", list(misspelt()), ids=name)
def test_a_misspelt_key_is_one_problem(path: tuple[Any, ...]) -> None:
    site = prod()
    above = section(site, path[:-1])
    typo = path[-1][:-1]
    above[typo] = above.pop(path[-1])
    reported = problems(site)
    assert len(reported) <= 1, reported
    for problem in reported:
        assert problem.path == tuple(map(str, (*path[:-1], typo)))


@pytest.mark.parametrize("path", list(with_addresses()), ids=name)
def test_a_wrong_address_is_one_problem(path: tuple[Any, ...]) -> None:
    site = prod()
    above = section(site, path[:-1])
    above[path[-1]] = ADDRESS.sub("10.5.0.999", above[path[-1]], count=1)
    (problem,) = problems(site)
    assert tuple(map(str, path))[: len(problem.path)] == problem.path
    assert len(problem.path) >= len(path) - 1 or "10.5.0.999" in problem.what


def test_what_is_wrong_below_a_misspelt_key_is_reported_where_it_is_written() -> None:
    site = prod()
    machines = site["cluster"]["machines"]
    bonds = machines["bond"] = machines.pop("bonds")
    bonds["bond0"]["lacp_rat"] = "often"
    del bonds["bond0"]["lacp_rate"]
    keys = {problem.key for problem in problems(copy.deepcopy(site))}
    assert keys == {"cluster.machines.bond", "cluster.machines.bond.bond0.lacp_rat"}


def test_a_target_that_is_missed_is_reported_at_it_with_its_unit() -> None:
    site = prod()
    site["models"]["qwen3-32b"]["slo"]["ttft_p95_ms"] = 1
    (problem,) = problems(site)
    assert problem.key == "models.qwen3-32b.slo.ttft_p95_ms"
    assert re.search(r"raise ttft_p95_ms to \d+ ms", problem.fix)
