"""Many sites over the machine's cores: the results are those of one site after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from sitectl.offline import checkout, over_cores
from sitectl.offline.checkout import Told
from sitectl.offline.mocked_program import KEY
from sitectl.shell.errors import SitectlError
from tests.unit.sitectl.sites_to_work_on import ROOT, really_declare
from tests.unit.stacks.site_examples import prod

SITES = {f"site-{number:02}": number for number in range(20)}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


def test_many_sites_have_a_process_for_each_core() -> None:
    met = get_context("fork").Barrier(2)

    def act(_: str, number: int) -> int:
        # Of each process the first one.
        if number < 2:
            met.wait(timeout=60)
        return os.getpid()

    processes = over_cores.for_each(SITES, act)
    assert list(processes) == list(SITES)
    assert len({processes["site-00"], processes["site-01"], os.getpid()}) == 3


def test_few_sites_are_done_at_once() -> None:
    few = dict(list(SITES.items())[: 2 * over_cores.FEWEST_SITES - 1])
    assert set(over_cores.for_each(few, lambda _name, _number: os.getpid()).values()) == {os.getpid()}


def test_a_single_core_gets_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert set(over_cores.for_each(SITES, lambda _name, _number: os.getpid()).values()) == {os.getpid()}


def test_the_error_is_that_of_the_first_site() -> None:
    def act(name: str, number: int) -> int:
        if number in (7, 12):
            raise SitectlError(f"{name} is wrong", fix="correct it")
        return number

    with pytest.raises(SitectlError, match="site-07 is wrong"):
        over_cores.for_each(SITES, act)


@pytest.mark.parametrize("how", ["what cannot be sent", "a process that ends"])
def test_what_no_process_brings_back_is_done_here(how: str) -> None:
    here = os.getpid()

    def act(_: str, number: int) -> Any:
        if how == "a process that ends" and number == 3 and os.getpid() != here:
            os._exit(1)
        return (lambda: number) if how == "what cannot be sent" else number

    results = over_cores.for_each(SITES, act)
    assert [value() if callable(value) else value for value in results.values()] == list(SITES.values())


@pytest.mark.processes
def test_no_process_outlives_a_command_that_is_killed() -> None:
    """One that did would hold the output open, and a reader waits for its end."""
    script = (
        "import os, signal\n"
        "from sitectl.offline.over_cores import for_each\n"
        "os.sched_getaffinity = lambda _: {0, 1}\n"
        "for_each(dict.fromkeys(range(16)), lambda *_: (os.write(1, b'.'), signal.pause()))\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE) as command:
        assert command.stdout is not None
        assert os.read(command.stdout.fileno(), 1) + os.read(command.stdout.fileno(), 1) == b".."
        command.kill()
        assert command.communicate(timeout=60)[0] == b""


def test_a_command_says_of_many_sites_what_it_says_of_one() -> None:
    def look(name: str, number: int) -> Told:
        return Told(lines=[f"{name}: {number}"], record={"number": number}, good=number != 5)

    reported = checkout.tell(SITES, look)
    assert reported.lines == [f"{name}: {number}" for name, number in SITES.items()]
    assert list(reported.records.items()) == [(name, {"number": number}) for name, number in SITES.items()]
    assert reported.wrong == ["site-05"]


@pytest.mark.processes
def test_a_checkout_s_folder_may_have_a_colon_in_its_name(tmp_path: Path) -> None:
    """And another program finds nothing of this checkout but `sitectl`."""
    (tmp_path / "of:mine").symlink_to(ROOT)
    project, site = tmp_path / "another", tmp_path / "Pulumi.one.yaml"
    project.mkdir()
    (project / "__main__.py").write_text(
        "import importlib.util\n1 / (importlib.util.find_spec('stacks') is not None)\n"
    )
    site.write_text("config: {}\n")
    declare = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); from sitectl.offline import checkout; "
        "print(checkout.declare(Path(sys.argv[2]), {'one': Path(sys.argv[3])})['one'].error)"
    )
    run = subprocess.run(
        [sys.executable, "-P", "-c", declare, str(tmp_path / "of:mine"), str(project), str(site)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ZeroDivisionError" in run.stdout, run.stderr


@pytest.mark.processes
def test_many_sites_are_declared_by_a_process_for_each_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {name: tmp_path / f"Pulumi.{name}.yaml" for name in SITES}
    for file in files.values():
        file.write_text("config: {}\n")
    files["site-04"].unlink()
    commands: list[list[str]] = []
    program = tmp_path / "program.py"
    program.write_text(
        "import json, sys; from pathlib import Path\n"
        "names = [stack.partition('=')[0] for stack in sys.argv[2:]]\n"
        "Path(sys.argv[1]).write_text(json.dumps({name: {'error': f'{name} ran'} for name in names}))\n"
    )
    monkeypatch.setattr(checkout, "_PROGRAM", (str(program),))
    start = subprocess.Popen

    def started(command: list[str], **how: Any) -> Any:
        commands.append(command)
        return start(command, **how)

    monkeypatch.setattr(subprocess, "Popen", started)
    declared = really_declare(ROOT, files)
    assert list(declared) == list(files)
    assert declared["site-19"].error == "site-19 ran"
    assert "no such file" in declared["site-04"].error
    assert sorted(len(command) - 3 for command in commands) == [9, 10]


@pytest.mark.processes
def test_the_program_under_mocks_proves_nothing_for_a_report_and_starts_no_thread(tmp_path: Path) -> None:
    """Half of a proof is for what a preview prints: the capacity, the layout that would do better."""
    script = (
        "import sys, threading; from pathlib import Path\n"
        "from sitectl.offline import mocked_program\n"
        "sys.path.insert(0, '.')\n"
        "from stacks.plan.models import RevisionPlan\n"
        "RevisionPlan.text = lambda _: sys.exit('a report was made')\n"
        "threading.Thread.start = lambda _: sys.exit('a thread was started')\n"
        "declared = mocked_program.declared('prod', Path(sys.argv[1]))\n"
        "print(len(declared))\n"
    )
    site = prod()
    file = tmp_path / "site.json"
    file.write_text(json.dumps({"config": {KEY: site}}))
    done = subprocess.run(
        [sys.executable, "-c", script, str(file)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 80
