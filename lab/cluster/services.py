"""What a cluster of the lab has from its bootstrap on, as with Talos: kube-proxy's account and cluster DNS.

Also what the assigner needs, which replaces a site's load balancer and storage.
"""

from __future__ import annotations

from lab.cluster import api, assigner, credentials, dns, kubeproxy, volumes
from lab.paths import Lab


def apply(lab: Lab) -> None:
    """Make or repair all of it; the API server has to answer."""
    kubeproxy.write_settings(lab)
    with api.connect(lab) as connection:
        api.apply(connection, assigner.role(), volumes.storage_class(), *dns.manifests(lab.network))
        credentials.ensure(lab, connection, kubeproxy.ACCOUNT, role=kubeproxy.ROLE)
        credentials.ensure(lab, connection, assigner.ACCOUNT, role=assigner.ACCOUNT)
