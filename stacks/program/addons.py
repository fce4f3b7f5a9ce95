"""Declares a site's addons, each only where the site lets the program install it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import pulumi

from components.addons import registry
from components.addons.addon import Addon, AddonComponent, AddonRelease, AddonSite, Gives, Measuring, Offer
from components.addons.charts import Chart, chart_of
from components.addons.etcd_backup import EtcdBackup, EtcdBackupArgs
from components.addons.installed import InstalledAddon
from components.addons.load_balancer_addresses import BgpSessions, LoadBalancerAddresses, LoadBalancerAddressesArgs
from components.gateway.gateway_controllers import ai_gateway_values, envoy_gateway_values
from components.machines.administrators import Administrators
from components.machines.pod_network import PodNetwork, PodNetworkArgs
from components.monitoring import prometheus
from components.monitoring.dashboard_config_maps import dashboard_config_maps
from components.monitoring.monitoring import scrapers
from components.network_policies import peer
from floor import namespaces
from floor.address_ranges import read_ranges
from stacks.facts import chart_values
from stacks.plan.announcing import bgp_sessions
from stacks.plan.charts import installed_charts
from stacks.plan.disks import disks_of
from stacks.plan.logs import log_volume_class
from stacks.plan.machine_documents import merged_keys
from stacks.plan.node_taints import gpu_node_taints, node_taints
from stacks.plan.placing import cuts_gpus, nodes_of, resource_of
from stacks.plan.site_plan import SitePlan
from stacks.plan.volume_nodes import storing_nodes
from stacks.program.parts import PartDone, PartStep, SitePart, group
from stacks.program.remote_secrets import SecretSource, declare_source
from stacks.program.tenants import limit_service_of
from stacks.site.model import SiteConfig


class ChartValuesError(pulumi.RunError):
    """Values that a chart would not read."""


def charts_of(plan: SitePlan) -> dict[str, Chart]:
    """The charts that the program installs on this site, by their names in versions.yaml."""
    pins = {name: plan.versions.charts[name] for name in installed_charts(plan.site)}
    mirror = plan.site.charts.mirror
    return {name: chart_of(pin.chart, pin.version, mirror, pin.repository) for name, pin in pins.items()}


def check_values(plan: SitePlan, charts: Mapping[str, Chart]) -> None:
    """Every value of a chart is one that the chart documents. Raises ChartValuesError with all others."""
    values = values_of(plan, charts)
    unread = [text for name, given in values.items() for text in chart_values.load(name).unread(given)]
    if unread:
        fix = "correct the builder in components/addons or components/gateway, or the chart's file in "
        fix += "stacks/facts/chart_values"
        raise ChartValuesError("\n  ".join(["values that no chart reads:", *unread, f"fix: {fix}"]))


def values_of(plan: SitePlan, charts: Mapping[str, Chart]) -> dict[str, Mapping[str, Any]]:
    """The values of every chart that the program installs on this site, by the charts' names in versions.yaml."""
    site = plan.site
    values: dict[str, Mapping[str, Any]] = {}
    if site.gateway.controllers == "chart":
        rotation, measured = site.gateway.webhook_certificate_rotation, bool(scrapers(site.monitoring))
        values["envoy_gateway"] = envoy_gateway_values(plan.dns_domain, limit_service_of(plan))
        values["ai_gateway"] = ai_gateway_values(rotation, "the seed is in the state", measured=measured)
    return values | {name: release.values for name, release in releases_of(plan, charts).items()}


def releases_of(plan: SitePlan, charts: Mapping[str, Chart]) -> dict[str, AddonRelease]:
    """The releases of the site's addons, by their charts' names in versions.yaml."""
    releases: dict[str, AddonRelease] = {}
    for addon in registry.installed(plan.site):
        if addon.component is not None:
            names = {chart.release: chart.name for known in registry.ADDONS for chart in known.charts}
            made = addon.component.content(addon_site(plan, addon, charts)).releases
            releases |= {names[release.name]: release for release in made}
    return releases


def addon_site(plan: SitePlan, addon: Addon, charts: Mapping[str, Chart]) -> AddonSite:
    """What this addon may know of the site."""
    site = plan.site
    machines = site.cluster.machines
    hgx = machines.hgx if machines else None
    return AddonSite(
        charts=charts,
        name=site.name,
        section=registry.at(site, addon.section),
        images=dict(plan.versions.images),
        taints=node_taints(site),
        gpu_taints=gpu_node_taints(site),
        watched=site.has_watcher,
        offers={node.name: Offer(resource=resource_of(node.gpu), count=node.gpus) for node in nodes_of(site) or ()},
        cuts_gpus=cuts_gpus(site),
        dead_nodes=nodes_of(site) != nodes_of(site, dead=True),
        disks=_disk_names(site),
        engine=hgx.storage.engine if hgx and hgx.storage else "v1",
        link=None if hgx is None or hgx.rdma == "none" else hgx.rdma,
        storage_class=site.storage.storage_class,
        keeping=site.storage.volumes,
        **_volume(site, addon),
        scrapers=scrapers(site.monitoring),
        measuring=_measuring(site) if site.monitoring.system == "prometheus_operator" else None,
        administrators=machines.administrators if machines else None,
        trusted_roots=machines.trusted_roots if machines else {},
    )


def _volume(site: SiteConfig, addon: Addon) -> dict[str, Any]:
    """Class and nodes of the only volume that an addon keeps data on."""
    named = log_volume_class(site) if addon.section == "logs" else None
    return {"volume_class": named, "placing": storing_nodes(site, named)} if named else {}


