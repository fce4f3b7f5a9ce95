"""PromQL of nodes and the control plane: pure functions that return one expression each, as in `queries`."""

from __future__ import annotations

from collections.abc import Sequence

from components.monitoring import host_scrapes, queries

NODES = f'job="{host_scrapes.NODE_EXPORTER}"'
KUBELETS = f'job="{host_scrapes.KUBELET}"'
CONTAINERS = f'job="{host_scrapes.CONTAINERS}", container!=""'
API_SERVERS = f'job="{host_scrapes.API_SERVER}"'
ETCD = f'job="{host_scrapes.ETCD}"'
DNS = f'job="{host_scrapes.DNS}"'
CILIUM = f'job="{host_scrapes.CILIUM}"'
HUBBLE = f'job="{host_scrapes.HUBBLE}"'
# Of Talos and of volumes that a site gives its machines; `/` on other clusters, as Talos's own is a read-only image.
DISKS = f'{NODES}, mountpoint=~"/|/var|/var/mnt/.+"'
# Of these, what images, containers and logs are on. Weights and Longhorn fill the others on purpose.
_OF_PODS = f'{NODES}, mountpoint=~"/|/var"'
# An idle port hears little but its switch: below so many packets a second, a share of them has no meaning.
_BUSY = 100
_API_TIMES = "apiserver_request_sli_duration_seconds"
_DISK = ("node", "mountpoint")
_READY = f'{queries.OBJECTS}, condition="Ready", status="true"'
# What a person or a controller asks for and waits. A list of everything, and what goes on for long, has other times.
_SHORT = f'{API_SERVERS}, verb=~"GET|POST|PUT|PATCH|DELETE"'


def processors_busy() -> str:
    """Share of time in which a node's processors work, 0 to 1."""
    return f'1 - avg by (node) (rate(node_cpu_seconds_total{{{NODES}, mode="idle"}}[5m]))'


def memory_left() -> str:
    """Share of a node's memory that programs can still get, 0 to 1."""
    return _share("node_memory_MemAvailable_bytes", "node_memory_MemTotal_bytes", NODES, ("node",))


def disk_left() -> str:
    """Share of each disk that is free, 0 to 1."""
    return _share("node_filesystem_avail_bytes", "node_filesystem_size_bytes", DISKS, _DISK)


def room_of_pods() -> str:
    """The same of the disks alone for which kubelets stop pods."""
    return _share("node_filesystem_avail_bytes", "node_filesystem_size_bytes", _OF_PODS, _DISK)


def room_of_pods_in(hours: int, *, window: str) -> str:
    """The same in so many hours, if it goes on as in `window`; below 0 where the disk is full before."""
    free = f"predict_linear(node_filesystem_avail_bytes{{{_OF_PODS}}}[{window}], {hours * 3600})"
    return f"min by (node, mountpoint) ({free}) / {queries.highest('node_filesystem_size_bytes', _OF_PODS, by=_DISK)}"


def damaged_packets() -> str:
    """Share of a busy link's packets that were damaged, 0 to 1.

    Not of those that were dropped: the kernel counts there what no protocol of the node asked for, too.
    """
    lost = " + ".join(_of_links(f"node_network_{way}_errs_total") for way in ("receive", "transmit"))
    every = " + ".join(_of_links(f"node_network_{way}_packets_total") for way in ("receive", "transmit"))
    return f"({lost}) / ({every} > {_BUSY})"


def lost_links() -> str:
    """Links of a bond that do not work."""
    both = (queries.total(f"node_bonding_{name}", NODES, by=("node", "master")) for name in ("slaves", "active"))
    return " - ".join(both)


def clock_off_s() -> str:
    """Seconds by which a node's clock is off that of Prometheus's node, whichever of them is wrong."""
    return f"max by (node) (abs(node_time_seconds{{{NODES}}} - timestamp(node_time_seconds{{{NODES}}})))"


