"""What a site is: every key that `Pulumi.<site>.yaml` may hold under `inference-platform:site`.

The way in is `stacks.site.loader`, which checks the form of each key, and that everything it names exists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from pydantic import Field, model_validator

from components.addons.charts import ChartsSpec
from components.specs.access import TenantSpec
from components.specs.addresses import AddressesSpec
from components.specs.autoscaling import AutoscalingSpec
from components.specs.callers import CallersSpec
from components.specs.certificates import CertificatesSpec
from components.specs.crd_bundle import CrdBundleSpec
from components.specs.database import DatabaseSpec
from components.specs.dns import DnsSpec
from components.specs.gateway import GatewaySpec
from components.specs.limits import GUARANTEE, CountersSpec, LimitsSpec, MostSpec, limit_of
from components.specs.logs import LogsSpec
from components.specs.longhorn import LonghornSpec
from components.specs.monitoring import MonitoringSpec
from components.specs.orders import OrderPolicySpec
from components.specs.portal import PortalSpec
from components.specs.rdma_devices import RdmaDevicesSpec
from components.specs.secrets import SecretsSpec
from components.specs.tiers import TierSpec
from components.specs.usage import UsageSpec
from components.specs.weights import WeightsSpec
from floor.problems import Path as KeyPath
from floor.problems import WrongValueError
from floor.revision_ids import RevisionId
from floor.spec import Name, Spec
from floor.stateful import Keeping
from stacks.facts import catalogue
from stacks.facts.hardware import GPUS, USUAL_GPU
from stacks.site.demand import OrderedModelSpec, PricesSpec, TakeOverSpec
from stacks.site.machines import MachinesSpec


class ClusterSpec(Spec):
    """The cluster that the platform is declared on: one that exists, or machines that become one."""

    kubeconfig: Path | None = None
    """File with address and credentials of an existing cluster; relative to the project."""
    machines: MachinesSpec | None = None
    """Machines from which this program makes a cluster."""
    gpu: str = USUAL_GPU
    """Kind of GPU in the nodes; the figures of every model follow from it."""
    gpu_stack: Literal["operator", "device_plugin", "external"] = "external"
    """What makes Kubernetes offer the GPUs. `operator`: this program installs NVIDIA's GPU operator; `device_plugin`:
    device plugin, GPU feature discovery and DCGM exporter instead, without a validator; `external`: the cluster has
    what it needs."""
    rdma_devices: RdmaDevicesSpec = Field(default_factory=RdmaDevicesSpec)
    """RDMA devices that nodes offer to pods."""

    @model_validator(mode="after")
    def _one_way(self) -> ClusterSpec:
        if (self.kubeconfig is None) == (self.machines is None):
            got = "neither" if self.machines is None else "both"
            raise WrongValueError(
                f"has {got} of kubeconfig and machines",
                allowed="one of them",
                fix="name the file of a cluster that exists, or the machines that become one",
            )
        return self


class ImagesSpec(Spec):
    """Which container images may run."""

    locked: bool = False
    """true: the file `images.lock` of the project decides. The program's own pods run its digests, and a site whose
    machines, charts or pods need an image that is not in it is refused. No image factory is asked: it built the locked
    installers before. `sitectl bundle lock` writes the file."""
    engine_ahead: bool = False
    """true: GPU nodes pull vLLM's image, some 10 GB, before a replica needs it, a quarter of them at once, and keep it.
    So a replica that moves to another node, comes with a new one or is not the first of an upgrade starts without the
    pull. With `storage.weights.place: nodes` they have it anyway, of the models that they serve."""


class StorageSpec(Spec):
    """Shared storage for model weights."""

    system: Literal["longhorn", "external"] = "external"
    """`longhorn`: this program installs Longhorn on the disks of `cluster.machines.hgx.storage`; `external`: the
    cluster has a storage system."""
    longhorn: LonghornSpec = Field(default_factory=LonghornSpec)
    """How Longhorn stores; with `system: longhorn`."""
    storage_class: str = Field(default="longhorn")
    """Class of the volumes; it must offer ReadWriteMany. With `system: longhorn` the program makes it, and classes for
    databases and scratch volumes beside it. Another class is another volume of each model, filled before servers move
    to it."""
    read_bytes_per_s: float = Field(default=1.0e9, ge=1.0e6, le=1.0e11)
    """What one replica reads from a shared volume; decides how long a start may take. Longhorn's own report has 669
    MiB/s of one volume without the NFS server before it: measure yours. With `weights.place: nodes`,
    `weights.node_read_bytes_per_s` decides."""
    shared_read_bytes_per_s: float | None = Field(default=None, ge=1.0e6, le=1.0e13)
    """What a volume's server gives to all that read it at once, such as the replicas of a model after a power failure;
    decides how long a start may take too. Without it, `read_bytes_per_s`: Longhorn reads such a volume through one NFS
    server, and no figure is public of one with several readers. Refused with `weights.place: nodes`."""
    weights: WeightsSpec = Field(default_factory=WeightsSpec)
    """Where the weights come from, and where they are kept."""
    volumes: Keeping = "protected"
    """protected: the engine refuses to delete or replace a model's volume, or to uninstall Longhorn; disposable: each
    goes with its model and with `destroy`."""

    @model_validator(mode="after")
    def _shared_rate_is_read(self) -> StorageSpec:
        # First: to raise a rate that is refused as well would be no fix.
        if self.weights.place == "nodes" and self.shared_read_bytes_per_s is not None:
            raise WrongValueError(
                "shared_read_bytes_per_s is set, and with weights.place nodes no volume is shared",
                fix="take it out: weights.node_read_bytes_per_s is what a replica reads from its node's disk",
            )
        return self

    @model_validator(mode="after")
    def _together_is_no_less(self) -> StorageSpec:
        together = self.shared_read_bytes_per_s
        if together is not None and together < self.read_bytes_per_s:
            # In full: a rounded figure might be refused too.
            most, alone = f"{together:.17g}", f"{self.read_bytes_per_s:.17g}"
            raise WrongValueError(
                "shared_read_bytes_per_s is less than read_bytes_per_s, and one replica reads no more than all do",
                got=f"{most} and {alone}",
                allowed=f"shared_read_bytes_per_s of at least {alone}",
                fix=f"lower read_bytes_per_s to {most}, or raise shared_read_bytes_per_s",
            )
        return self

    @model_validator(mode="after")
    def _longhorn_is_read(self) -> StorageSpec:
        if self.system == "external" and "longhorn" in self.model_fields_set:
            raise WrongValueError(
                "longhorn is set, and system external reads nothing of it",
                fix="set system to longhorn, or take the section longhorn out",
            )
        return self

    @property
    def replica_reads_bytes_per_s(self) -> float:
        """What one replica reads from where its weights are."""
        return self.weights.node_read_bytes_per_s if self.weights.place == "nodes" else self.read_bytes_per_s

    @property
    def replicas_read_bytes_per_s(self) -> float:
        """What all replicas of a model that read at once get together."""
        if self.weights.place == "nodes":
            # Replicas of one node read the same files, out of its page cache.
            return math.inf
        return self.shared_read_bytes_per_s or self.read_bytes_per_s


_Number = TypeVar("_Number", bound=float)


class Guarantee(NamedTuple):
    """Tokens per minute that a tenant is guaranteed."""

    tokens_per_minute: int
    path: KeyPath
    """The key that sets it: the tenant's own, or its plan's."""


class SiteConfig(Spec):
    """One site: one stack, one cluster."""

    name: Name
    """Name of the site; also the provider's identity, so a moved API address replaces nothing."""
    purpose: Literal["production", "trial"] = "production"
    """What the site is for: models are simulated on a `trial` alone."""
    cluster: ClusterSpec
    """The cluster that the platform is declared on."""
    recovered: str | None = None
    """File that `sitectl recover` wrote after a loss of the state: tenants' keys that `up` takes instead of new ones.
    Relative to the project; take it out once `up` is done."""
    crds: CrdBundleSpec = Field(default_factory=CrdBundleSpec)
    """The custom resource definitions that the program installs first."""
    charts: ChartsSpec = Field(default_factory=ChartsSpec)
    """Where Helm charts come from."""
    images: ImagesSpec = Field(default_factory=ImagesSpec)
    """Which container images may run."""
    storage: StorageSpec = Field(default_factory=StorageSpec)
    """Shared storage for model weights."""
    addresses: AddressesSpec = Field(default_factory=AddressesSpec)
    """Addresses of load balancers."""
    gateway: GatewaySpec
    """How the platform is reached."""
    certificates: CertificatesSpec = Field(default_factory=CertificatesSpec)
    """Who makes the gateway's certificate and renews it."""
    dns: DnsSpec = Field(default_factory=DnsSpec)
    """Who writes the records in DNS that lead to the site."""
    secrets: SecretsSpec = Field(default_factory=SecretsSpec)
    """Where the Secrets come from that other keys of this file name."""
    monitoring: MonitoringSpec = Field(default_factory=MonitoringSpec)
    """Who measures the platform, and what it is held to."""
    logs: LogsSpec = Field(default_factory=LogsSpec)
    """Where the logs of pods are kept."""
    autoscaling: AutoscalingSpec = Field(default_factory=AutoscalingSpec)
    """What scales models with `server.scaling`."""
    prices: PricesSpec | None = None
    """What the site's GPUs cost; without it no cost is computed."""
    models: dict[Name, OrderedModelSpec]
    """Models by the name that clients call them; `{}` for none."""
    orderable: dict[Name, OrderedModelSpec] = Field(default_factory=dict)
    """Models that people may order at the portal, each with the keys of `models.<name>`. None of them is served: its
    proof beside the models that are, with time and cost, is on the portal, and an order becomes a change of this
    file."""
    order_policy: OrderPolicySpec | None = None
    """Orders that no person has to approve: `sitectl order propose` asks the forge to merge their change as soon as its
    checks have passed. Without it a person merges each."""
    tiers: dict[Name, TierSpec] = Field(default_factory=dict)
    """Priorities by the name that tenants give as their `tier`. Controllers of the site's own need `enableLua`."""
    plans: dict[Name, LimitsSpec] = Field(default_factory=dict)
    """Limits by the name that tenants give as their `plan`."""
    counters: CountersSpec = Field(default_factory=CountersSpec)
    """What counts tenants' requests and tokens, where any tenant has a limit."""
    callers: CallersSpec = Field(default_factory=CallersSpec)
    """Who decides about a caller, and where keys are kept that people make while the platform runs."""
    database: DatabaseSpec = Field(default_factory=DatabaseSpec)
    """Who runs PostgreSQL for the directory of keys and the ledger."""
    portal: PortalSpec | None = None
    """Pages on which people order models and see what they use; none if not given."""
    usage: UsageSpec = Field(default_factory=UsageSpec)
    """The ledger: what each tenant used, and what it costs."""
    takes_over: dict[Name, TakeOverSpec] = Field(default_factory=dict)
    """Other sites of this checkout whose requests come here while they are away: the proof shows whether it carries
    them."""
    tenants: dict[Name, TenantSpec]
    """Tenants by name; `{}` for none."""

    @property
    def revisions(self) -> list[tuple[RevisionId, OrderedModelSpec]]:
        """Every revision of every model, by the models' names."""
        return [revision for name, spec in sorted(self.models.items()) for revision in spec.revisions(name)]

    def answered_by(self, revision: RevisionId) -> list[str]:
        """Tenants that a revision answers: dedicated replicas their own, and the others all that have none."""
        groups = self.models[revision.model].dedicated.items()
        own = {tenant: group for group, spec in groups for tenant in spec.tenants}
        may = [name for name, spec in self.tenants.items() if revision.model in spec.models]
        return [name for name in may if own.get(name, "") == revision.group]

    @property
    def limits(self) -> dict[str, dict[str, int]]:
        """Tenant -> each limit that it has, as `scope_of` knows it -> most of it, of the tenants with any."""
        return self._of_tenants(
            lambda limits: limits.given,
            lambda spec: {
                **_narrower("keys", {purpose: key.limits for purpose, key in spec.keys.items()}),
                **_narrower("models", spec.model_limits),
            },
        )

    @property
    def bounds(self) -> dict[str, dict[str, int]]:
        """Tenant -> key of each limit that it has and a gatekeeper holds -> most of it, of the tenants with any."""
        return self._of_tenants(lambda limits: limits.bounds)

    @property
    def cache_shares(self) -> dict[str, dict[str, float]]:
        """The same of the share of caches, under its key, of the tenants that have one."""
        return self._of_tenants(lambda limits: limits.shares)

    @property
    def budgets(self) -> dict[str, dict[str, float]]:
        """Tenant -> key of each limit of a month that it has -> most of it, of the tenants with any."""
        return self._of_tenants(lambda limits: limits.budgets)

    def _of_tenants(
        self,
        of: Callable[[LimitsSpec], dict[str, _Number]],
        narrower: Callable[[TenantSpec], dict[str, _Number]] = lambda _: {},
    ) -> dict[str, dict[str, _Number]]:
        merged = {
            name: {
                # A plan that the site has not is reported where its file is read.
                **(of(self.plans[spec.plan]) if spec.plan in self.plans else {}),
                **(of(spec.limits) if spec.limits else {}),
                **narrower(spec),
            }
            for name, spec in sorted(self.tenants.items())
        }
        return {name: limits for name, limits in merged.items() if limits}

    @property
    def guarantees(self) -> dict[str, Guarantee]:
        """The guarantee of each tenant that has one, by tenant."""
        guarantees = {}
        for name, spec in sorted(self.tenants.items()):
            plan = self.plans.get(spec.plan) if spec.plan else None
            if spec.limits and spec.limits.guaranteed_tokens_per_minute is not None:
                guarantees[name] = Guarantee(
                    spec.limits.guaranteed_tokens_per_minute, ("tenants", name, "limits", GUARANTEE)
                )
            elif plan and plan.guaranteed_tokens_per_minute is not None:
                guarantees[name] = Guarantee(plan.guaranteed_tokens_per_minute, ("plans", str(spec.plan), GUARANTEE))
        return guarantees

    @property
    def limits_tenants(self) -> bool:
        """Whether any tenant has a limit that is counted, or what counts them is to stay without."""
        counted = any("parallel_requests" in bounds for bounds in self.bounds.values())
        counted |= any(model.pool.admission == "pages" for _, model in self.revisions)
        return bool(self.limits or self.cache_shares) or counted or "counters" in self.model_fields_set

    @property
    def scales(self) -> bool:
        """Whether any model's number of replicas follows its load."""
        return any(model.server.scaling for _, model in self.revisions)

    @property
    def starts_on_request(self) -> bool:
        """Whether any model may have no replica until a request comes."""
        return any(model.server.least == 0 for _, model in self.revisions)

    @property
    def spans_nodes(self) -> bool:
        """Whether any model's replicas span several nodes."""
        return any(model.server.nodes > 1 for _, model in self.revisions)

    @property
    def overflows(self) -> dict[str, str]:
        """Model -> the one that answers its requests while it is full or away, of the models that have one."""
        return {name: model.overflow.to for name, model in sorted(self.models.items()) if model.overflow}

    @property
    def installs_keda(self) -> bool:
        """Whether the program installs what scales them."""
        return self.scales and self.autoscaling.system == "keda"

    @property
    def measures_hosts(self) -> bool:
        """Whether the program's Prometheus reads nodes and the control plane."""
        return self.monitoring.system == "prometheus_operator" and self.monitoring.hosts == "measured"

    @property
    def measures_pod_network(self) -> bool:
        """Whether it reads this program's Cilium too."""
        return self.measures_hosts and self.monitoring.pod_network == "measured"

    @property
    def has_gatekeeper(self) -> bool:
        """Whether the gatekeeper runs."""
        return self.callers.decided_by == "gatekeeper" or self.callers.keep_both

    @property
    def has_portal(self) -> bool:
        """Whether the portal runs."""
        return self.portal is not None

    @property
    def has_directory(self) -> bool:
        """Whether the directory of keys runs."""
        return self.has_gatekeeper and self.callers.database_secret is not None

    @property
    def has_watcher(self) -> bool:
        """Whether the watcher of GPU faults runs."""
        return self.monitoring.gpu_faults.watches

    @property
    def backs_up_database(self) -> bool:
        """Whether the program backs up a PostgreSQL that it runs."""
        return self.database.run_by == "cloudnative_pg" and self.database.backups is not None

    @property
    def has_ledger(self) -> bool:
        """Whether the ledger of usage runs."""
        return self.usage.database_secret is not None


def _narrower(scope: str, limits: Mapping[str, MostSpec | None]) -> dict[str, int]:
    """The limits of a tenant's keys or models."""
    return {
        limit_of(scope, name, key): most
        for name, spec in sorted(limits.items())
        for key, most in (spec.given if spec else {}).items()
    }


CHOICES: Mapping[str, Callable[[], list[str]]] = {
    "cluster.gpu": lambda: sorted(GPUS),
    "models.<name>.catalogue": catalogue.names,
    "models.<name>.canary.catalogue": catalogue.names,
    "models.<name>.server.speculative.catalogue": catalogue.names,
    "orderable.<name>.catalogue": catalogue.names,
    "orderable.<name>.server.speculative.catalogue": catalogue.names,
}
"""Values that a key accepts because a file or table has them, by the key's path with `<name>` for chosen names."""
