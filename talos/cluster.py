"""A cluster's base configs: what all control planes and all workers of it have in common, as contract v1.13 has it.

For a plain cluster (flannel, the public discovery service) they equal Talos's own generated bases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from floor import node_ports
from floor.taints import read_taint
from talos.cni import CNI, KUBE_PRISM_PORT, Cilium, Flannel
from talos.documents import v1alpha1 as parts
from talos.images import Program, kubelet_image, kubernetes_image
from talos.secrets.bundle import SecretsBundle
from talos.secrets.pki import KeyPair, base64_of

_POD_SECURITY = {
    "name": "PodSecurity",
    "configuration": {
        "apiVersion": "pod-security.admission.config.k8s.io/v1alpha1",
        "kind": "PodSecurityConfiguration",
        "defaults": {
            "enforce": "baseline",
            "enforce-version": "latest",
            "audit": "restricted",
            "audit-version": "latest",
            "warn": "restricted",
            "warn-version": "latest",
        },
        "exemptions": {"usernames": [], "runtimeClasses": [], "namespaces": ["kube-system"]},
    },
}
ETCD_METRICS = {"listen-metrics-urls": f"http://0.0.0.0:{node_ports.ETCD}"}
_AUDIT_POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}


@dataclass(frozen=True, kw_only=True)
class MachineSettings:
    """What a role, a profile or a node adds to the base config. Taints are `key: value:Effect`.

    The kubelet registers the node with its taints: later its own credentials may not change them.
    """

    cert_sans: tuple[str, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    sysfs: Mapping[str, str] = field(default_factory=dict)
    udev_rules: tuple[str, ...] = ()
    kernel_modules: tuple[parts.KernelModule, ...] = ()
    logging: tuple[parts.LoggingDestination, ...] = ()
    node_labels: Mapping[str, str] = field(default_factory=dict)
    node_annotations: Mapping[str, str] = field(default_factory=dict)
    node_taints: Mapping[str, str] = field(default_factory=dict)
    kubelet_mounts: tuple[parts.ExtraMount, ...] = ()
    kubelet_config: Mapping[str, Any] = field(default_factory=dict)
    node_ip_subnets: tuple[str, ...] = ()

    def joined(self, further: MachineSettings) -> MachineSettings:
        """Both: what `further` sets for a key wins, its list elements come after ours, equal ones once."""
        both: dict[str, Any] = {}
        for setting in fields(self):
            ours, theirs = getattr(self, setting.name), getattr(further, setting.name)
            if isinstance(ours, tuple):
                both[setting.name] = ours + tuple(element for element in theirs if element not in ours)
            else:
                both[setting.name] = {**ours, **theirs}
        return MachineSettings(**both)


@dataclass(frozen=True, kw_only=True)
class APIServerSettings:
    """What a site adds to the API servers of its control planes. `files` are the machines', for `mounts`."""

    arguments: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[parts.HostMount, ...] = ()
    files: tuple[parts.MachineFile, ...] = ()
    audit_policy: Mapping[str, Any] = field(default_factory=lambda: _AUDIT_POLICY)


