"""Programs of others that the site lets the program install: their releases, their Pods, and what they must offer."""

from __future__ import annotations

import pytest

from components.addons.bgp import bgp_node
from components.addons.load_balancer_addresses import address_pool as cilium_pool
from components.addons.metallb import address_pool, advertisement
from components.addons.rdma_devices import resource_name
from components.addons.registry import chart_namespaces
from components.gateway.certificate import acme_issuer, certificate
from floor import namespaces
from floor.address_ranges import read_range
from sitectl.live.helm_releases import SECRET_TYPE, releases
from sitectl.live.running_versions import platform_releases
from stacks.facts import versions
from stacks.plan.announcing import bgp_sessions
from stacks.plan.charts import installed_charts
from stacks.plan.placing import nodes_of
from stacks.plan.remote_secrets import remote_secrets
from stacks.program.platform import GATEWAY_NAMESPACE
from tests.live.conftest import Seen
from tests.live.running import Object, RunningSite

_WORKLOADS = ("deployments", "daemonsets", "statefulsets")
_METALLB = f"/apis/metallb.io/v1beta1/namespaces/{namespaces.ADDRESSES}"
_CILIUM = "/apis/cilium.io/v2"
_LONGHORN = f"/apis/longhorn.io/v1beta2/namespaces/{namespaces.STORAGE}"


def _need(site: RunningSite, chart: str) -> None:
    if chart not in installed_charts(site.plan.site):
        pytest.skip(f"the site's file does not let the program install {chart}")


@pytest.mark.row("C.01", "000.30")
@pytest.mark.parametrize("chart", versions.load().charts)
def test_the_release_is_deployed_in_its_pinned_version(site: RunningSite, seen: Seen, chart: str) -> None:
    _need(site, chart)
    secrets = site.items(f"/api/v1/namespaces/{chart_namespaces()[chart]}/secrets", fieldSelector=f"type={SECRET_TYPE}")
    release = platform_releases(releases(secrets), site.plan.site, site.plan.versions).get(chart)
    wanted = site.plan.versions.charts[chart].version
    assert release is not None, f"there is no release of {chart} in {chart_namespaces()[chart]}"
    newest = release.newest
    seen(f"{release.label}: {newest.chart} {newest.chart_version}, revision {newest.number}, {newest.status}")
    assert release.in_order, f"{release.label} is {newest.status}, revision {newest.number}"
    got = newest.chart_version.removeprefix("v")
    assert got == wanted.removeprefix("v"), f"{release.label} is of {newest.chart_version}, not of {wanted}"


@pytest.mark.row("C.01", "000.30")
@pytest.mark.parametrize("namespace", sorted(set(chart_namespaces().values())))
def test_an_addon_s_pods_are_ready(site: RunningSite, seen: Seen, namespace: str) -> None:
    if namespace not in {chart_namespaces()[chart] for chart in installed_charts(site.plan.site)}:
        pytest.skip(f"the site's file does not let the program install what is in {namespace}")
    counted = {
        f"{kind.removesuffix('s')} {body['metadata']['name']}": _ready_of(kind, body)
        for kind in _WORKLOADS
        for body in site.items(f"/apis/apps/v1/namespaces/{namespace}/{kind}")
    }
    for name, (ready, wanted) in counted.items():
        seen(f"{name}: {ready} of {wanted} Ready")
    assert counted, f"nothing runs in {namespace}"
    # A DaemonSet for a kind of node that the site does not have wants no Pod.
    wrong = [
        f"{name}: {ready} of {wanted} Ready"
        for name, (ready, wanted) in counted.items()
        if ready != wanted or not (wanted or name.startswith("daemonset"))
    ]
    assert not wrong, "; ".join(wrong)


def _ready_of(kind: str, body: Object) -> tuple[int, int]:
    status = body.get("status", {})
    if kind == "daemonsets":
        return status.get("numberReady", 0), status.get("desiredNumberScheduled", 0)
    return status.get("readyReplicas", 0), body["spec"].get("replicas", 1)


