"""What a cluster of the lab has from its bootstrap on, as with Talos: kube-proxy's account and cluster DNS.

Also what the assigner needs, which replaces a site's load balancer and storage, and what replicas of vLLM run in.
"""

from __future__ import annotations

from lab.cluster import api, assigner, credentials, dns, kubeproxy, volumes
from lab.paths import Lab


def apply(lab: Lab) -> None:
    """Make or repair all of it; the API server has to answer."""
    kubeproxy.write_settings(lab)
    with api.connect(lab) as connection:
        api.apply(connection, assigner.role(), volumes.storage_class(), runtime_class(), *dns.manifests(lab.network))
        credentials.ensure(lab, connection, kubeproxy.ACCOUNT, role=kubeproxy.ROLE)
        credentials.ensure(lab, connection, assigner.ACCOUNT, role=assigner.ACCOUNT)


def runtime_class() -> api.Manifest:
    """The class of pods with GPUs, which a site's GPU operator brings; here a pod of it runs as any other."""
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "nvidia", "annotations": {"inference-lab/emulation": "the pod runner runs it, as all"}},
        "handler": "nvidia",
    }
