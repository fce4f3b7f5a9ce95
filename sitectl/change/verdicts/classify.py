"""From one change to its verdicts: the table of which function judges what."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sitectl.change.changes import Change
from sitectl.change.verdicts import (
    callers,
    front,
    ground,
    handover,
    machines,
    measuring,
    node_weights,
    pod_network,
    tiers,
    weights_jobs,
    workloads,
)
from sitectl.change.verdicts.handover import Handover
from sitectl.change.verdicts.model import Verdict

_NO_HANDOVER = Handover()
_BY_KIND: Mapping[str, Callable[[Change], list[Verdict]]] = {
    "Deployment": lambda change: callers.pods(change) if callers.is_pods(change) else workloads.deployment(change),
    "LeaderWorkerSet": workloads.deployment,
    "PersistentVolumeClaim": lambda change: (
        node_weights.volume(change) if node_weights.is_of_nodes(change) else workloads.claim(change)
    ),
    "PersistentVolume": lambda change: (
        node_weights.volume(change) if node_weights.is_of_nodes(change) else ground.anything(change)
    ),
    "Job": lambda change: weights_jobs.job(change) if node_weights.is_of_weights(change) else ground.anything(change),
    "DaemonSet": lambda change: (
        node_weights.daemon_set(change) if node_weights.is_of_weights(change) else workloads.daemon_set(change)
    ),
    "ConfigMap": lambda change: callers.tenants(change) if callers.is_of_tenants(change) else ground.anything(change),
    "SecurityPolicy": front.security_policy,
    "Secret": front.secret,
    "Gateway": front.gateway,
    "EnvoyProxy": front.proxy,
    "ClientTrafficPolicy": front.traffic_policy,
    "BackendTrafficPolicy": front.traffic_policy,
    "EnvoyPatchPolicy": front.patch_policy,
    "EnvoyExtensionPolicy": tiers.policy,
    "InferenceObjective": tiers.objective,
    "AIGatewayRoute": front.route,
    "InferencePool": front.pool,
    "Namespace": ground.namespace,
    "CustomResourceDefinition": ground.definition,
    "ScaledObject": workloads.scaled_object,
    "NetworkPolicy": ground.network_policy,
    "ExternalSecret": ground.filled_secret,
    "NicClusterPolicy": ground.rdma_policy,
    **dict.fromkeys(("CiliumBGPClusterConfig", "CiliumBGPPeerConfig", "CiliumBGPAdvertisement"), ground.announcement),
    "Prometheus": measuring.server,
    "Alertmanager": measuring.server,
    "PodMonitor": measuring.read_by_it,
    "PrometheusRule": measuring.read_by_it,
}


def _command(change: Change) -> list[Verdict]:
    if machines.is_machine_call(change):
        return machines.machine_call(change)
    return ground.definitions(change) or front.command(change)


_BY_TYPE: Mapping[str, Callable[[Change], list[Verdict]]] = {
    "command:local:Command": _command,
    "kubernetes:helm.sh/v3:Release": ground.release,
    "pulumi:providers:kubernetes": ground.provider,
}


def classify(change: Change, over: Handover = _NO_HANDOVER) -> list[Verdict]:
    """What a change means, the worst first. Pure; a change without a rule of its own is judged by its operation.

    over: who decides about callers, by all changes of the site.
    """
    judge = _BY_TYPE.get(change.type) or _BY_KIND.get(change.kind) or ground.anything
    judge = pod_network.anything if pod_network.is_of_it(change) else judge
    judged = handover.verdicts(change, over)
    return sorted(judge(change) if judged is None else judged, key=lambda verdict: verdict.severity)