@pytest.mark.row("000.21")
def test_longhorn_s_volumes_have_all_their_copies(site: RunningSite, seen: Seen) -> None:
    """Those that are attached: of others, no copy is looked after."""
    _need(site, "longhorn")
    wrong = []
    for volume in site.items(f"{_LONGHORN}/volumes"):
        name, status = volume["metadata"]["name"], volume.get("status", {})
        seen(f"{name}: {status.get('state')}, {status.get('robustness')}")
        if status.get("state") == "attached" and status.get("robustness") != "healthy":
            wrong.append(f"{name} is {status.get('robustness')}")
    assert not wrong, "; ".join(wrong)


@pytest.mark.row("000.21")
def test_longhorn_can_store_on_its_nodes(site: RunningSite, seen: Seen) -> None:
    _need(site, "longhorn")
    wrong, disks = [], 0
    for node in site.items(f"{_LONGHORN}/nodes"):
        name, status = node["metadata"]["name"], node.get("status", {})
        for disk, of_disk in (status.get("diskStatus") or {}).items():
            conditions = {of["type"]: of["status"] for of in of_disk.get("conditions") or ()}
            seen(f"{name} {disk}: {conditions}")
            disks += 1
            if conditions.get("Ready") != "True" or conditions.get("Schedulable") != "True":
                wrong.append(f"{name}: disk {disk} takes no volume: {conditions}")
    assert disks, "Longhorn has no disk"
    assert not wrong, "; ".join(wrong)


@pytest.mark.row("C.01")
def test_each_node_with_gpus_offers_its_rdma_devices(site: RunningSite, seen: Seen) -> None:
    _need(site, "network_operator")
    spec = site.plan.site.cluster.rdma_devices
    offers = {
        node["metadata"]["name"]: int(node["status"]["allocatable"].get(resource_name(spec), 0))
        for node in site.items("/api/v1/nodes")
    }
    listed = nodes_of(site.plan.site)
    names = [node.name for node in listed] if listed is not None else [name for name, count in offers.items() if count]
    wrong = []
    for name in names:
        seen(f"{name}: {offers.get(name, 0)} of {spec.pods_per_node} pods may have {resource_name(spec)}")
        if offers.get(name) != spec.pods_per_node:
            wrong.append(f"{name} offers {offers.get(name, 0)} of {spec.pods_per_node} {resource_name(spec)}")
    assert names, f"no node offers {resource_name(spec)}"
    assert not wrong, "; ".join(wrong)


@pytest.mark.row("C.01")
def test_metallb_has_the_site_s_pool_and_announces_it(site: RunningSite, seen: Seen) -> None:
    _need(site, "metallb")
    ranges = [block for text in site.plan.site.addresses.pool if (block := read_range(text))]
    for kind, wanted in (("ipaddresspools", address_pool(ranges)), ("l2advertisements", advertisement())):
        specs = {body["metadata"]["name"]: body["spec"] for body in site.items(f"{_METALLB}/{kind}")}
        name = wanted["metadata"]["name"]
        seen(f"{kind}: {specs}")
        assert specs.keys() == {name}, f"{kind} are {sorted(specs)}, the site has {name} alone"
        differing = [key for key, value in wanted["spec"].items() if specs[name].get(key) != value]
        assert not differing, f"{name} of {kind} differs in {', '.join(differing)}: {specs[name]}"


@pytest.mark.row("C.01")
def test_each_machine_that_announces_has_its_sessions_and_announces_an_address(site: RunningSite, seen: Seen) -> None:
    """As Cilium reports them, each of its own machine."""
    bgp = site.plan.site.addresses.bgp
    if bgp is None:
        pytest.skip("the site's file announces no address by BGP")
    wanted = bgp_sessions(site.plan.site)
    pools = {body["metadata"]["name"]: body["spec"] for body in site.items(f"{_CILIUM}/ciliumloadbalancerippools")}
    blocks = cilium_pool([block for text in site.plan.site.addresses.pool if (block := read_range(text))])["spec"]
    assert [spec.get("blocks") for spec in pools.values()] == [blocks["blocks"]], f"the pools are {pools}"
    declared = {body["metadata"]["name"]: body["spec"] for body in site.items(f"{_CILIUM}/ciliumbgpclusterconfigs")}
    assert declared.keys() == wanted.keys(), f"machines with sessions are {sorted(declared)}, not {sorted(wanted)}"
    states = {body["metadata"]["name"]: _sessions(body) for body in site.items(f"{_CILIUM}/ciliumbgpnodeconfigs")}
    seen(f"sessions: {states}")
    wrong, announced = [], set[str]()
    for node, peers in wanted.items():
        if declared[node] != bgp_node(node, peers, bgp)["spec"]:
            wrong.append(f"{node}: its sessions are not those of the site's file")
        for peer in peers:
            state, routes = states.get(node, {}).get(peer, ("unknown", 0))
            if state != "established":
                wrong.append(f"{node}: the session with {peer} is {state}")
            elif routes:
                announced.add(peer)
    wrong += [f"{peer} learns no address" for peer in sorted(set(bgp.peers) - announced)]
    assert not wrong, "; ".join(wrong)


