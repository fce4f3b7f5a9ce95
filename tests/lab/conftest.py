"""Labs for tests: one with the platform on it, and a spare one that a test may break.

`make test-lab` gives each worker namespaces (alone.sh) and a folder of its own, so no two workers share a lab, and the
plain site. Without these, the tests use the checkout's own lab, which may be up already, and the two indexes after it;
tests of a plain platform then need LAB_SITE_FILE (plain_site.py).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from lab.paths import CHECKOUT, Lab
from lab.site import down
from tests.lab.groups import group_of, rank_of
from tests.lab.plain_site import plain_text

_ALONE = "LAB_TESTS_ALONE"
_INDEXES = 8
# Characters of a failure that are printed before the summary; its end has the reason.
_MOST_SHOWN = 4000


def pytest_configure() -> None:
    """Give a worker that is alone a lab folder of its own, with the checkout's tools."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or _ALONE not in os.environ:
        return
    tools = Lab.from_environment()
    home = tools.home / "tests" / worker
    # What a killed run left: its processes and mounts went with its namespaces.
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    for name in (tools.bin.name, tools.bundle.name):
        (home / name).symlink_to(tools.home / name)
    os.environ["LAB_HOME"] = str(home)
    plain = home.with_suffix(".yaml")
    plain.write_text(plain_text())
    os.environ["LAB_SITE_FILE"] = str(plain)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print at once why a test failed. A run takes an hour, and what ends it may also end its summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{report.nodeid}\n{report.longreprtext[-_MOST_SHOWN:]}", flush=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, and keep modules that share a lab in their order; others come before."""
    here = Path(__file__).parent
    items.sort(key=lambda item: (1, *rank_of(item.path)) if here in item.path.parents else (0,))


class _ByGroup(LoadScopeScheduling):
    """Tests of one group go to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(CHECKOUT / nodeid.partition("::")[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return _ByGroup(config, log)


@pytest.fixture(scope="module")
def empty_lab() -> Lab:
    """The tests' own lab, without the platform that an earlier group has left on it; not the checkout's."""
    lab = Lab.from_environment()
    if _ALONE in os.environ:
        down.take_down(lab)
    return lab


def _of_tools(home: Path) -> Lab:
    tools = Lab.from_environment()
    own = Lab(home=home, cache=tools.cache)
    own.home.mkdir()
    own.bin.symlink_to(tools.bin)
    own.bundle.symlink_to(tools.bundle)
    return own


@pytest.fixture
def lab_of_tools(tmp_path: Path) -> Lab:
    """The checkout's tools with a state of its own; it is never up."""
    return _of_tools(tmp_path / "lab")


@pytest.fixture(scope="module")
def module_lab_of_tools(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The same, with one state for all tests of a module."""
    return _of_tools(tmp_path_factory.mktemp("tools") / "lab")


@pytest.fixture(scope="module")
def spare_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A second lab on this machine, down at first, whose tools are the checkout's."""
    tools = Lab.from_environment()
    spare = replace(tools, home=tmp_path_factory.mktemp("lab"), index=(tools.index + 1) % _INDEXES)
    spare.bin.symlink_to(tools.bin)
    yield spare
    down.take_down(spare)
