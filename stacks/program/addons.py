"""Declares a site's addons, each only where the site lets the program install it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from components.addons.addon import AddonRelease
from components.addons.cert_manager import CertManager, CertManagerArgs, cert_manager_release
from components.addons.charts import Chart, chart_of
from components.addons.etcd_backup import EtcdBackup, EtcdBackupArgs
from components.addons.external_secrets import external_secrets_release
from components.addons.gpu_stack import GpuStack, GpuStackArgs, Offer, gpu_releases
from components.addons.load_balancer_addresses import BgpSessions, LoadBalancerAddresses, LoadBalancerAddressesArgs
from components.addons.longhorn import Longhorn, LonghornArgs, longhorn_release
from components.addons.metallb import MetalLb, MetalLbArgs, metallb_release
from components.addons.rdma_devices import RdmaDevices, RdmaDevicesArgs, network_operator_release
from components.gateway.gateway_controllers import ai_gateway_values, envoy_gateway_values
from components.monitoring.monitoring import scrapers
from floor import namespaces
from floor.address_ranges import AddressRange, read_range
from stacks.facts import chart_values
from stacks.plan.announcing import bgp_sessions
from stacks.plan.charts import installed_charts
from stacks.plan.disks import disks_of
from stacks.plan.node_taints import gpu_node_taints, node_taints
from stacks.plan.placing import cuts_gpus, nodes_of, resource_of
from stacks.plan.site_plan import SitePlan
from stacks.program.parts import PartDone, PartStep, SitePart, group
from stacks.program.remote_secrets import SecretSource, declare_source, external_secrets_args
from stacks.program.tenants import limit_service_of
from stacks.site.model import SiteConfig


class ChartValuesError(pulumi.RunError):
    """Values that a chart would not read."""


def charts_of(plan: SitePlan) -> dict[str, Chart]:
    """The charts that the program installs on this site, by their names in versions.yaml."""
    pins = {name: plan.versions.charts.pinned(name) for name in installed_charts(plan.site)}
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
    site, releases = plan.site, list[AddonRelease]()
    if site.cluster.gpu_stack != "external":
        releases += gpu_releases(site.cluster.gpu_stack, charts, gpu_node_taints(site), cuts=cuts_gpus(site))
    if site.cluster.rdma_devices.system == "network_operator":
        releases.append(network_operator_release(charts["network_operator"]))
    if site.storage.system == "longhorn":
        releases.append(longhorn_release(_longhorn(site, charts["longhorn"])))
    if site.certificates.system == "cert_manager":
        releases.append(cert_manager_release(_cert_manager(site, charts["cert_manager"])))
    if site.secrets.system == "external_secrets":
        releases.append(external_secrets_release(external_secrets_args(site, charts["external_secrets"])))
    if site.addresses.announced_by == "metallb_l2":
        releases.append(metallb_release(_metallb(site, charts["metallb"])))
    names = {chart.chart: name for name, chart in charts.items()}
    return {names[release.chart.chart]: release for release in releases}


def _rdma_devices(plan: SitePlan, chart: Chart, gpus: Sequence[pulumi.Resource]) -> RdmaDevicesArgs:
    site = plan.site
    rdma = site.cluster.machines.hgx.rdma if site.cluster.machines else "none"
    return RdmaDevicesArgs(
        spec=site.cluster.rdma_devices,
        chart=chart,
        image=plan.versions.images.rdma_device_plugin,
        link=None if rdma == "none" else rdma,
        taints=gpu_node_taints(site),
        waits=nodes_of(site) == nodes_of(site, dead=True),
        needs=[*gpus],
    )


def _longhorn(site: SiteConfig, chart: Chart) -> LonghornArgs:
    storage = site.cluster.machines.hgx.storage if site.cluster.machines else None
    return LonghornArgs(
        spec=site.storage.longhorn,
        chart=chart,
        engine=storage.engine if storage else "v1",
        taints=gpu_node_taints(site),
        nodes=_disk_names(site),
        storage_class=site.storage.storage_class,
        keeping=site.storage.volumes,
    )


def _cert_manager(site: SiteConfig, chart: Chart, definitions: Sequence[pulumi.Resource] = ()) -> CertManagerArgs:
    acme = site.certificates.acme
    return CertManagerArgs(
        chart=chart,
        needs=definitions,
        scrapers=scrapers(site.monitoring),
        resolvers=acme.resolvers if acme else (),
    )


def _disk_names(site: SiteConfig) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for disk in disks_of(site) or ():
        names.setdefault(disk.node, []).append(disk.name)
    return names


def addon_parts(plan: SitePlan) -> list[SitePart]:
    """What a site does not have already, each where the site lets the program install it."""
    site = plan.site
    return [
        SitePart("gpu-stack", _gpu_stack),
        # No model waits for them.
        SitePart("rdma-devices", _declare_rdma_devices, ("gpu-stack",)),
        SitePart("storage", _storage),
        group("hardware", ("gpu-stack", "storage")),
        SitePart("certificates", _certificates, ("crds",)),
        SitePart("secret-store", lambda step: _secret_store(declare_source(site, step.on.charts, step.on.opts))),
        SitePart("etcd-backup", _etcd_backup, ("secret-store",)),
        # Nothing waits for them: Longhorn reads them once it writes a backup.
        _filled("storage-secrets", namespaces.STORAGE, "hardware"),
        _filled("bgp-passwords", namespaces.BGP_SECRETS),
        SitePart("addresses", _addresses, ("bgp-passwords",)),
    ]


def _filled(name: str, namespace: str, *after: str) -> SitePart:
    def declare(step: PartStep) -> PartDone:
        source = step.handle("secret-store", SecretSource)
        return PartDone(ready=source.fill(namespace, step.ready(*after) if after else ()))

    return SitePart(name, declare, ("secret-store", *after))


def _secret_store(source: SecretSource) -> PartDone:
    return PartDone(ready=source.store.ready, handle=source)


def _gpu_stack(step: PartStep) -> PartDone:
    site = step.on.plan.site
    if site.cluster.gpu_stack == "external":
        return PartDone()
    args = GpuStackArgs(
        stack=site.cluster.gpu_stack,
        charts=step.on.charts,
        taints=gpu_node_taints(site),
        nodes={node.name: Offer(resource=resource_of(node.gpu), count=node.gpus) for node in nodes_of(site) or ()},
        cuts=cuts_gpus(site),
    )
    return PartDone(ready=GpuStack("gpu-stack", args, step.on.opts).handle.ready)


def _declare_rdma_devices(step: PartStep) -> PartDone:
    if step.on.plan.site.cluster.rdma_devices.system == "network_operator":
        RdmaDevices(
            "rdma-devices", _rdma_devices(step.on.plan, step.on.charts["network_operator"], step.ready()), step.on.opts
        )
    return PartDone()


def _storage(step: PartStep) -> PartDone:
    if step.on.plan.site.storage.system != "longhorn":
        return PartDone()
    return PartDone(
        ready=Longhorn("storage", _longhorn(step.on.plan.site, step.on.charts["longhorn"]), step.on.opts).handle.ready
    )


def _certificates(step: PartStep) -> PartDone:
    if step.on.plan.site.certificates.system != "cert_manager":
        return PartDone()
    args = _cert_manager(step.on.plan.site, step.on.charts["cert_manager"], step.ready())
    return PartDone(ready=CertManager("certificates", args, step.on.opts).handle.ready)


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


def _addresses(step: PartStep) -> PartDone:
    site, name = step.on.plan.site, "load-balancer-addresses"
    machines = site.cluster.machines
    if site.addresses.announced_by == "metallb_l2":
        return PartDone(ready=MetalLb(name, _metallb(site, step.on.charts["metallb"]), step.on.opts).handle.ready)
    if site.addresses.announced_by == "external" or machines is None:
        return PartDone()
    if site.addresses.bgp is not None:
        sessions = BgpSessions(bgp=site.addresses.bgp, nodes=bgp_sessions(site))
        args = LoadBalancerAddressesArgs(ranges=_ranges(site), by_bgp=sessions, needs=step.ready())
    else:
        planes_alone = all(node.role == "controlplane" for node in machines.nodes.values())
        args = LoadBalancerAddressesArgs(ranges=_ranges(site), planes_too=planes_alone)
    return PartDone(ready=LoadBalancerAddresses(name, args, step.on.opts).handle.ready)


def _metallb(site: SiteConfig, chart: Chart) -> MetalLbArgs:
    return MetalLbArgs(chart=chart, ranges=_ranges(site), taints=node_taints(site))


def _ranges(site: SiteConfig) -> list[AddressRange]:
    return [block for block in map(read_range, site.addresses.pool) if block is not None]
