"""Runs tests in parallel out of one collection: `pytest -p tests.forks --forks 4`.

xdist's workers each collect the whole tier, which took more time than its tests do. Here the process that has
collected forks: its copies take tests from it in their order, and send it their reports.
"""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import pytest

# Tests of one module follow each other in a fork, so that its fixtures are made once or twice.
_MOST_AT_ONCE = 30


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, metavar="N", help="run tests in N copies of this process")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    config = session.config
    forks = min(config.option.forks, len(session.items))
    if forks < 2 or config.option.collectonly or session.testsfailed:
        return None
    # Copies share the folder of temporary files.
    factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]
    factory.getbasetemp()
    sys.stdout.flush()
    sys.stderr.flush()
    children = dict(_forked(session) for _ in range(forks))
    try:
        _serve(session, children)
    finally:
        for connection, child in children.items():
            connection.close()
            os.waitpid(child, 0)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


def _forked(session: pytest.Session) -> tuple[Connection[Any, Any], int]:
    """The parent's end of a connection to a copy, and the copy's process."""
    ours, theirs = Pipe()
    child = os.fork()
    if child:
        theirs.close()
        return ours, child
    status = 1
    try:
        ours.close()
        atexit._clear()
        _run(session, theirs)
        atexit._run_exitfuncs()
        status = 0
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        # The parent has ended, or ends.
        pass
    finally:
        os._exit(status)


class _Reporter:
    """Sends to the parent what a copy would print."""

    def __init__(self, config: pytest.Config, parent: Connection[Any, Any]) -> None:
        self._config = config
        self._parent = parent

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._parent.send(("report", data))

    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        self._parent.send(("warning", text, warning_message.filename, warning_message.lineno, when, nodeid, location))


def _run(session: pytest.Session, parent: Connection[Any, Any]) -> None:
    """A copy's life: it knows the first test of its next share before it ends this one, for fixtures that both use."""
    config = session.config
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(_Reporter(config, parent))

    def share() -> range:
        parent.send(("next",))
        places: range = parent.recv()
        return places

    now = share()
    while now:
        following = share()
        for place in now:
            after = place + 1 if place + 1 in now else following.start if following else None
            item, next_item = session.items[place], None if after is None else session.items[after]
            parent.send(("starts", place))
            config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
        now = following
    parent.send(("ends",))


def _shares(count: int, forks: int) -> Iterator[range]:
    """All places, in order: first many at once, at the end one by one, so that no fork ends long after the others."""
    start = 0
    while start < count:
        size = min(_MOST_AT_ONCE, max(1, (count - start) // (4 * forks)))
        yield range(start, start + size)
        start += size


def _serve(session: pytest.Session, children: dict[Connection[Any, Any], int]) -> None:
    """Give out tests and report what comes back, until every copy has ended."""
    config, hook = session.config, session.config.hook
    shares = _shares(len(session.items), len(children))
    running: dict[Connection[Any, Any], int] = {}
    held: dict[Connection[Any, Any], list[range]] = {connection: [] for connection in children}
    while held:
        for ready in wait(list(held)):
            assert isinstance(ready, Connection)
            try:
                kind, *content = ready.recv()
            except EOFError:
                places = [place for share in held.pop(ready) for place in share if place >= running.get(ready, 0)]
                for place in places:
                    hook.pytest_runtest_logreport(report=_lost(session.items[place]))
                continue
            if kind == "next":
                given = range(0) if session.shouldfail or session.shouldstop else next(shares, range(0))
                held[ready] = [*held[ready][-1:], given]
                ready.send(given)
            elif kind == "starts":
                running[ready] = content[0]
            elif kind == "report":
                report = hook.pytest_report_from_serializable(config=config, data=content[0])
                hook.pytest_runtest_logreport(report=report)
            elif kind == "warning":
                text, filename, line, when, nodeid, location = content
                message = warnings.WarningMessage(text, UserWarning, filename, line)
                hook.pytest_warning_recorded.call_historic(
                    kwargs={"warning_message": message, "when": when, "nodeid": nodeid, "location": location}
                )
            else:
                del held[ready]


def _lost(item: pytest.Item) -> pytest.TestReport:
    text = "the process that was to run this test has died, in it or in one before it"
    return pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
