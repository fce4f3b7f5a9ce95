"""Replicas over two nodes each: simulators in the groups of a real LeaderWorkerSet, which lose a member.

The lab builds release 0.9; the program installs 0.10, whose fields are the same. No rank joins another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from lab import session
from lab.paths import Lab
from tests.lab.plain_site import plain_text
from tests.lab.site.added_charts import groups_chart
from tests.lab.site.conftest import Platforms
from tests.lab.site.replicas import MODELS, Cluster, Replica, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import KEY, Document, edited_stack
from tests.lab.site.under_load import Load

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("opening 1", "000.02", "002.12")]

MODEL = "glm-5-1"
NODES, GROUPS = 2, 2
ENGINE = "llm-d-inference"
# A stream lasts for seconds, so that some are under way in each group.
STREAM_TOKENS = 200


def site_text() -> str:
    """The plain site with this model alone, on all of its nodes with GPUs."""
    document: dict[str, Any] = yaml.safe_load(plain_text())
    site = document["config"][KEY]
    site["models"] = {MODEL: site["models"][MODEL]}
    site["models"][MODEL]["server"] |= {"nodes": NODES, "replicas": GROUPS, "longest_stream_s": 30}
    for tenant in site["tenants"].values():
        tenant["models"] = [MODEL]
    return yaml.safe_dump(document, sort_keys=False)


@pytest.fixture(scope="module")
def site(platforms: Platforms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    file = tmp_path_factory.mktemp("spans") / "Pulumi.lab.yaml"
    file.write_text(site_text())
    with groups_chart(Lab.from_environment()):
        yield platforms.of("site-spans", site_file=file)
        platforms.end()


@dataclass(frozen=True, kw_only=True)
class Group:
    """One replica: its pod that leads, and those that follow."""

    leader: Replica
    workers: tuple[Replica, ...]

    @property
    def uids(self) -> set[str]:
        return {self.leader.uid, *(worker.uid for worker in self.workers)}

    @property
    def whole(self) -> bool:
        pods = (self.leader, *self.workers)
        return len(pods) == NODES and all(pod.ready and not pod.leaving for pod in pods)


def groups_of(cluster: Cluster) -> dict[str, Group]:
    """By the number of the group, those that have a leader."""
    groups: dict[str, Group] = {}
    for number in map(str, range(GROUPS)):
        label = f"leaderworkerset.sigs.k8s.io/name={MODEL},leaderworkerset.sigs.k8s.io/group-index={number}"
        pods = {pod.name: pod for pod in cluster.pods(MODELS, label)}
        if leader := pods.pop(f"{MODEL}-{number}", None):
            groups[number] = Group(leader=leader, workers=tuple(pods.values()))
    return groups


def whole_groups(cluster: Cluster, but: frozenset[str] = frozenset()) -> dict[str, Group]:
    """All groups, once each is whole and has none of these pods."""

    def all_whole() -> dict[str, Group]:
        groups = groups_of(cluster)
        there = [group for group in groups.values() if group.whole and not group.uids & but]
        return groups if len(there) == GROUPS else {}

    return until(all_whole, what=f"{GROUPS} whole groups of {MODEL}")


def evicted(cluster: Cluster, pod: Replica) -> bool:
    """Whether a drain may take the pod."""
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name=pod.name, namespace=MODELS))
    try:
        cluster.core.create_namespaced_pod_eviction(pod.name, MODELS, eviction)
    except ApiException as refused:
        assert refused.status == 429, refused.body
        return False
    return True


def test_each_replica_is_a_group_on_nodes_of_its_own(cluster: Cluster) -> None:
    groups = whole_groups(cluster)
    pods = [
        cluster.core.read_namespaced_pod(pod.name, MODELS) for g in groups.values() for pod in (g.leader, *g.workers)
    ]
    assert len({pod.spec.node_name for pod in pods if pod.spec}) == GROUPS * NODES


def test_leaders_alone_take_requests(site: Site, cluster: Cluster) -> None:
    groups = whole_groups(cluster)
    assert {replica.name for replica in cluster.replicas(MODEL)} == {group.leader.name for group in groups.values()}
    load = Load(model=MODEL, stream_tokens=STREAM_TOKENS)
    asyncio.run(load.during(site, lambda: until(lambda: len(load.short) >= 20, what="answers")))
    assert not load.failures()
    assert all(group.leader.served() for group in groups.values())
    assert not any(worker.served() for group in groups.values() for worker in group.workers)


@pytest.mark.parametrize("member", ["leader", "worker"])
def test_a_member_that_dies_takes_its_group_alone(site: Site, cluster: Cluster, member: str) -> None:
    """What its leader had begun ends there if the worker died; else the client sees it break."""
    before = whole_groups(cluster)
    lost, other = before["0"], before["1"]
    victim = lost.leader if member == "leader" else lost.workers[0]
    load = Load(model=MODEL, stream_tokens=STREAM_TOKENS)

    def dies() -> None:
        until(lambda: len(load.streams) > 5, what="streams")
        cluster.kill(victim, ENGINE)
        after = whole_groups(cluster, frozenset(lost.uids))
        assert after["1"].uids == other.uids

    asyncio.run(load.during(site, dies))
    if member == "worker":
        assert not load.failures()
    assert [stream for stream in load.streams if stream.status != 200] == []


def test_a_drain_takes_one_group_and_no_second_one_meanwhile(site: Site, cluster: Cluster) -> None:
    before = whole_groups(cluster)
    load = Load(model=MODEL, stream_tokens=STREAM_TOKENS)

    def drained() -> None:
        until(lambda: len(load.streams) > 5, what="streams")
        assert evicted(cluster, before["1"].workers[0])
        until(lambda: not groups_of(cluster)["1"].whole, what="a group that goes")
        assert not evicted(cluster, before["0"].leader)
        assert not evicted(cluster, before["0"].workers[0])
        after = whole_groups(cluster, frozenset(before["1"].uids))
        assert after["0"].uids == before["0"].uids

    asyncio.run(load.during(site, drained))
    assert not load.failures()


def test_the_controller_s_defaults_are_no_change(site: Site) -> None:
    session.run_pulumi(site.lab, "preview", "--expect-no-changes", "--stack", session.STACK)


def test_no_request_fails_while_a_change_replaces_all_groups(
    site: Site, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = frozenset[str]().union(*(group.uids for group in whole_groups(cluster).values()))
    load = Load(model=MODEL, stream_tokens=STREAM_TOKENS)

    def seeded(document: Document) -> None:
        document["models"][MODEL]["server"]["extra_args"] = ["--seed=7"]

    def changed() -> None:
        stack.up(seeded)
        # `up` may end before: the condition that it waits for can still be that of the state before.
        whole_groups(cluster, before)

    with edited_stack(site.lab, tmp_path_factory.mktemp("seeded")) as stack:
        asyncio.run(load.during(site, changed))
    assert not load.failures()
