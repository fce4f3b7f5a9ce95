"""Where the lab keeps things, and its addresses. Other lab modules use a `Lab`; none builds paths itself."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from lab.errors import LabError

CHECKOUT = Path(__file__).resolve().parent.parent
SITE_FILE = CHECKOUT / "Pulumi.lab.yaml"
# In the folder of the tools: programs of versions before those that are pinned, as NAME-TAG by their images' tags.
EARLIER = "earlier"

# RFC 2544 sets 198.18.0.0/15 aside for test beds, so a lab never shadows a network that is in real use.
_TEST_BED = IPv4Network("198.18.0.0/15")
_ADDRESSES_A_LAB = 2**14
_INDEXES = tuple(str(index) for index in range(_TEST_BED.num_addresses // _ADDRESSES_A_LAB))


@dataclass(frozen=True, kw_only=True)
class NetworkPlan:
    """The addresses of one lab: a /18 of the test-bed range, cut into pods, services, load balancers, nodes, uplink."""

    index: int

    @property
    def base(self) -> IPv4Address:
        return _TEST_BED.network_address + self.index * _ADDRESSES_A_LAB

    @property
    def whole(self) -> IPv4Network:
        """All of the lab's addresses; the host has one route for it."""
        return IPv4Network((self.base, 18))

    @property
    def pods(self) -> IPv4Network:
        return IPv4Network((self.base, 19))

    @property
    def services(self) -> IPv4Network:
        return IPv4Network((self.base + 32 * 256, 20))

    @property
    def load_balancers(self) -> IPv4Network:
        return IPv4Network((self.base + 48 * 256, 24))

    @property
    def nodes(self) -> IPv4Network:
        """The machines' own network."""
        return IPv4Network((self.base + 49 * 256, 24))

    @property
    def uplink(self) -> IPv4Network:
        """A /30 between the host (first address) and the lab's own network namespace (second address)."""
        return IPv4Network((self.base + 63 * 256, 30))

    @property
    def image_factory(self) -> IPv4Address:
        """Where the emulated image factory answers, next to the machines."""
        return self.uplink.network_address + 9

    @property
    def hub(self) -> IPv4Address:
        """Where the emulated hub of models answers."""
        return self.uplink.network_address + 10

    @property
    def registry(self) -> IPv4Address:
        """Where the registry of a lab that comes up from a bundle answers."""
        return self.uplink.network_address + 11

    @property
    def database(self) -> IPv4Address:
        """Where the operator's PostgreSQL answers."""
        return self.uplink.network_address + 12

    @property
    def bridge_address(self) -> IPv4Address:
        """The pod bridge's address inside the lab's namespace; the API server advertises it."""
        return self.base + 1

    @property
    def dns_address(self) -> IPv4Address:
        """ClusterIP of the kube-dns Service."""
        return self.services.network_address + 10

    def node_address(self, ordinal: int) -> IPv4Address:
        """Address of the machine with this ordinal (0 to 199)."""
        return self.nodes.network_address + 10 + ordinal

    def node_pods(self, ordinal: int) -> IPv4Network:
        """The /24 out of which this node's pods get addresses; the first /24 holds the bridge."""
        return list(self.pods.subnets(new_prefix=24))[1 + ordinal]