def _sessions(body: Object) -> dict[str, tuple[str, int]]:
    """State and announced routes by peer."""
    instances = (body.get("status") or {}).get("bgpInstances") or []
    return {
        peer["name"]: (
            str(peer.get("peeringState", "unknown")),
            sum(int(count.get("advertised", 0)) for count in peer.get("routeCount") or ()),
        )
        for instance in instances
        for peer in instance.get("peers") or ()
    }


@pytest.mark.row("C.01")
def test_each_secret_of_the_store_is_there_and_refreshed(site: RunningSite, seen: Seen) -> None:
    """By external-secrets' own words: what it could not read again, it leaves as it was."""
    wanted = remote_secrets(site.plan.site)
    if not wanted:
        pytest.skip("the site's file lets no store fill a Secret")
    wrong = []
    for secret in wanted:
        path = f"/apis/external-secrets.io/v1/namespaces/{secret.namespace}/externalsecrets"
        filling = {body["metadata"]["name"]: body for body in site.items(path)}
        state = _condition(filling[secret.name], "Ready") if secret.name in filling else "unknown : it is not there"
        seen(f"{secret.namespace}/{secret.name}: {state}")
        if not state.startswith("True"):
            wrong.append(f"{secret.namespace}/{secret.name}: {state}")
    assert not wrong, "; ".join(wrong)


@pytest.mark.row("C.01")
def test_the_gateway_s_certificate_is_issued_by_whom_the_site_names(site: RunningSite, seen: Seen) -> None:
    """And can be renewed: an issuer that lost its account or its CA shows it before the certificate ends."""
    made, secret = site.plan.site.certificates, site.plan.site.gateway.certificate_secret
    if made.system == "none" or secret is None:
        pytest.skip("the site's file lets no cert-manager make the certificate")
    space = f"/apis/cert-manager.io/v1/namespaces/{GATEWAY_NAMESPACE}"
    wanted = certificate(GATEWAY_NAMESPACE, secret, made)
    certificates = {body["metadata"]["name"]: body for body in site.items(f"{space}/certificates")}
    name = wanted["metadata"]["name"]
    assert name in certificates, f"there is no Certificate {name}"
    differing = [key for key, value in wanted["spec"].items() if certificates[name]["spec"].get(key) != value]
    assert not differing, f"the Certificate differs in {', '.join(differing)}: {certificates[name]['spec']}"
    issuers = {"Certificate": certificates[name]}
    if made.cluster_issuer is None:
        own = acme_issuer(GATEWAY_NAMESPACE, made.acme) if made.acme else None
        issuer = wanted["spec"]["issuerRef"]["name"]
        known = {body["metadata"]["name"]: body for body in site.items(f"{space}/issuers")}
        assert issuer in known, f"there is no Issuer {issuer}"
        asked = (known[issuer]["spec"].get("acme") or {}).get("server")
        assert own is None or asked == own["spec"]["acme"]["server"], f"the Issuer asks {asked}"
        issuers["Issuer"] = known[issuer]
    states = {kind: _condition(body, "Ready") for kind, body in issuers.items()}
    seen(f"{name}: {states}")
    unready = [f"{kind}: {state}" for kind, state in states.items() if not state.startswith("True")]
    assert not unready, "; ".join(unready)


def _condition(body: Object, kind: str) -> str:
    """Status of a condition, with its reason and message."""
    conditions = (body.get("status") or {}).get("conditions") or []
    held: Object = next((condition for condition in conditions if condition["type"] == kind), {})
    return f"{held.get('status', 'unknown')} {held.get('reason', '')}: {held.get('message', '')}"
