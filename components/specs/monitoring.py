"""What a site may set for monitoring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from components.specs.grafana import GrafanaSpec
from floor.spec import Spec

MonitoringSystem = Literal["none", "external", "prometheus_operator"]
Hosts = Literal["none", "measured"]

READ_BY: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "external": ("labels", "scraper_namespace", "availability_percent", "runbooks_url", "grafana"),
    "prometheus_operator": (
        "availability_percent",
        "runbooks_url",
        "retention_days",
        "volume_gib",
        "storage_class",
        "alerts_secret",
        "copies",
        "gpu_faults",
        "hosts",
        "pod_network",
        "grafana",
    ),
}
"""Which of the keys each system reads."""


ALERTMANAGER_VOLUME_GIB = 1
"""For silences, and what it has sent."""


class GpuFaultsSpec(Spec):
    """What is done about a node whose GPUs have a fault, beside alerts."""

    on_fault: Literal["alert", "drain"] = "alert"
    """`drain`: a node that DCGM and the cluster both report for two minutes is tainted, and its replicas are evicted:
    one node at a time, one an hour, and only one without which the proof serves every model's least. An operator
    removes the taint. `alert`: alerts alone."""
    new_nodes: Literal["admit", "check", "load_test"] = "admit"
    """`check`: a new node gets a taint, and replicas once it offers its GPUs, they are validated, DCGM reports all of
    them without a fault, and they have joined the fabric. `load_test`: then all its GPUs also multiply, read their
    memory and sum among each other, for a minute or two, above floors that the preview shows. `admit`: it takes
    replicas as soon as it offers GPUs."""

    @property
    def watches(self) -> bool:
        """Whether the watcher runs."""
        return self.on_fault == "drain" or self.checks

    @property
    def checks(self) -> bool:
        """Whether a new node waits until it is checked."""
        return self.new_nodes != "admit"


class MonitoringSpec(Spec):
    """Who measures the platform, and what it is held to."""

    system: MonitoringSystem = "none"
    """`prometheus_operator`: this program installs the operator, Prometheus, Alertmanager and kube-state-metrics;
    `external`: the cluster has an operator, and this program declares monitors, rules and dashboards for it; `none`:
    nothing is declared, and no pod may read the platform's metrics."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels by which the cluster's operator selects monitors and rules, such as `release: kube-prometheus-stack`; with
    `system: external`."""
    scraper_namespace: str | None = None
    """Namespace of the cluster's Prometheus. Its pods with the label `app.kubernetes.io/name: prometheus` may read
    metrics, and reach the models' engines without a key; required with `system: external`."""
    # Below 93.06 the fastest alert could not fire: 14.4 times the share that may fail is more than all requests.
    availability_percent: float = Field(default=99.9, ge=95, le=99.999)
    """Share of requests that must be answered without an error of the platform; alerts watch the rest, its error
    budget over 30 days."""
    runbooks_url: str | None = None
    """Https address of the folder where you publish this project's docs/runbooks; each alert then has its page below it
    as `runbook_url`. Without it alerts name the command that prints the page alone, `sitectl docs PAGE`."""
    retention_days: int = Field(default=15, ge=1, le=3650)
    """How long Prometheus keeps what it measured; less where its volume is full before."""
    volume_gib: int = Field(default=50, ge=1, le=16_384)
    """Size of Prometheus's volume. `destroy` deletes it, whatever `storage.volumes` is. A claim that exists keeps its
    size, which `sitectl plan` shows: increase the claim before this key; it never shrinks."""
    copies: int = Field(default=1, ge=1, le=3)
    """Pods of Prometheus, and of Alertmanager, on nodes of their own where there are as many, each with a volume. All
    measure and compute the same; Alertmanager sends an alert once. With 1, a lost node may take alerts along until its
    pod starts elsewhere."""
    hosts: Hosts = "none"
    """`measured`: also nodes and the Kubernetes control plane: this program installs node-exporter on every node, and
    Prometheus reads it, kubelets, API servers and cluster DNS, and etcd on machines of this program; with alerts and a
    dashboard. A change of it is a change of the machines: etcd takes its part of it at each control plane's next boot.
    `none`: what your own tools measure."""
    pod_network: Hosts = "none"
    """`measured`: also Cilium's agents and Hubble on every node, with alerts and panels; it needs `hosts: measured` and
    this program's Cilium. It is another manifest of Cilium, which `sitectl bundle` fetches. A new cluster starts with
    it. One that runs takes it with `cluster.machines.cilium_owner: program`, and its agents restart, two nodes at a
    time; otherwise you apply it by hand. `none`: Hubble is off."""
    storage_class: str | None = None
    """Class of the volumes of Prometheus and Alertmanager; ReadWriteOnce is enough. Longhorn's class for scratch
    volumes if not given, which deletes a volume with its claim, as `destroy` expects; required without
    `storage.system: longhorn`. A claim that exists keeps its class."""
    gpu_faults: GpuFaultsSpec = Field(default_factory=GpuFaultsSpec)
    """Nodes with a faulty GPU, and new ones. It needs machines of this program and `cluster.gpu_stack`."""
    alerts_secret: str | None = None
    """Secret in `inference-monitoring` that you make, with Alertmanager's configuration under `alertmanager.yaml`.
    Alertmanager does not start, and `up` waits 15 minutes, until the Secret and that key are there. Without
    `alerts_secret` alerts are kept and shown, and sent to no one."""
    grafana: GrafanaSpec = Field(default_factory=GrafanaSpec)
    """The Grafana that shows the dashboards. The program's own is for `system: prometheus_operator`."""
