"""Checks of addons that no lab runs, with faults of each: releases, Pods, Longhorn's disks and copies, addresses."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from components.addons.bgp import bgp_node
from components.addons.registry import chart_namespaces
from components.gateway.certificate import acme_issuer, certificate, private_issuer
from components.specs.acme import AcmeSpec, Rfc2136Spec
from components.specs.bgp import BgpPeerSpec, BgpSpec
from components.specs.certificates import CertificatesSpec
from components.specs.rdma_devices import RdmaDevicesSpec
from components.specs.secrets import RemoteSpec, SecretsSpec, StoreSpec
from floor import namespaces
from stacks.plan.charts import installed_charts
from stacks.plan.site_plan import SitePlan, plan_file
from tests.live import test_live_addons as addons
from tests.live import test_live_isolation as isolation
from tests.live.running import Object, RunningSite
from tests.unit.helm_secrets import helm_secret

pytestmark = pytest.mark.row("opening 5", "C.01", "000.21")

PROD = plan_file(Path(__file__).parents[3] / "Pulumi.prod.yaml")
ADDRESSES = PROD.site.addresses.model_copy(update={"announced_by": "metallb_l2", "pool": ("10.5.0.100-10.5.0.109",)})
PLAN = replace(PROD, site=PROD.site.model_copy(update={"addresses": ADDRESSES}))
LONGHORN, METALLB = "longhorn.io/v1beta2", "metallb.io/v1beta1"
CHARTS = PLAN.versions.charts


@dataclass(frozen=True, kw_only=True)
class Recorded(RunningSite):
    """A site of which a test gives what its API server has: end of the path -> objects."""

    lists: dict[str, list[Object]] = field(default_factory=dict)

    def items(self, path: str, **_: str) -> list[Object]:
        return next((objects for end, objects in self.lists.items() if path.endswith(end)), [])


def recorded(**lists: list[Object]) -> Recorded:
    return Recorded(name="prod", plan=PLAN, endpoint="", keys={}, kubeconfig={}, lists=lists)


def unseen(_: str) -> None:
    """No evidence."""


def release(field_: str, *, version: str = "", status: str = "deployed") -> Object:
    pin = CHARTS[field_]
    chart = pin.chart.rpartition("/")[2]
    return helm_secret(field_, chart_namespaces()[field_], chart, version or pin.version, 2, status)


@pytest.mark.parametrize("chart", installed_charts(PLAN.site))
def test_another_version_a_failed_or_a_missing_release_is_found(chart: str) -> None:
    check = addons.test_the_release_is_deployed_in_its_pinned_version
    check(recorded(secrets=[release(chart)]), unseen, chart)
    with pytest.raises(AssertionError, match=r"is of 0\.0\.9, not of "):
        check(recorded(secrets=[release(chart, version="0.0.9")]), unseen, chart)
    with pytest.raises(AssertionError, match=f"{chart_namespaces()[chart]}/{chart} is failed, revision 2"):
        check(recorded(secrets=[release(chart, status="failed")]), unseen, chart)
    with pytest.raises(AssertionError, match=f"there is no release of {chart}"):
        check(recorded(secrets=[]), unseen, chart)


def test_addons_that_a_site_does_not_install_are_skipped() -> None:
    site = PROD.site.model_copy(update={"addresses": type(ADDRESSES)()})
    bare = replace(recorded(), plan=replace(PROD, site=site))
    with pytest.raises(pytest.skip.Exception, match="does not let the program install metallb"):
        addons.test_metallb_has_the_site_s_pool_and_announces_it(bare, unseen)
    with pytest.raises(pytest.skip.Exception, match="what is in metallb-system"):
        addons.test_an_addon_s_pods_are_ready(bare, unseen, namespaces.ADDRESSES)
    with pytest.raises(pytest.skip.Exception, match="make metallb-system"):
        isolation.test_pods_refuse_what_no_policy_lets_in(bare, unseen, namespaces.ADDRESSES)


def workload(name: str, **status: int) -> Object:
    return {"metadata": {"name": name}, "spec": {"replicas": 2}, "status": status}


def test_pods_that_are_not_ready_are_found() -> None:
    check = addons.test_an_addon_s_pods_are_ready
    daemons = [workload("manager", numberReady=3, desiredNumberScheduled=3), workload("mig", desiredNumberScheduled=0)]
    good = [workload("ui", readyReplicas=2)]
    check(recorded(deployments=good, daemonsets=daemons), unseen, namespaces.STORAGE)
    for wrong, reason in (
        ({"deployments": [workload("ui", readyReplicas=1)]}, "deployment ui: 1 of 2 Ready"),
        ({"daemonsets": [workload("manager", numberReady=2, desiredNumberScheduled=3)]}, "daemonset manager: 2 of 3"),
        ({"deployments": [{**workload("ui"), "spec": {"replicas": 0}}]}, "deployment ui: 0 of 0 Ready"),
    ):
        with pytest.raises(AssertionError, match=reason):
            check(recorded(**wrong), unseen, namespaces.STORAGE)
    with pytest.raises(AssertionError, match="nothing runs in longhorn-system"):
        check(recorded(), unseen, namespaces.STORAGE)


def volume(state: str, robustness: str) -> Object:
    return {"metadata": {"name": "pvc-1"}, "status": {"state": state, "robustness": robustness}}


def test_a_volume_that_lost_a_copy_is_found() -> None:
    check = addons.test_longhorn_s_volumes_have_all_their_copies
    check(recorded(volumes=[volume("attached", "healthy"), volume("detached", "unknown")]), unseen)
    with pytest.raises(AssertionError, match="pvc-1 is degraded"):
        check(recorded(volumes=[volume("attached", "degraded")]), unseen)


def disk(**conditions: str) -> Object:
    stated = [{"type": name, "status": status} for name, status in conditions.items()]
    return {"metadata": {"name": "hgx-1"}, "status": {"diskStatus": {"data-1": {"conditions": stated}}}}


def test_a_disk_that_takes_no_volume_is_found() -> None:
    check = addons.test_longhorn_can_store_on_its_nodes
    check(recorded(nodes=[disk(Ready="True", Schedulable="True")]), unseen)
    with pytest.raises(AssertionError, match="hgx-1: disk data-1 takes no volume"):
        check(recorded(nodes=[disk(Ready="True", Schedulable="False")]), unseen)
    with pytest.raises(AssertionError, match="Longhorn has no disk"):
        check(recorded(nodes=[]), unseen)


def node(name: str, **offers: str) -> Object:
    allocatable = {f"rdma/{resource}": count for resource, count in offers.items()}
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "200", **allocatable}}}


def test_a_node_that_offers_no_rdma_device_is_found() -> None:
    check = addons.test_each_node_with_gpus_offers_its_rdma_devices
    names = [f"hgx-{number}" for number in range(1, 5)]
    good = [node("cp-1"), *(node(name, hca_shared="63") for name in names)]
    check(with_devices(PLAN, nodes=good), unseen)
    for broken, offers in ((node("hgx-4"), 0), (node("hgx-4", hca_shared="0"), 0), (node("hgx-4", fabric="63"), 0)):
        with pytest.raises(AssertionError, match=f"^hgx-4 offers {offers} of 63 rdma/hca_shared"):
            check(with_devices(PLAN, nodes=[*good[:-1], broken]), unseen)
    with pytest.raises(AssertionError, match="hgx-4 offers 0"):
        check(with_devices(PLAN, nodes=good[:-1]), unseen)
    with pytest.raises(pytest.skip.Exception, match="does not let the program install network_operator"):
        check(recorded(nodes=good), unseen)


def test_on_a_cluster_whose_nodes_are_not_listed_one_must_offer_rdma_devices() -> None:
    check = addons.test_each_node_with_gpus_offers_its_rdma_devices
    cluster = PROD.site.cluster.model_copy(update={"machines": None, "kubeconfig": Path("kubeconfig")})
    plan = replace(PROD, site=PROD.site.model_copy(update={"cluster": cluster}))
    check(with_devices(plan, nodes=[node("a"), node("b", hca_shared="63")]), unseen)
    with pytest.raises(AssertionError, match="no node offers rdma/hca_shared"):
        check(with_devices(plan, nodes=[node("a"), node("b", hca_shared="0")]), unseen)


def with_devices(plan: SitePlan, **lists: list[Object]) -> Recorded:
    offered = RdmaDevicesSpec(system="network_operator")
    cluster = plan.site.cluster.model_copy(update={"rdma_devices": offered})
    own = replace(plan, site=plan.site.model_copy(update={"cluster": cluster}))
    return replace(recorded(**lists), plan=own)


POOL: list[Object] = [{"metadata": {"name": "inference-platform"}, "spec": {"addresses": ["10.5.0.100-10.5.0.109"]}}]
ANNOUNCED: list[Object] = [
    {"metadata": {"name": "inference-platform"}, "spec": {"ipAddressPools": ["inference-platform"]}}
]


def test_other_addresses_and_a_pool_that_is_not_announced_are_found() -> None:
    check = addons.test_metallb_has_the_site_s_pool_and_announces_it
    check(recorded(ipaddresspools=POOL, l2advertisements=ANNOUNCED), unseen)
    other: list[Any] = copy.deepcopy(POOL)
    other[0]["spec"]["addresses"] = ["10.5.0.100-10.5.0.200"]
    with pytest.raises(AssertionError, match="ipaddresspools differs in addresses"):
        check(recorded(ipaddresspools=other, l2advertisements=ANNOUNCED), unseen)
    with pytest.raises(AssertionError, match=r"l2advertisements are \[\]"):
        check(recorded(ipaddresspools=POOL), unseen)
    with pytest.raises(AssertionError, match="ipaddresspools are"):
        check(recorded(ipaddresspools=[*POOL, {"metadata": {"name": "x"}, "spec": {}}]), unseen)


BY_BGP = ADDRESSES.model_copy(
    update={
        "announced_by": "cilium_bgp",
        "pool": ("10.7.0.0/28",),
        "bgp": BgpSpec(local_asn=64512, peers={"tor": BgpPeerSpec(address="10.5.0.1", asn=64700)}),
    }
)
BY_BGP_PLAN = replace(PROD, site=PROD.site.model_copy(update={"addresses": BY_BGP}))
BLOCKS: list[Object] = [
    {"metadata": {"name": "inference-platform"}, "spec": {"blocks": [{"start": "10.7.0.0", "stop": "10.7.0.15"}]}}
]
NODES = ("infra-1", "infra-2")


def sessions(state: str = "established", routes: int = 1) -> list[Object]:
    peer = {"name": "tor", "peeringState": state, "routeCount": [{"afi": "ipv4", "advertised": routes}]}
    status = {"bgpInstances": [{"name": "inference-platform", "peers": [peer]}]}
    return [{"metadata": {"name": node}, "status": status} for node in NODES]


def announced_by_bgp(**lists: list[Object]) -> Recorded:
    declared: list[Object] = [bgp_node(node, ["tor"], BY_BGP.bgp) for node in NODES] if BY_BGP.bgp else []
    whole = {
        "ciliumloadbalancerippools": BLOCKS,
        "ciliumbgpclusterconfigs": declared,
        "ciliumbgpnodeconfigs": sessions(),
    }
    return replace(recorded(**whole | lists), plan=BY_BGP_PLAN)


def test_a_session_that_is_not_up_or_announces_nothing_is_found() -> None:
    check = addons.test_each_machine_that_announces_has_its_sessions_and_announces_an_address
    check(announced_by_bgp(), unseen)
    for reason, lists in (
        ("infra-1: the session with tor is active", {"ciliumbgpnodeconfigs": sessions("active")}),
        ("infra-2: the session with tor is unknown", {"ciliumbgpnodeconfigs": sessions()[:1]}),
        ("tor learns no address", {"ciliumbgpnodeconfigs": sessions(routes=0)}),
        ("machines with sessions are \\[\\]", {"ciliumbgpclusterconfigs": []}),
        ("the pools are", {"ciliumloadbalancerippools": []}),
    ):
        with pytest.raises(AssertionError, match=reason):
            check(announced_by_bgp(**lists), unseen)
    other = copy.deepcopy(announced_by_bgp().lists["ciliumbgpclusterconfigs"])
    other[0]["spec"]["bgpInstances"][0]["localASN"] = 1
    with pytest.raises(AssertionError, match="infra-1: its sessions are not those of the site's file"):
        check(announced_by_bgp(ciliumbgpclusterconfigs=other), unseen)
    with pytest.raises(pytest.skip.Exception, match="announces no address by BGP"):
        check(recorded(), unseen)


BY_ACME = CertificatesSpec(
    system="cert_manager",
    names=("llm.site.example",),
    acme=AcmeSpec(
        server="https://acme.site.example/directory",
        rfc2136=Rfc2136Spec(nameserver="10.5.0.2", tsig_key="own", tsig_secret="acme-tsig"),
    ),
)


def state(body: Object, status: str = "True", message: str = "") -> Object:
    return {**body, "status": {"conditions": [{"type": "Ready", "status": status, "message": message}]}}


def certified(spec: CertificatesSpec = BY_ACME, **lists: list[Object]) -> Recorded:
    asked, issuer = certificate("gateway", "inference-tls", spec), private_issuer("gateway", "site-ca")
    issuer = acme_issuer("gateway", spec.acme) if spec.acme else issuer
    healthy = {"certificates": [state(asked)], "issuers": [state(issuer)]}
    plan = replace(PROD, site=PROD.site.model_copy(update={"certificates": spec}))
    return replace(recorded(**healthy | lists), plan=plan)


def test_a_certificate_of_another_issuer_or_one_that_cannot_be_renewed_is_found() -> None:
    check = addons.test_the_gateway_s_certificate_is_issued_by_whom_the_site_names
    check(certified(), unseen)
    check(certified(PROD.site.certificates), unseen)
    others = BY_ACME.model_copy(update={"acme": None, "cluster_issuer": "others"})
    check(certified(others, issuers=[]), unseen)
    own = PROD.site.certificates
    assert BY_ACME.acme
    elsewhere = acme_issuer("gateway", BY_ACME.acme.model_copy(update={"server": "https://staging.example"}))
    lost = state(acme_issuer("gateway", BY_ACME.acme), "False", "account is gone")
    for reason, lists in (
        (
            "the Certificate differs in dnsNames, issuerRef",
            {"certificates": [state(certificate("gateway", "inference-tls", own))]},
        ),
        ("there is no Certificate inference", {"certificates": []}),
        ("there is no Issuer inference-acme", {"issuers": []}),
        ("the Issuer asks https://staging.example", {"issuers": [state(elsewhere)]}),
        ("Issuer: False : account is gone", {"issuers": [lost]}),
    ):
        with pytest.raises(AssertionError, match=reason):
            check(certified(**lists), unseen)
    with pytest.raises(pytest.skip.Exception, match="lets no cert-manager make the certificate"):
        check(certified(CertificatesSpec()), unseen)


def test_a_secret_that_is_not_refreshed_is_found() -> None:
    check = addons.test_each_secret_of_the_store_is_there_and_refreshed
    with pytest.raises(pytest.skip.Exception, match="lets no store fill a Secret"):
        check(recorded(), unseen)
    remote = {"hub-token": RemoteSpec(key="hub")}
    secrets = SecretsSpec(system="external", store=StoreSpec(existing="own"), remote=remote)
    plan = replace(PROD, site=PROD.site.model_copy(update={"secrets": secrets}))

    def seen_by(*conditions: Object) -> Recorded:
        body = {"metadata": {"name": "hub-token"}, "status": {"conditions": list(conditions)}}
        return replace(recorded(**{"inference-models/externalsecrets": [body]}), plan=plan)

    check(seen_by({"type": "Ready", "status": "True"}), unseen)
    refused = {"type": "Ready", "status": "False", "reason": "SecretSyncedError", "message": "no such entry"}
    with pytest.raises(AssertionError, match="inference-models/hub-token: False SecretSyncedError: no such entry"):
        check(seen_by(refused), unseen)
    with pytest.raises(AssertionError, match="it is not there"):
        check(replace(recorded(), plan=plan), unseen)
