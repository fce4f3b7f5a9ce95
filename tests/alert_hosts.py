"""Faults of nodes as they are within, and of the control plane."""

from __future__ import annotations

from tests.alert_site import (
    Case,
    Values,
    api,
    cilium,
    constant,
    disk,
    dns,
    dropped,
    etcd,
    etcd_backup,
    etcd_writes,
    grows,
    link,
    node,
)

_NODE = {"node": "cp-1"}
_DISK = {**_NODE, "mountpoint": "/var"}

CASES = (
    # It is at 9 %, and stays there.
    Case(
        alert="NodeDiskFills",
        change={disk("node_filesystem_avail_bytes"): constant(90e9)},
        labels=_DISK,
        shown="9%",
    ),
    # 2 GB a minute: none is free in three hours.
    Case(
        alert="NodeDiskFills",
        change={disk("node_filesystem_avail_bytes"): Values(420e9, -2e9)},
        labels=_DISK,
        shown="30%",
    ),
    Case(
        alert="NodeDiskReadOnly",
        change={disk("node_filesystem_readonly"): constant(1)},
        labels=_DISK,
        shown="1",
    ),
    Case(
        alert="NodeMemoryShort",
        change={node("node_memory_MemAvailable_bytes"): constant(1.6e9)},
        labels=_NODE,
        shown="2.5%",
    ),
    Case(
        alert="NodeLinkErrors",
        change={link("receive_errs"): grows(20_000)},
        labels={**_NODE, "device": "enp1s0"},
        shown="1.001%",
    ),
    Case(
        alert="NodeBondDegraded",
        change={node("node_bonding_active", ', master="bond0"'): constant(1)},
        labels={**_NODE, "master": "bond0"},
        shown="1",
    ),
    Case(
        alert="NodeClockWrong",
        change={node("node_time_seconds"): Values(-90, 60)},
        labels=_NODE,
        shown="1m 30s",
    ),
    Case(
        alert="KubeletCertificateEnds",
        change={node("kubelet_certificate_manager_client_ttl_seconds", job="kubelet"): constant(7 * 86400)},
        labels=_NODE,
        shown="7d 0h 0m 0s",
        minutes=90,
    ),
    Case(
        alert="HostNotMeasured",
        change={node("up", job="kubelet"): constant(0)},
        labels={**_NODE, "job": "kubelet", "instance": "10.5.0.11:9100"},
        shown="0",
    ),
    Case(alert="HostNotMeasured", change={node("up", job="coredns"): None}, labels={"job": "coredns"}, shown="1"),
    # Two of a backup every six hours are missing, and an hour.
    Case(
        alert="EtcdBackupOld",
        change={etcd_backup("kube_cronjob_status_last_successful_time"): constant(-13 * 3600)},
        labels={"namespace": "etcd-backup", "cronjob": "etcd-backup"},
        shown="14",
    ),
    # None has ever arrived.
    Case(
        alert="EtcdBackupOld",
        change={
            etcd_backup("kube_cronjob_status_last_successful_time"): None,
            etcd_backup("kube_cronjob_created"): constant(-13 * 3600),
        },
        labels={"namespace": "etcd-backup", "cronjob": "etcd-backup"},
        shown="14",
    ),
    Case(alert="EtcdNoLeader", change={etcd("etcd_server_has_leader"): constant(0)}, labels=_NODE, shown="0"),
    Case(alert="EtcdMemberDown", change={etcd("up"): constant(0)}, labels=_NODE, shown="0"),
    Case(alert="EtcdMemberDown", change={etcd("up"): None}, labels={"job": "etcd"}, shown="1"),
    Case(alert="EtcdSlowDisk", change=etcd_writes("wal_fsync", "0.128", 0.98), labels=_NODE, shown="2%"),
    Case(alert="EtcdSlowDisk", change=etcd_writes("backend_commit", "0.256", 0.95), labels=_NODE, shown="5%"),
    Case(
        alert="EtcdNearlyFull",
        change={etcd("etcd_mvcc_db_total_size_in_bytes"): constant(1.7e9)},
        labels=_NODE,
        shown="85%",
    ),
    Case(
        alert="ApiServerErrors",
        change={api("total", ', code="503"'): grows(66), api("total", ', code="200"'): grows(594)},
        shown="10%",
    ),
    Case(alert="ApiServerSlow", change={api("sli_duration_seconds_bucket", ', le="1.0"'): grows(582)}, shown="3%"),
    Case(
        alert="CiliumNotMeasured",
        change={node("up", job="hubble"): constant(0)},
        labels={**_NODE, "job": "hubble", "instance": "10.5.0.11:9100"},
        shown="0",
    ),
    Case(alert="CiliumNotMeasured", change={cilium("up"): None}, labels={"job": "cilium-agent"}, shown="1"),
    Case(
        alert="CiliumDropsPackets",
        change={dropped("Stale or unroutable IP"): grows(1_200)},
        labels={**_NODE, "reason": "Stale or unroutable IP"},
        shown="20",
    ),
    Case(
        alert="CiliumMapNearlyFull",
        change={cilium("cilium_bpf_map_pressure", ', map_name="ct4_global"'): constant(0.95)},
        labels={**_NODE, "map_name": "ct4_global"},
        shown="95%",
    ),
    Case(
        alert="CiliumNodesUnreachable",
        change={cilium("cilium_unreachable_health_endpoints"): constant(2)},
        labels=_NODE,
        shown="2",
    ),
    Case(alert="DnsFails", change={dns("SERVFAIL"): grows(300)}, shown="20%"),
)