@dataclass(frozen=True, kw_only=True)
class TalosCluster:
    """One cluster. `endpoint` is the Kubernetes API's URL; versions are texts such as `v1.36.3`.

    `discovery` is how members find each other: not at all, or by the service at a URL; `public` is the vendor's, which
    learns (encrypted) that the cluster exists. `api_server_sans` are further names of the Kubernetes API.
    `accepted_talos_cas` and `accepted_kubernetes_cas` (PEM) are trusted besides the bundle's own: during its rotation.
    """

    name: str
    endpoint: str
    kubernetes_version: str
    secrets: SecretsBundle
    cni: CNI
    pod_subnets: tuple[str, ...] = ("10.244.0.0/16",)
    service_subnets: tuple[str, ...] = ("10.96.0.0/12",)
    dns_domain: str = "cluster.local"
    discovery: Literal["off", "public"] | str = "off"
    api_server_sans: tuple[str, ...] = ()
    api_server: APIServerSettings = field(default_factory=APIServerSettings)
    etcd_subnets: tuple[str, ...] = ()
    accepted_talos_cas: tuple[str, ...] = ()
    accepted_kubernetes_cas: tuple[str, ...] = ()
    allow_scheduling_on_control_planes: bool = False
    backup_namespace: str | None = None
    """Namespace whose pods may take snapshots of etcd by the Talos API."""
    etcd_metrics: bool = False
    """Whether etcd serves its metrics on a port of their own, by plain HTTP on every address of a control plane."""
    kubelet_version: str = ""
    """Where kubelets are of another version than the control plane, as between the two halves of an upgrade."""

    def control_plane(self, install: parts.Install, settings: MachineSettings | None = None) -> parts.V1Alpha1:
        """The v1alpha1 document of a control plane."""
        chosen = settings or MachineSettings()
        labels = {"node.kubernetes.io/exclude-from-external-load-balancers": "", **chosen.node_labels}
        bundle = self.secrets
        return parts.V1Alpha1(
            machine=self._machine("controlplane", _pair(bundle.talos), install, chosen, labels),
            cluster=parts.Cluster(
                **self._shared(),
                ca=_pair(bundle.kubernetes),
                secretbox_encryption_secret=bundle.secretbox_encryption_secret,
                aescbc_encryption_secret=bundle.aescbc_encryption_secret,
                aggregator_ca=_pair(bundle.aggregator),
                service_account_key=base64_of(bundle.service_account_key),
                api_server=parts.APIServer(
                    image=self._image("kube-apiserver"),
                    cert_sans=self.api_server_sans,
                    extra_args=self.api_server.arguments,
                    extra_volumes=self.api_server.mounts,
                    environment=self.api_server.environment,
                    admission_control=(_POD_SECURITY,),
                    audit_policy=self.api_server.audit_policy,
                ),
                controller_manager=parts.ControlPlaneProgram(image=self._image("kube-controller-manager")),
                proxy=parts.ControlPlaneProgram(
                    image=self._image("kube-proxy"),
                    disabled=True if self._cilium else None,
                ),
                scheduler=parts.ControlPlaneProgram(image=self._image("kube-scheduler")),
                etcd=parts.Etcd(
                    ca=_pair(bundle.etcd),
                    extra_args=ETCD_METRICS if self.etcd_metrics else {},
                    advertised_subnets=self.etcd_subnets,
                ),
                inline_manifests=self._manifests(),
                allow_scheduling_on_control_planes=self.allow_scheduling_on_control_planes or None,
            ),
        )

    def worker(self, install: parts.Install, settings: MachineSettings | None = None) -> parts.V1Alpha1:
        """The v1alpha1 document of a worker: certificates without keys, nothing of the control plane."""
        chosen = settings or MachineSettings()
        bundle = self.secrets
        talos, kubernetes = (base64_of(authority.certificate) for authority in (bundle.talos, bundle.kubernetes))
        certificate = parts.CertificateAndKey(crt=talos)
        return parts.V1Alpha1(
            machine=self._machine("worker", certificate, install, chosen, chosen.node_labels),
            cluster=parts.Cluster(**self._shared(), ca=parts.CertificateAndKey(crt=kubernetes)),
        )

    @property
    def _cilium(self) -> bool:
        return isinstance(self.cni, Cilium)

    def _machine(
        self,
        role: Literal["controlplane", "worker"],
        ca: parts.CertificateAndKey,
        install: parts.Install,
        settings: MachineSettings,
        labels: Mapping[str, str],
    ) -> parts.Machine:
        return parts.Machine(
            type=role,
            token=self.secrets.trustd_token,
            ca=ca,
            accepted_cas=tuple(map(base64_of, self.accepted_talos_cas)),
            cert_sans=settings.cert_sans,
            kubelet=parts.Kubelet(
                image=kubelet_image(self.kubelet_version or self.kubernetes_version),
                extra_mounts=settings.kubelet_mounts,
                extra_config={**settings.kubelet_config, **_registered(settings.node_taints)},
                node_ip_subnets=settings.node_ip_subnets,
            ),
            install=install,
            sysctls=settings.sysctls,
            sysfs=settings.sysfs,
            udev_rules=settings.udev_rules,
            logging=settings.logging,
            kernel_modules=settings.kernel_modules,
            files=self.api_server.files if role == "controlplane" else (),
            features={
                "diskQuotaSupport": True,
                "kubePrism": {"enabled": True, "port": KUBE_PRISM_PORT},
                "hostDNS": {"enabled": True, "forwardKubeDNSToHost": True},
                **(self._pods_access() if role == "controlplane" else {}),
            },
            node_labels=labels,
            node_annotations=settings.node_annotations,
            node_taints=settings.node_taints,
        )

    def _pods_access(self) -> dict[str, Any]:
        """Talos refuses this on workers."""
        if self.backup_namespace is None:
            return {}
        return {
            "kubernetesTalosAPIAccess": {
                "enabled": True,
                "allowedRoles": ["os:etcd:backup"],
                "allowedKubernetesNamespaces": [self.backup_namespace],
            }
        }

    def _shared(self) -> dict[str, Any]:
        return {
            "id": self.secrets.cluster_id,
            "secret": self.secrets.cluster_secret,
            "endpoint": self.endpoint,
            "cluster_name": self.name,
            "token": self.secrets.bootstrap_token,
            "accepted_cas": tuple(map(base64_of, self.accepted_kubernetes_cas)),
            "network": parts.ClusterNetwork(
                cni=None if isinstance(self.cni, Flannel) else "none",
                dns_domain=self.dns_domain,
                pod_subnets=self.pod_subnets,
                service_subnets=self.service_subnets,
            ),
            "discovery": self._discovery(),
        }

    def _discovery(self) -> dict[str, Any]:
        if self.discovery == "off":
            return {"enabled": False}
        service = {} if self.discovery == "public" else {"endpoint": self.discovery}
        # The registry in Kubernetes itself does not work with today's Kubernetes.
        return {"enabled": True, "registries": {"kubernetes": {"disabled": True}, "service": service}}

    def _manifests(self) -> tuple[parts.InlineManifest, ...]:
        if not isinstance(self.cni, Cilium) or self.cni.manifest is None:
            return ()
        return (parts.InlineManifest(name="cilium", contents=self.cni.manifest),)

    def _image(self, program: Program) -> str:
        return kubernetes_image(program, self.kubernetes_version)


def _registered(taints: Mapping[str, str]) -> dict[str, Any]:
    """The kubelet's setting for these taints.

    Talos sends labels, annotations and taints of a node in one update, on workers with the kubelet's credentials, and
    NodeRestriction refuses an update in which a kubelet changes its node's taints. Equal taints pass.
    """
    listed = [read_taint(key, text).wire() for key, text in sorted(taints.items())]
    return {"registerWithTaints": listed} if listed else {}


def _pair(pair: KeyPair) -> parts.CertificateAndKey:
    return parts.CertificateAndKey(crt=base64_of(pair.certificate), key=base64_of(pair.key))
