"""Lab tests are cut into groups that each have labs of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.paths import CHECKOUT
from tests.lab.groups import MEASURED, SITE_GROUPS, group_of, rank_of

LAB_TESTS = CHECKOUT / "tests" / "lab"


def test_each_module_of_the_platform_is_in_one_group() -> None:
    listed = [module for modules in SITE_GROUPS.values() for module in modules]
    assert sorted(listed) == sorted(path.stem for path in (LAB_TESTS / "site").glob("test_*.py"))


def test_a_measured_platform_is_one_of_them() -> None:
    assert set(MEASURED) < set(SITE_GROUPS)


def test_a_new_module_of_the_platform_must_be_put_into_a_group() -> None:
    with pytest.raises(KeyError, match="test_new"):
        group_of(LAB_TESTS / "site" / "test_new.py")


@pytest.mark.parametrize(
    ("module", "group"),
    [
        ("site/test_tenants.py", "site-changes"),
        ("runner/test_runner.py", "runner"),
        ("runner/test_runner_endings.py", "runner"),
        ("cluster/test_cluster.py", "cluster/test_cluster"),
        ("test_pulumi_session.py", "test_pulumi_session"),
    ],
)
def test_the_group_of_a_module(module: str, group: str) -> None:
    assert group_of(LAB_TESTS / module) == group


def test_platforms_begin_first_and_keep_the_order_of_their_modules() -> None:
    modules = [Path(path) for path in LAB_TESTS.rglob("test_*.py")]
    in_order = sorted(modules, key=rank_of)
    platform = [path.stem for path in in_order if path.parent.name == "site"]
    assert platform == [module for group in SITE_GROUPS.values() for module in group]
    assert [path.parent.name for path in in_order[: len(platform)]] == ["site"] * len(platform)
