"""How a site's cluster becomes a provider: machines that it installs first, or an existing cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
import yaml

from components.machines.cluster import Cluster, ClusterArgs
from components.machines.cluster_nodes import Rollout
from components.machines.machine_commands import LIMITS, Limits, Machine
from stacks.facts.versions import Versions
from stacks.plan.charts import cilium_digest, cilium_manifest
from stacks.plan.cluster import ClusterPlan
from stacks.plan.site_plan import SitePlan
from stacks.site.model import SiteConfig


@dataclass(frozen=True, kw_only=True)
class ClusterAccess:
    """The one provider of a site, and credentials where this program made the cluster; both secret."""

    provider: kubernetes.Provider
    ready: list[pulumi.Resource]
    """The machines that this program made a cluster of; empty for an existing one."""
    kubeconfig: pulumi.Output[str] | None = None
    talosconfig: pulumi.Output[str] | None = None
    pod_network: Sequence[dict[str, Any]] = ()
    """Cilium's objects, where the program changes what the machines made; none elsewhere."""
    ends: Mapping[str, Mapping[str, pulumi.Output[int]]] = field(default_factory=dict)
    """When they and the cluster's authorities end, in seconds since 1970; empty for an existing cluster."""


def cluster_access(plan: SitePlan, limits: Limits = LIMITS) -> ClusterAccess:
    """Declare the cluster, if it is this program's, and the provider for whatever is on it.

    `limits` are how long the machines' commands may take.
    """
    site = plan.site
    if plan.machines is None:
        return ClusterAccess(provider=_provider(site.name, str(site.cluster.kubeconfig), []), ready=[])
    cilium = _cilium(site, plan.versions)
    args = cluster_args(plan.machines, image_factory=plan.asked_factory, cilium=cilium, limits=limits)
    cluster = Cluster("machines", args).handle
    return ClusterAccess(
        provider=_provider(site.name, cluster.kubeconfig, cluster.ready),
        ready=cluster.ready,
        kubeconfig=cluster.kubeconfig,
        talosconfig=cluster.talosconfig,
        pod_network=_objects(cilium or "") if plan.machines.machines.cilium_owner == "program" else [],
        ends=cluster.ends,
    )


def machines_of(plan: ClusterPlan) -> list[Machine]:
    """The machines as their commands need them."""
    return [
        Machine(
            name=node.name,
            address=node.spec.address,
            is_control_plane=node.is_control_plane,
            image=node.image,
            schematic_id=node.schematic.id,
            schematic=node.schematic.canonical().decode(),
            nvswitch=node.spec.role == "hgx",
            fingerprint=node.spec.fingerprint,
            replacement=node.spec.replacement,
            dead=node.spec.dead,
        )
        for node in plan.nodes
    ]


def cluster_args(plan: ClusterPlan, *, image_factory: str | None, cilium: str | None, limits: Limits) -> ClusterArgs:
    """The values of a plan that the component gets.

    image_factory: the one that is asked, if any. cilium: the manifest of the pod network.
    """
    machines = plan.machines
    config = pulumi.Config()
    return ClusterArgs(
        cluster=plan.name,
        machines=machines_of(plan),
        configs=plan.configs,
        secret_texts={name: config.require_secret(name) for name in plan.secret_names},
        rollout=Rollout(
            image_factory=image_factory,
            credentials_rotation=machines.credentials_rotation,
            at_once=machines.parallel,
            drain_timeout_s=machines.drain_timeout_s,
            limits=limits,
        ),
        talos_version=plan.versions.talos,
        keeping=machines.secrets,
        imported=machines.secrets_import,
        cilium=cilium,
    )


class PodNetworkError(pulumi.RunError):
    """Cilium's manifest is missing, or not the pinned one."""


def bundle_command(site: str) -> str:
    """What fetches the files of others that a site installs."""
    return f"python -m sitectl bundle {site}"


def _cilium(site: SiteConfig, versions: Versions) -> str | None:
    """Cilium's manifest, where machines bring it. Raises PodNetworkError where it is not the pinned one."""
    path, fix = cilium_manifest(site), bundle_command(site.name)
    if path is None:
        return None
    try:
        content = path.read_bytes()
    except OSError:
        raise PodNetworkError(f"{path}: Cilium's manifest is missing\n  fix: {fix}") from None
    digest = hashlib.sha256(content).hexdigest()
    pinned = cilium_digest(site, versions.cilium)
    if digest != pinned:
        raise PodNetworkError(
            f"{path}: sha256 is {digest}, pinned in stacks/facts/versions.yaml is {pinned}\n  fix: {fix}"
        )
    return content.decode()


def _objects(manifest: str) -> list[dict[str, Any]]:
    """The objects of a manifest; none of a text in its place, where no file is read."""
    documents = yaml.load_all(manifest, Loader=yaml.CSafeLoader)
    return [document for document in documents if isinstance(document, dict)]


def _provider(name: str, kubeconfig: pulumi.Input[str], needs: list[pulumi.Resource]) -> kubernetes.Provider:
    return kubernetes.Provider(
        "cluster",
        kubeconfig=kubeconfig,
        cluster_identifier=name,
        enable_server_side_apply=True,
        # An engine that is killed between an object and its state leaves an object that the next `up` takes up again.
        upsert_existing_objects=True,
        # The site's file is right and a hand-made change is drift, no matter who made it.
        enable_patch_force=True,
        # Replacing the Secret of a tenant's keys would shut the tenant out for a moment.
        enable_config_map_mutable=True,
        enable_secret_mutable=True,
        opts=pulumi.ResourceOptions(depends_on=needs),
    )
