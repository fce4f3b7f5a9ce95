"""Options, the site that is looked at, and the evidence."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from floor.problems import SiteError
from stacks.plan.cluster import PlannedNode
from tests.live.evidence import Evidence, Finding, check_of, in_brackets, write
from tests.live.running import ROOT, NoSiteError, RunningSite, running_site

Seen = Callable[[str], None]
_FINDINGS = pytest.StashKey[list[Finding]]()
_SITE = pytest.StashKey[RunningSite]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The site and where the evidence goes."""
    group = parser.getgroup("live", "checks of a running site")
    group.addoption("--site", metavar="NAME", help="the site's stack")
    group.addoption("--stack-file", type=Path, metavar="FILE", help="its stack file, if it is another one")
    group.addoption("--endpoint", metavar="URL", help="ask models here, not at the stack's endpoint")
    group.addoption("--endpoint-ca", type=Path, metavar="FILE", help="CA of the endpoint's certificate, in PEM")
    group.addoption("--prometheus", metavar="URL", help="ask Prometheus here, not through the API server")
    group.addoption("--alertmanager", metavar="URL", help="ask Alertmanager here, not through the API server")
    group.addoption("--evidence", type=Path, metavar="FOLDER", help="write evidence.json and evidence.md there")


def pytest_configure(config: pytest.Config) -> None:
    """Start the list of findings."""
    config.stash[_FINDINGS] = []


# Last, so that a check's own parameters come first in its name.
@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The rows of a check's mark end its name, as one more parameter: `-v` shows them, and `-k` selects by them."""
    if rows := _rows(metafunc.definition):
        metafunc.parametrize("_rows_of_check", [rows], ids=[in_brackets(rows)], indirect=True)


@pytest.fixture(autouse=True)
def _rows_of_check(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The parameter that pytest_generate_tests sets."""
    rows: tuple[str, ...] = getattr(request, "param", ())
    return rows


@pytest.fixture(scope="session")
def site(request: pytest.FixtureRequest) -> RunningSite:
    """The site that --site names. Ends the run where there is none to look at."""
    config = request.config
    name = config.getoption("--site")
    if not name:
        raise pytest.UsageError("these checks look at a running site: python -m pytest tests/live --site NAME")
    try:
        looked_at = running_site(
            name,
            stack_file=config.getoption("--stack-file"),
            endpoint=config.getoption("--endpoint"),
            certificate=config.getoption("--endpoint-ca"),
            prometheus=config.getoption("--prometheus"),
            alertmanager=config.getoption("--alertmanager"),
        )
    except (NoSiteError, SiteError) as error:
        pytest.exit(f"the site {name} cannot be looked at: {error}", returncode=4)
    config.stash[_SITE] = looked_at
    return looked_at


@pytest.fixture
def seen(record_property: Callable[[str, object], None]) -> Seen:
    """Writes into the evidence what a check saw."""
    return lambda text: record_property("seen", text)


@pytest.fixture
def machines(site: RunningSite) -> tuple[PlannedNode, ...]:
    """The machines that the program installed."""
    if site.plan.machines is None or not site.talosconfig:
        pytest.skip("the program did not make this cluster, so it has no access to the machines")
    return tuple(node for node in site.plan.machines.nodes if not node.spec.dead)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """One finding for each check: what its call says, or what kept it from being called."""
    report = yield
    if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
        rows = _rows(item)
        item.config.stash[_FINDINGS].append(
            Finding(
                check=check_of(item.name, rows),
                rows=rows,
                outcome=report.outcome,
                seen=tuple(str(value) for name, value in report.user_properties if name == "seen"),
                reason=_reason(call),
            )
        )
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the evidence."""
    folder, looked_at = session.config.getoption("--evidence"), session.config.stash.get(_SITE, None)
    if folder is None or looked_at is None:
        return
    findings: list[Finding] = session.config.stash[_FINDINGS]
    evidence = Evidence(
        site=looked_at.name,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=_commit(),
        findings=tuple(findings),
    )
    for file in write(folder, evidence, looked_at.secrets):
        print(f"\n{file}", end="")


def _rows(test: pytest.Item) -> tuple[str, ...]:
    return tuple(str(row) for mark in test.iter_markers("row") for row in mark.args)


def _reason(call: pytest.CallInfo[None]) -> str:
    if call.excinfo is None:
        return ""
    # What the assertion states, without the values that pytest shows below it.
    return str(call.excinfo.value).partition("\nassert ")[0].strip()[:2000]


def _commit() -> str:
    asked = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "of no git checkout"
