"""LeaderWorkerSet: runs replicas that span several nodes as groups of pods, which start and end together.

Its definitions come with the chart, and Helm neither changes nor removes them.
"""

from __future__ import annotations

from typing import Any

from components.addons.addon import (
    Addon,
    AddonChart,
    AddonComponent,
    AddonContent,
    AddonObject,
    AddonRelease,
    AddonSite,
)
from components.addons.webhooks import answering
from components.network_policies import allow_ingress
from floor import namespaces

NAMESPACE = namespaces.GROUPS
RELEASE = "lws"
# By the chart: its pods' labels, and the port of its webhooks, without which no pod of a group is admitted.
_PODS = {"app.kubernetes.io/name": "lws", "control-plane": "controller-manager"}
_WEBHOOK_PORT = 9443
_VALIDATED = "lws-validating-webhook-configuration"


def lws_values(version: str) -> dict[str, Any]:
    """Values of its chart. version: of the chart; the repository's copy of it names the image of its main branch."""
    return {
        "image": {"manager": {"tag": f"v{version.removeprefix('v')}", "pullPolicy": "IfNotPresent"}},
        # No figure of a run: caches of the pods and sets of a few groups. The chart requests a core and 1 GiB.
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        # The chart's own, with what pod security `restricted` asks for besides.
        "podSecurityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }


def content(site: AddonSite) -> AddonContent:
    """Works when the API server trusts its webhooks."""
    chart = site.charts["leader_worker_set"]
    answers = answering(_VALIDATED, "groups", f"{RELEASE}-{chart.version}")
    return AddonContent(
        releases=[AddonRelease(name=RELEASE, chart=chart, values=lws_values(chart.version))],
        # The API server, which no label names.
        network_policies=[allow_ingress("webhooks", NAMESPACE, _PODS, [((), [_WEBHOOK_PORT])])],
        objects=[AddonObject(suffix="answering", body=answers, is_patch=True)],
    )


LEADER_WORKER_SET = Addon(
    key="leader_worker_set",
    switch="spans_nodes",
    on=True,
    namespace=NAMESPACE,
    charts=(
        AddonChart(
            name="leader_worker_set",
            release=RELEASE,
            uninstalled="groups of pods run on as they are, and none is made again after a fault; its definitions stay",
            upgraded="its pod restarts; until it answers, no pod of a group is admitted, and groups that run stay",
        ),
    ),
    component=AddonComponent(
        name="groups",
        resource_type="leader_worker_set:LeaderWorkerSets",
        pod_security="restricted",
        content=content,
        # No group starts without the devices.
        needs=("network_operator",),
        gives="groups",
    ),
)