def pods_memory() -> str:
    """Bytes of memory that the pods of a namespace keep."""
    return queries.total("container_memory_working_set_bytes", CONTAINERS, by=("namespace",))


def pods_processors() -> str:
    """Processors that the pods of a namespace keep busy."""
    return queries.rate("container_cpu_usage_seconds_total", CONTAINERS, by=("namespace",), window="5m")


def slow_writes(histogram: str, bound_s: float) -> str:
    """Share of etcd's writes to disk that took longer than one of the histogram's bounds, 0 to 1."""
    return f"1 - {queries.share_up_to(bound_s, (histogram,), ETCD, by=('node',), window='15m')}"


def etcd_full() -> str:
    """Share of etcd's quota that its database takes, 0 to 1."""
    return _share("etcd_mvcc_db_total_size_in_bytes", "etcd_server_quota_backend_bytes", ETCD, ("node",))


def api_errors() -> str:
    """Share of requests that the API servers answer with an error of their own, 0 to 1."""
    counted = "apiserver_request_total"
    failed = queries.rate(counted, f'{API_SERVERS}, code=~"5.."', window="10m")
    return queries.share_of(failed, queries.rate(counted, API_SERVERS, window="10m"))


def api_slow(bound_s: float) -> str:
    """Share of short requests to the API servers that took longer than one of the histogram's bounds, 0 to 1."""
    return f"1 - {queries.share_up_to(bound_s, (_API_TIMES,), _SHORT, by=(), window='15m')}"


def api_duration_s(share: float) -> str:
    """Seconds of short requests, without their wait for webhooks."""
    return queries.quantile(share, _API_TIMES, _SHORT, by=("verb",), window="15m")


def dns_failed() -> str:
    """Share of questions that cluster DNS could not answer, 0 to 1. A name that is not there is an answer."""
    counted = "coredns_dns_responses_total"
    failed = queries.rate(counted, f'{DNS}, rcode="SERVFAIL"', window="10m")
    return queries.share_of(failed, queries.rate(counted, DNS, window="10m"))


def faulty_drops() -> str:
    """Packets a second that Cilium drops of a node, but for those that it should, by reason.

    Not those that a policy or `loadBalancerSourceRanges` refuses, and not protocols that it does not carry, as IPv6
    here and what switches send: cilium/cilium v1.20.2 pkg/monitor/api/drop.go.
    """
    meant = "Policy denied.*|Authentication required|Denied by LB src range check"
    not_carried = "Unsupported L[23] protocol|VLAN traffic disallowed by VLAN filter"
    where = f'{CILIUM}, reason!~"{meant}|{not_carried}"'
    return queries.rate("cilium_drop_count_total", where, by=("node", "reason"), window="10m")


def map_full() -> str:
    """Share of a BPF map of a node that is in use, 0 to 1; of policies the fullest."""
    return queries.highest("cilium_bpf_map_pressure", CILIUM, by=("node", "map_name"))


def silent_nodes() -> str:
    """Nodes that are not ready or whose Cilium does not answer, as one number: they answer no other."""
    without = f"kube_node_status_condition{{{_READY}}} == 0 or on (node) up{{{CILIUM}}} == 0"
    return f"scalar(count({without}) or vector(0))"


def not_measured(jobs: Sequence[str]) -> str:
    """Targets that do not answer, and jobs without one. Of a node that is not ready nothing answers."""
    absent = " or ".join(f'absent(up{{job="{job}"}})' for job in jobs)
    return (
        f'max by (job, node, instance) (up{{job=~"{"|".join(jobs)}"}} == 0) unless on (node) '
        f"({queries.total('kube_node_status_condition', _READY, by=('node',))} == 0) or {absent}"
    )


def _share(part: str, whole: str, where: str, by: tuple[str, ...]) -> str:
    return f"{queries.lowest(part, where, by=by)} / {queries.highest(whole, where, by=by)}"


def _of_links(counter: str) -> str:
    return queries.rate(counter, NODES, by=("node", "device"), window="15m")