def _measuring(site: SiteConfig) -> Measuring:
    shown = dashboard_config_maps(namespaces.MONITORING, hosts=site.measures_hosts)
    return Measuring(
        prometheus=prometheus.ADDRESS,
        pods=peer(prometheus.LABELS),
        port=prometheus.PORT,
        interval_s=prometheus.INTERVAL_S,
        dashboards=[body["metadata"]["name"] for body in shown.values()],
    )


def _disk_names(site: SiteConfig) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for disk in disks_of(site) or ():
        names.setdefault(disk.node, []).append(disk.name)
    return names


def addon_parts(plan: SitePlan) -> list[SitePart]:
    """What a site does not have already, each where the site lets the program install it."""
    installed = [(addon, addon.component) for addon in registry.installed(plan.site) if addon.component]
    keys = {addon.key for addon, _ in installed}
    given: dict[Gives, list[str]] = {kind: [] for kind in get_args(Gives)}
    for addon, own in installed:
        if own.gives:
            given[own.gives].append(addon.key)
    given["addresses"].append("cilium-addresses")
    return [
        *(_addon_part(addon, own, keys) for addon, own in installed),
        *(group(kind, members) for kind, members in given.items()),
        SitePart("secret-store", _secret_store, ("secrets",)),
        SitePart("etcd-backup", _etcd_backup, ("secret-store",)),
        SitePart("administrators", _administrators),
        # Nothing waits for them: Longhorn reads them once it writes a backup.
        filled("storage-secrets", namespaces.STORAGE, "hardware"),
        SitePart("pod-network", _pod_network),
        filled("bgp-passwords", namespaces.BGP_SECRETS, "pod-network"),
        SitePart("cilium-addresses", _cilium_addresses, ("pod-network", "bgp-passwords")),
    ]


def _addon_part(addon: Addon, own: AddonComponent, installed: set[str]) -> SitePart:
    def declare(step: PartStep) -> PartDone:
        about = addon_site(step.on.plan, addon, step.on.charts)
        filled = step.handle("secret-store", SecretSource).bodies(addon.namespace) if own.reads_secrets else ()
        return PartDone(ready=InstalledAddon(addon, about, step.ready(), step.on.opts, filled).ready)

    elsewhere = {other.key for other in registry.ADDONS} - installed
    needs = (*own.needs, *(("secret-store",) if own.reads_secrets else ()))
    return SitePart(addon.key, declare, tuple(need for need in needs if need not in elsewhere))


def filled(name: str, namespace: str | None, *after: str) -> SitePart:
    """Secrets of this namespace, None for that of the models, out of the site's store."""

    def declare(step: PartStep) -> PartDone:
        source = step.handle("secret-store", SecretSource)
        return PartDone(ready=source.fill(namespace or step.on.models_namespace, step.ready(*after) if after else ()))

    return SitePart(name, declare, ("secret-store", *after))


def _secret_store(step: PartStep) -> PartDone:
    source = declare_source(step.on.plan.site, step.ready(), step.on.opts)
    return PartDone(ready=source.store.ready, handle=source)


def _etcd_backup(step: PartStep) -> PartDone:
    site = step.on.plan.site
    if not (site.cluster.machines and site.cluster.machines.etcd_backup):
        return PartDone()
    args = EtcdBackupArgs(
        spec=site.cluster.machines.etcd_backup,
        site=site.name,
        image=step.on.plan.versions.images.talos_backup,
        filled=step.handle("secret-store", SecretSource).bodies(namespaces.ETCD_BACKUP),
        needs=step.ready(),
    )
    return PartDone(ready=EtcdBackup("etcd-backup", args, step.on.opts).handle.ready)


def _administrators(step: PartStep) -> PartDone:
    machines = step.on.plan.site.cluster.machines
    if machines is not None and machines.administrators:
        Administrators("administrators", machines.administrators.groups, step.on.opts)
    return PartDone()


def _pod_network(step: PartStep) -> PartDone:
    """Cilium's objects, where the program changes what the machines made."""
    cluster, machines = step.on.cluster, step.on.plan.site.cluster.machines
    if not cluster.pod_network or cluster.kubeconfig is None or machines is None:
        return PartDone()
    # Cilium's operator tolerates control planes, and no taint of a site.
    for_operators = [
        node
        for node in machines.nodes.values()
        if node.role != "hgx" and not node.dead and not merged_keys(machines, node).taints
    ]
    args = PodNetworkArgs(
        objects=cluster.pod_network,
        kubeconfig=cluster.kubeconfig,
        nodes=len(machines.nodes),
        operators_fit=len(for_operators) > 1,
        needs=cluster.ready,
    )
    return PartDone(ready=PodNetwork("pod-network", args, step.on.opts).handle.ready)


def _cilium_addresses(step: PartStep) -> PartDone:
    """Those that the machine configs' own Cilium assigns."""
    site = step.on.plan.site
    machines, addresses = site.cluster.machines, site.addresses
    if machines is None or addresses.announced_by not in ("cilium_l2", "cilium_bgp"):
        return PartDone()
    ranges = read_ranges(addresses.pool)
    if addresses.bgp is not None:
        sessions = BgpSessions(bgp=addresses.bgp, nodes=bgp_sessions(site))
        args = LoadBalancerAddressesArgs(ranges=ranges, by_bgp=sessions, needs=step.ready())
    else:
        planes_alone = all(node.role == "controlplane" for node in machines.nodes.values())
        args = LoadBalancerAddressesArgs(ranges=ranges, planes_too=planes_alone, needs=step.ready())
    return PartDone(ready=LoadBalancerAddresses("load-balancer-addresses", args, step.on.opts).handle.ready)