@dataclass(frozen=True, kw_only=True)
class Lab:
    """One emulated site on this machine: its folder, its address plan and the cache of built tools.

    `home` is dropped by `lab down`; `cache` outlives labs and checkouts, and is keyed by content. `site_file` is the
    stack file of its site, with the addresses of index 0.
    """

    home: Path
    cache: Path
    index: int = 0
    site_file: Path = SITE_FILE

    @classmethod
    def from_environment(cls) -> Lab:
        """LAB_HOME (default .lab in the checkout), LAB_INDEX (0), LAB_CACHE (default ~/.cache/inference-lab),
        LAB_SITE_FILE (the lab's own choice, else Pulumi.lab.yaml).
        """
        index = os.environ.get("LAB_INDEX", "0")
        if index not in _INDEXES:
            raise LabError(
                f"LAB_INDEX is {index!r}; allowed: {', '.join(_INDEXES)}", fix="unset it or choose one of these"
            )
        cache_root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        lab = cls(
            home=Path(os.environ.get("LAB_HOME", CHECKOUT / ".lab")).resolve(),
            cache=Path(os.environ.get("LAB_CACHE", cache_root / "inference-lab")).resolve(),
            index=int(index),
        )
        chosen = lab.chosen_site if lab.chosen_site.exists() else SITE_FILE
        return replace(lab, site_file=Path(os.environ.get("LAB_SITE_FILE", chosen)).resolve())

    def make_folders(self) -> None:
        """The folders that hold keys, tokens and what clients asked: for their owner alone.

        Pods that run as other users see what is mounted into them, and do not come by these folders.
        """
        for folder in (self.home, self.logs, self.pods, self.volumes, self.pulumi):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)

    @property
    def network(self) -> NetworkPlan:
        return NetworkPlan(index=self.index)

    @property
    def prefix(self) -> str:
        """Starts the name of every network namespace and link of this lab, so `lab down` can find what is ours."""
        return f"ipl{self.index}"

    @property
    def namespace(self) -> str:
        """Network namespace that holds the control plane, kube-proxy's rules and the pod bridge."""
        return f"{self.prefix}-site"

    @property
    def bridge(self) -> str:
        return f"{self.prefix}-pods"

    @property
    def bin(self) -> Path:
        """Links to the tools that the installer built, one name each."""
        return self.home / "bin"

    @property
    def bundle(self) -> Path:
        """CRDs and charts taken out of the pinned modules."""
        return self.home / "bundle"

    @property
    def kubeconfig(self) -> Path:
        return self.home / "kubeconfig"

    @property
    def gateway_ca(self) -> Path:
        """Certificate, in PEM, of the CA that the gateway's own certificate is of."""
        return self.home / "gateway-ca.crt"

    @property
    def gateway_ca_key(self) -> Path:
        return self.home / "gateway-ca.key"

    @property
    def database(self) -> Path:
        """Data of the operator's PostgreSQL, in a lab whose site names one."""
        return self.home / "database"

    @property
    def database_password(self) -> Path:
        """Of the roles of its databases."""
        return self.home / "database-password"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def volumes(self) -> Path:
        """Backing folders of persistent volumes."""
        return self.home / "volumes"

    def node_folder(self, node: str, path: str) -> Path:
        """What a node has at a path of its own disks."""
        return self.home / "node-disks" / node / path.lstrip("/")

    @property
    def hub_faults(self) -> Path:
        """What a test makes the emulated hub do wrong; there only while it does."""
        return self.home / "hub-faults.json"

    @property
    def packed(self) -> Path:
        """Link to the bundle that the lab's images and weights come from; absent in a lab that pulls nothing."""
        return self.home / "packed"

    @property
    def registry(self) -> Path:
        """Configuration and images of the registry of a lab that comes up from a bundle."""
        return self.home / "registry"

    @property
    def images(self) -> Path:
        """What the pod runner pulled out of a mirror: a folder per digest."""
        return self.home / "images"

    @property
    def hub_model(self) -> Path:
        """Files that the emulated hub has as every model's; there only in a lab whose engines are real."""
        return self.home / "hub-model"

    @property
    def chosen_site(self) -> Path:
        """The stack file of a lab that was brought up with another engine than the checked-in one has."""
        return self.home / "chosen-site.yaml"

    @property
    def pods(self) -> Path:
        """The pod runner's folders, one per pod."""
        return self.home / "pods"

    @property
    def pulumi(self) -> Path:
        """File backend of the lab's stacks."""
        return self.home / "pulumi"
