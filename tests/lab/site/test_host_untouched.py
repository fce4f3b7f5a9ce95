"""What a running lab changes on the machine that carries it: one link and one route, and nothing else."""

from __future__ import annotations

import contextlib
import pwd
import re
from pathlib import Path

import pytest
import testinfra
from testinfra.host import Host

from lab import session
from lab.cluster import processes
from lab.runner.container import RUN_MARK, pod_mark
from tests.lab.site.running_site import Site


@pytest.fixture(scope="module")
def host() -> Host:
    return testinfra.get_host("local://")


def test_control_plane_listens_in_the_labs_namespace_alone(site: Site, host: Host) -> None:
    lab = site.lab
    ours = set(host.check_output(f"ip netns pids {lab.namespace}").split())
    listening = set(re.findall(r"pid=(\d+)", host.check_output("ss -H -l -t -n -p")))
    inside = set(re.findall(r"pid=(\d+)", host.check_output(f"ip netns exec {lab.namespace} ss -H -l -t -n -p")))
    assert len(inside & ours) >= 5
    assert not listening & ours


def test_host_has_no_rule_of_the_labs_services(site: Site, host: Host) -> None:
    lab = site.lab
    assert str(lab.network.base).rpartition(".")[0] not in host.check_output("iptables-save 2>/dev/null || true")
    assert "KUBE-SERVICES" in host.check_output(f"ip netns exec {lab.namespace} iptables-save")


def test_host_has_one_route_to_the_lab(site: Site, host: Host) -> None:
    lab = site.lab
    routes = host.check_output("ip -4 route show table all").splitlines()
    assert [line for line in routes if line.startswith(f"{lab.network.whole} ")]
    ours = [line for line in routes if lab.prefix in line and " table local" not in line]
    assert len(ours) <= 2, ours  # the lab's range, and the uplink's own /30


def test_kubeconfig_and_state_are_the_owners_alone(site: Site, host: Host) -> None:
    lab = site.lab
    session.prepare(lab)
    assert host.check_output("stat -c %%a %s", str(lab.kubeconfig)) == "600"
    assert host.check_output("stat -c %%a %s", str(lab.pulumi)) == "700"


def test_no_program_of_a_pod_runs_as_a_user_of_the_host(site: Site) -> None:
    """Who has its number reads its tokens in /proc/PID/root. Root reads them anyway."""
    ours = [pid for pid, value in processes.variables(RUN_MARK).items() if value.startswith(pod_mark(site.lab))]
    users = set()
    for pid in ours:
        with contextlib.suppress(FileNotFoundError):
            users.add(Path(f"/proc/{pid}").stat().st_uid)
    assert len(users) > 1, "the programs of pods"
    assert users & {user.pw_uid for user in pwd.getpwall()} <= {0}
