"""The life of a stack under faults: destroyed without a trace, then brought up from machines in maintenance mode by
engines that are killed and through the death of the API server; the result is the same as without.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import deploy, session
from lab.cluster import controlplane
from lab.machines import lab_rack
from lab.machines.admin import ask
from lab.paths import CHECKOUT, Lab
from lab.site import down, up
from tests.lab.machine_state import machine_state, of_lab
from tests.lab.site.cluster_objects import declared, inventory
from tests.lab.site.pulumi_runs import Pulumi
from tests.lab.site.running_site import Site
from tests.lab.waiting import eventually

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("C.04", "opening 4")]

_PLUGINS_END_WITHIN_S = 60.0
# As the provider calls a server that is gone, and as helm does.
_AWAY = re.compile("unreachable|connection refused|connection reset|EOF")
_UP = ("up", "--yes", "--skip-preview", "--stack", session.STACK)


def test_destroyed_without_a_trace_and_brought_up_through_faults(site: Site, tmp_path: Path) -> None:
    lab = site.lab
    pulumi = Pulumi(lab, tmp_path)
    # An earlier program has made the platform, without what the site has set since.
    pulumi("up", "--yes", "--skip-preview")
    undisturbed_inputs, undisturbed = pulumi.inputs(), declared(inventory(lab))
    assert undisturbed

    pulumi("destroy", "--yes", "--skip-preview")
    assert pulumi.state().get("resources", []) == []
    assert {machine["stage"] for machine in ask(lab_rack.folder(lab), {"action": "show"})} == {"maintenance"}
    assert not controlplane.is_created(lab)
    assert not lab.kubeconfig.exists()
    eventually(lambda: not _pods(lab))

    made = _interrupted(lab, created=10)
    assert made < len(undisturbed)
    by_hand = _by_hand(lab, "up", "--yes", "--skip-preview")
    assert by_hand.returncode != 0
    assert "the stack is currently locked" in by_hand.stderr
    assert "pulumi cancel" in by_hand.stderr
    assert _by_hand(lab, "cancel", "--yes").returncode == 0
    # An engine that is killed over one of these leaves a state that does not load.
    assert not list(lab.pulumi.rglob("*.attrs"))

    _interrupted(lab, created=30)
    session.prepare(lab)
    _interrupted(lab, created=20)
    session.prepare(lab)
    _api_server_dies(lab, created=5)

    pulumi("up", "--yes", "--skip-preview")
    # What a killed engine had under way stays on the state's list until someone confirms the result.
    pulumi("refresh", "--yes", "--skip-preview", "--clear-pending-creates")
    assert not pulumi.state().get("pending_operations")
    pulumi("preview", "--refresh", "--expect-no-changes")

    assert pulumi.inputs() == undisturbed_inputs
    assert declared(inventory(lab)) == undisturbed
    front = deploy.front(lab)
    for model in front.models:
        deploy.ask(front, model=model)


def test_lab_down_leaves_nothing_of_a_running_platform_and_up_resumes_it(site: Site) -> None:
    lab = site.lab
    running = of_lab(lab, machine_state(lab))
    assert set(running) >= {"namespaces", "links", "addresses", "routes", "processes"}
    before = declared(inventory(lab))
    down.take_down(lab, keep_state=True)
    assert of_lab(lab, machine_state(lab)) == {}
    up.bring_up(lab)
    assert declared(inventory(lab)) == before
    front = deploy.front(lab)
    for model in front.models:
        deploy.ask(front, model=model)


def _pods(lab: Lab) -> set[str]:
    """Network namespaces of pods."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.split()
    return {name for name in listed if name.startswith(f"{lab.prefix}-p-")}


def _interrupted(lab: Lab, *, created: int) -> int:
    """`pulumi up` whose engine is killed after so many resources; the plugins must not outlive it for long."""
    return _during_up(lab, created, lambda engine: engine.kill())


def _api_server_dies(lab: Lab, *, created: int) -> None:
    """`pulumi up` during which the API server is killed: it goes on when the server is back, or says what happened."""
    before = _api_server_pid(lab)

    def kill(engine: subprocess.Popen[str]) -> None:
        os.kill(before, signal.SIGKILL)

    _during_up(lab, created, kill)
    assert _api_server_pid(lab) != before


def _api_server_pid(lab: Lab) -> int:
    api_server = next(part for part in controlplane.components(lab) if "apiserver" in part.name)
    deadline = time.monotonic() + 60
    while (pid := api_server.pid()) is None:
        assert time.monotonic() < deadline, "nothing restarted the API server"
        time.sleep(0.2)
    return pid


def _during_up(lab: Lab, created: int, fault: Callable[[subprocess.Popen[str]], None]) -> int:
    engine = subprocess.Popen(
        ["pulumi", *_UP],
        cwd=CHECKOUT,
        env=session.environment(lab),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert engine.stdout is not None
    printed: list[str] = []
    made = 0
    for line in engine.stdout:
        printed.append(line)
        made += " created (" in line
        if made == created:
            fault(engine)
            break
    else:
        pytest.fail("up ended before the fault:\n" + "".join(printed[-30:]))
    printed += engine.stdout.readlines()
    status = engine.wait()
    _wait_for_plugins(engine.pid)
    if status > 0:
        errors = [line for line in printed if "error: " in line]
        assert errors
        assert _AWAY.search("".join(printed)), "".join(errors)
    return made


def _wait_for_plugins(group: int) -> None:
    """The plugins of an engine end soon after it; the language host, which does nothing, looks every five minutes."""
    deadline = time.monotonic() + _PLUGINS_END_WITHIN_S
    while True:
        listed = subprocess.run(
            ["ps", "-o", "stat=,args=", "-g", str(group)], capture_output=True, text=True, check=False
        )
        left = [line for line in listed.stdout.splitlines() if "plugins" in line or "pulumi-resource" in line]
        if not [line for line in left if not line.startswith("Z")]:
            return
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def _by_hand(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    """pulumi in a shell that took the session's environment before."""
    return subprocess.run(
        ["pulumi", *arguments, "--stack", session.STACK],
        cwd=CHECKOUT,
        env=session.environment(lab),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
