"""Alerts about nodes as they are within, and about API servers and cluster DNS."""

from __future__ import annotations

from components.monitoring import host_queries, host_scrapes, queries
from components.monitoring.alerts.alert import Alert

# A kubelet evicts pods of a node where less is free: its defaults are 10 % of the node's disk, and 15 % of that of
# images (imagefs.available), which is the same one here.
_EVICTED_SHARE = 0.15
# So long before that someone must know, by what was written in as many hours, and still in the last half: weights that
# are downloaded fill a disk fast, and then no more. A disk with more room than this has time. Estimates.
_HOURS, _ROOM_SHARE = 6, 0.4
# Estimates. A node without free memory stops programs; a good link loses next to nothing; certificates and tokens of
# a cluster bear seconds, and logs of nodes are compared by them.
_MEMORY_SHARE, _PACKET_SHARE, _CLOCK_S = 0.05, 0.005, 2
# A kubelet renews a certificate of a year when 10 to 30 % of it are left; one that has days left was not renewed.
_CERTIFICATE_DAYS = 14
# Kubernetes' own objective is a second for 99 % of requests about one object (sig-scalability, api_call_latency.md).
_API_S, _API_SLOW_SHARE = 1, 0.01
# Estimates: controllers try again, and what asks for a name too.
_API_ERROR_SHARE, _DNS_ERROR_SHARE = 0.03, 0.05


def hosts() -> list[Alert]:
    """Disks, memory, links and clocks of nodes, and whether they are measured."""
    disk = "The disk at {{ $labels.mountpoint }} of {{ $labels.node }}"
    left = host_queries.room_of_pods()
    growing = " and ".join(
        f"{host_queries.room_of_pods_in(_HOURS, window=window)} < {_EVICTED_SHARE}" for window in ("6h", "30m")
    )
    ttl = queries.lowest("kubelet_certificate_manager_client_ttl_seconds", host_queries.KUBELETS, by=("node",))
    return [
        Alert(
            name="NodeDiskFills",
            severity="page",
            expression=f"{left} < {_EVICTED_SHARE} or ({left} < {_ROOM_SHARE} and {growing})",
            minutes=30,
            summary=f"{disk} fills up",
            description=f"It has {{{{ $value | humanizePercentage }}}} free. Below {_EVICTED_SHARE * 100:.0f} %, where "
            f"it is or will be within {_HOURS} hours, Kubernetes stops pods of the node, engines among them.",
            runbook="node-unwell",
        ),
        Alert(
            name="NodeDiskReadOnly",
            severity="page",
            expression=f"{queries.highest('node_filesystem_readonly', host_queries.DISKS, by=('node', 'mountpoint'))}"
            " > 0",
            minutes=5,
            summary=f"{disk} takes no writes",
            description="The kernel holds it read-only ({{ $value }} is yes), as after errors of the disk. Pods that "
            "write there fail.",
            runbook="node-unwell",
        ),
        Alert(
            name="NodeMemoryShort",
            severity="ticket",
            expression=f"{host_queries.memory_left()} < {_MEMORY_SHARE}",
            minutes=15,
            summary="{{ $labels.node }} has little memory left",
            description="Programs can get {{ $value | humanizePercentage }} of its memory. Without any the kernel "
            "ends one of them.",
            runbook="node-unwell",
        ),
        Alert(
            name="NodeLinkErrors",
            severity="ticket",
            expression=f"{host_queries.damaged_packets()} > {_PACKET_SHARE}",
            minutes=30,
            summary="The link {{ $labels.device }} of {{ $labels.node }} damages packets",
            description="{{ $value | humanizePercentage }} were damaged within 15 minutes: a cable, its optics, or the "
            "port at either end.",
            runbook="node-unwell",
        ),
        Alert(
            name="NodeBondDegraded",
            severity="ticket",
            expression=f"{host_queries.lost_links()} > 0",
            minutes=10,
            summary="The bond {{ $labels.master }} of {{ $labels.node }} has lost a link",
            description="{{ $value }} of its links do not work. The node goes on with the others and has less "
            "bandwidth.",
            runbook="node-unwell",
        ),
        Alert(
            name="NodeClockWrong",
            severity="ticket",
            expression=f"{host_queries.clock_off_s()} > {_CLOCK_S}",
            minutes=10,
            summary="The clock of {{ $labels.node }} is wrong",
            description="It is {{ $value | humanizeDuration }} off that of Prometheus's node. Certificates and tokens "
            "are refused where it is much.",
            runbook="node-unwell",
        ),
        Alert(
            name="KubeletCertificateEnds",
            severity="ticket",
            expression=f"{ttl} < {_CERTIFICATE_DAYS * 86400}",
            minutes=60,
            summary="The certificate of {{ $labels.node }}'s kubelet ends soon",
            description="It holds for {{ $value | humanizeDuration }} and was not renewed. After that the node is not "
            "ready.",
            runbook="node-unwell",
        ),
        Alert(
            name="HostNotMeasured",
            severity="ticket",
            # A node that is not ready has an alert of its own.
            expression=host_queries.not_measured(host_scrapes.JOBS),
            minutes=15,
            summary="{{ $labels.job }} is not measured everywhere",
            description="Prometheus reads nothing of it ({{ $value }}). Address: {{ $labels.instance }}; without one, "
            "Prometheus has no target of this job at all. Alerts about it cannot fire.",
            runbook="monitoring-down",
        ),
    ]


def control_plane() -> list[Alert]:
    """API servers and cluster DNS."""
    return [
        Alert(
            name="ApiServerErrors",
            severity="ticket",
            expression=f"{host_queries.api_errors()} > {_API_ERROR_SHARE}",
            minutes=10,
            summary="The API servers answer with errors",
            description="{{ $value | humanizePercentage }} of their answers within ten minutes were 5xx: etcd behind "
            "them, a webhook, or requests that time out under load. Models answer on; nothing is started or replaced.",
            runbook="control-plane-unwell",
        ),
        Alert(
            name="ApiServerSlow",
            severity="ticket",
            expression=f"{host_queries.api_slow(_API_S)} > {_API_SLOW_SHARE}",
            minutes=15,
            summary="The API servers are slow",
            description="{{ $value | humanizePercentage }} of requests about one object took longer than "
            f"{_API_S} s, webhooks not counted.",
            runbook="control-plane-unwell",
        ),
        Alert(
            name="DnsFails",
            # A question for a name of outside fails as well where a rack has no way out.
            severity="ticket",
            expression=f"{host_queries.dns_failed()} > {_DNS_ERROR_SHARE}",
            minutes=10,
            summary="Cluster DNS does not answer all questions",
            description="{{ $value | humanizePercentage }} of its answers within ten minutes were failures (SERVFAIL). "
            "Pods cannot resolve names of the cluster, or names of outside.",
            runbook="control-plane-unwell",
        ),
    ]
