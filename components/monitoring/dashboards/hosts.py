"""Are the machines well: what their parts, the control plane and the pod network measure of themselves."""

from __future__ import annotations

from components.monitoring import host_queries, queries
from components.monitoring.dashboard_config_maps import OF_HOSTS
from components.monitoring.dashboards.board import Board, Panel, PanelGroup
from components.monitoring.dashboards.vocabulary import BYTES, BYTES_PER_S, COUNT, SECONDS, SHARE, WINDOW, lines

_NOT_MEASURED = "the lab's site measures no hosts: its nodes are emulated"
_DISK, _LINK = "{{node}} {{mountpoint}}", "{{node}} {{device}}"
_CLAIM = ("namespace", "persistentvolumeclaim")


def _panel(title: str, expression: str, legend: str, unit: str, good: str, do: str) -> Panel:
    return Panel(title=title, good=good, do=do, unit=unit, queries=lines(expression, legend), not_in_lab=_NOT_MEASURED)


def _of_link(counter: str) -> str:
    return queries.rate(counter, host_queries.NODES, by=("node", "device"), window=WINDOW)


BOARD = Board(
    name=OF_HOSTS,
    title="Inference: are the machines well?",
    question="Processors, memory, disks and links of each node, and the Kubernetes control plane. It is empty "
    "without `monitoring.hosts: measured`, and the pod network's part without `monitoring.pod_network: measured`.",
    groups=(
        PanelGroup(
            title="Is a node well?",
            runbook="node-unwell",
            panels=(
                _panel(
                    "Share of time in which processors of a node work",
                    host_queries.processors_busy(),
                    "{{node}}",
                    SHARE,
                    "Below 0.8.",
                    "Look which namespace takes them, below. Gateways and pickers answer late on a busy node.",
                ),
                _panel(
                    "Share of a node's memory that is left",
                    host_queries.memory_left(),
                    "{{node}}",
                    SHARE,
                    "Above 0.1.",
                    "Look which namespace takes it, below. Without any the kernel ends a program.",
                ),
                _panel(
                    "Share of a disk that is free",
                    host_queries.disk_left(),
                    _DISK,
                    SHARE,
                    "Above 0.15. Weights on nodes fill a disk once.",
                    "See what grows there; below 0.1 Kubernetes stops pods of the node.",
                ),
                _panel(
                    "Share of time in which a disk works",
                    queries.rate(
                        "node_disk_io_time_seconds_total",
                        host_queries.NODES,
                        by=("node", "device"),
                        window=WINDOW,
                    ),
                    _LINK,
                    SHARE,
                    "Below 0.8, but while weights are read or downloaded.",
                    "On a control plane etcd waits for it: move what else writes there.",
                ),
                _panel(
                    "Bytes that arrive by a link",
                    _of_link("node_network_receive_bytes_total"),
                    _LINK,
                    BYTES_PER_S,
                    "Below the link's rate, and alike on the links of a bond.",
                    "One link of a bond without traffic: its port or its cable.",
                ),
                _panel(
                    "Share of packets that a link loses",
                    host_queries.damaged_packets(),
                    _LINK,
                    SHARE,
                    "0.",
                    "Damaged: cable, optics or port. Dropped: a queue that is too short.",
                ),
                _panel(
                    "Seconds by which a node's clock is wrong",
                    host_queries.clock_off_s(),
                    "{{node}}",
                    SECONDS,
                    "Below 1, which a scrape may take.",
                    "Its time servers. All nodes alike: the clock of Prometheus's node is the wrong one.",
                ),
            ),
        ),
        PanelGroup(
            title="What do pods take?",
            runbook="node-unwell",
            panels=(
                _panel(
                    "Memory of a namespace's pods",
                    host_queries.pods_memory(),
                    "{{namespace}}",
                    BYTES,
                    "Constant over days.",
                    "One that grows without an end leaks: restart its pods.",
                ),
                _panel(
                    "Processors that a namespace's pods keep busy",
                    host_queries.pods_processors(),
                    "{{namespace}}",
                    COUNT,
                    "It follows the requests.",
                    "Compare with the processors of its nodes, above.",
                ),
                _panel(
                    "Pods of a node",
                    queries.highest("kubelet_running_pods", host_queries.KUBELETS, by=("node",)),
                    "{{node}}",
                    COUNT,
                    "Below 110, the kubelet's own limit.",
                    "No pod starts on a node at its limit: add a node, or increase `maxPods` of its kubelet.",
                ),
                _panel(
                    "Share of a claim's volume that is free",
                    f"{queries.lowest('kubelet_volume_stats_available_bytes', host_queries.KUBELETS, by=_CLAIM)} / "
                    f"{queries.highest('kubelet_volume_stats_capacity_bytes', host_queries.KUBELETS, by=_CLAIM)}",
                    "{{namespace}} {{persistentvolumeclaim}}",
                    SHARE,
                    "Above 0.1. Weights fill their volume from the start.",
                    "Increase the claim, or delete what is no longer needed in it.",
                ),
            ),
        ),
        PanelGroup(
            title="Is the control plane well?",
            runbook="control-plane-unwell",
            panels=(
                _panel(
                    "Does a member of etcd see a leader? (1 is yes)",
                    queries.lowest("etcd_server_has_leader", host_queries.ETCD, by=("node",)),
                    "{{node}}",
                    COUNT,
                    "1 on each control plane.",
                    "0 on one: its network. 0 on all: the majority of members is gone.",
                ),
                _panel(
                    "Changes of etcd's leader that a member saw (per second)",
                    queries.rate(
                        "etcd_server_leader_changes_seen_total", host_queries.ETCD, by=("node",), window=WINDOW
                    ),
                    "{{node}}",
                    COUNT,
                    "0, but when a control plane restarts.",
                    "A slow disk or network makes members lose their leader.",
                ),
                _panel(
                    "Seconds of a write to etcd's log (P99)",
                    queries.quantile(
                        0.99, "etcd_disk_wal_fsync_duration_seconds", host_queries.ETCD, by=("node",), window=WINDOW
                    ),
                    "{{node}}",
                    SECONDS,
                    "Below 0.01.",
                    "The disk is slow or has other work: etcd needs one of its own, or a faster one.",
                ),
                _panel(
                    "Share of etcd's quota that is in use",
                    host_queries.etcd_full(),
                    "{{node}}",
                    SHARE,
                    "Below 0.5.",
                    "Find what makes so many objects, and take the free space out of the file.",
                ),
                _panel(
                    "Requests to the API servers (per second)",
                    queries.rate("apiserver_request_total", host_queries.API_SERVERS, by=("code",), window=WINDOW),
                    "{{code}}",
                    COUNT,
                    "2xx, and few others.",
                    "Many 429 or 5xx: look at etcd, and at who asks so much.",
                ),
                _panel(
                    "Requests that the API servers work on",
                    queries.total(
                        "apiserver_current_inflight_requests", host_queries.API_SERVERS, by=("request_kind",)
                    ),
                    "{{request_kind}}",
                    COUNT,
                    "Some tens.",
                    "Near 400 (or 200 that change something) others wait.",
                ),
                _panel(
                    "Seconds of a short request to the API servers (P99)",
                    host_queries.api_duration_s(0.99),
                    "{{verb}}",
                    SECONDS,
                    "Below 1.",
                    "etcd's disk, above, or one client that lists everything.",
                ),
                _panel(
                    "Answers of cluster DNS (per second)",
                    queries.rate("coredns_dns_responses_total", host_queries.DNS, by=("rcode",), window=WINDOW),
                    "{{rcode}}",
                    COUNT,
                    "NOERROR and NXDOMAIN alone.",
                    "SERVFAIL: the servers that it asks for names of outside, or the API server.",
                ),
                _panel(
                    "Seconds of an answer of cluster DNS (P99)",
                    queries.quantile(0.99, "coredns_dns_request_duration_seconds", host_queries.DNS, window=WINDOW),
                    "P99",
                    SECONDS,
                    "Below 0.1.",
                    "The servers that it asks for names of outside are slow.",
                ),
            ),
        ),
        PanelGroup(
            title="Is the pod network well?",
            runbook="pod-network-unwell",
            panels=(
                _panel(
                    "Packets that Cilium drops on a node (per second)",
                    queries.rate("cilium_drop_count_total", host_queries.CILIUM, by=("node", "reason"), window=WINDOW),
                    "{{node}} {{reason}}",
                    COUNT,
                    "Policy denied and Unsupported L3 protocol alone.",
                    "Any other reason that stays is a fault: the runbook has what they mean.",
                ),
                _panel(
                    "Packets that are dropped between namespaces (per second)",
                    queries.rate(
                        "hubble_drop_total",
                        host_queries.HUBBLE,
                        by=("source_namespace", "destination_namespace", "reason"),
                        window=WINDOW,
                    ),
                    "{{source_namespace}} to {{destination_namespace}} {{reason}}",
                    COUNT,
                    "0, or what a policy is meant to refuse.",
                    "POLICY_DENIED of a namespace's own traffic: a policy of it lacks a peer. No name is outside.",
                ),
                _panel(
                    "Flows that Hubble has seen (per second)",
                    queries.rate("hubble_flows_processed_total", host_queries.HUBBLE, by=("verdict",), window=WINDOW),
                    "{{verdict}}",
                    COUNT,
                    "FORWARDED, and few DROPPED.",
                    "DROPPED that grows with the requests: between which namespaces is shown above.",
                ),
                _panel(
                    "Events that Hubble has lost (per second)",
                    queries.rate("hubble_lost_events_total", host_queries.HUBBLE, by=("node", "source"), window=WINDOW),
                    "{{node}} {{source}}",
                    COUNT,
                    "0.",
                    "Counts of flows are too low there; those of packets that Cilium drops are whole.",
                ),
                _panel(
                    "Share of a BPF map that is in use",
                    host_queries.map_full(),
                    "{{node}} {{map_name}}",
                    SHARE,
                    "Below 0.9.",
                    "A full one of connections or NAT loses the oldest, others refuse what is new: find what fills it.",
                ),
                _panel(
                    "Nodes that a node does not reach",
                    queries.highest("cilium_unreachable_nodes", host_queries.CILIUM, by=("node",)),
                    "{{node}}",
                    COUNT,
                    "0, or as many as are not ready.",
                    "One node has many: its link or its agent. All have one: that node.",
                ),
            ),
        ),
    ),
)
