"""What an endpoint picker says of the requests that wait in its queues."""

from __future__ import annotations

import re
from collections import Counter

import httpx

from components.specs.inference_pool import METRICS_PORT
from tests.lab.site.replicas import Cluster

_QUEUED = re.compile(r'^inference_extension_flow_control_queue_size\{fairness_id="([^"]*)".*\} (\S+)$', re.MULTILINE)
_SATURATION = re.compile(r"^inference_extension_flow_control_pool_saturation\{.*\} (\S+)$", re.MULTILINE)


def queued(cluster: Cluster, model: str) -> Counter[str]:
    """Requests that wait, by what the picker takes for a tenant."""
    waiting = Counter[str]()
    for tenant, count in _QUEUED.findall(_metrics(cluster, model)):
        waiting[tenant] += int(float(count))
    return +waiting


def saturated(cluster: Cluster, model: str) -> bool:
    """Whether it holds every request that comes."""
    return float(_SATURATION.findall(_metrics(cluster, model))[0]) >= 1


def _metrics(cluster: Cluster, model: str) -> str:
    (picker,) = cluster.pickers(model)
    return httpx.get(f"http://{picker.ip}:{METRICS_PORT}/metrics", trust_env=False, timeout=60).text
