"""The annotated production site in a lab: its rack, its project with a mirror folder of charts, and its stack file.

What differs from Pulumi.prod.yaml is in `edit`, each with its reason, and in the two prefixes of
`stack_text`; everything else is as checked in.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client

from lab import session
from lab.cluster import api, network
from lab.cluster.parts import spec_of, status_of
from lab.machines import lab_rack
from lab.paths import CHECKOUT, Lab, NetworkPlan
from lab.site import up
from lab.site.supervisor import HUB_PORT
from stacks.facts import versions
from tests.lab.prod.stub_charts import cilium_manifest, write_stub_charts
from tests.lab.site.authority import Authority, new_authority
from tests.lab.site.project_copies import copy_project
from tests.lab.waiting import eventually

FILE = CHECKOUT / "Pulumi.prod.yaml"
KEY = "inference-platform:site"
STACK = "prod"
STORE = "platform-keys"
"""Namespace with the keys that external-secrets reads."""
_CLUSTER_ALONE = """
import pulumi
from stacks.program import debug_messages, interrupts
from stacks.program.cluster_access import cluster_access
from stacks.program.engine_config import plan_stack

interrupts.end_without_a_traceback()
debug_messages.send_none()
cluster_access(plan_stack(pulumi.get_stack()))
"""

Document = dict[str, Any]


def edit(site: Document, plan: NetworkPlan) -> None:
    """What differs in a lab, and the two optional parts that the site leaves out."""
    machines = site["cluster"]["machines"]
    # The lab's own image factory, also as the mirror of every registry: machines pull installers alone.
    machines["image_factory"] = f"http://{plan.image_factory}:{lab_rack.FACTORY_PORT}"
    machines["registries"]["mirrors"]["*"]["endpoints"] = [machines["image_factory"]]
    # Emulated machines give pods no access to their API, and serve no ServiceAccount of Talos.
    del machines["etcd_backup"]
    # What the lab's API server and pod runner hand out.
    machines["networks"] |= {"pods": str(plan.pods), "services": str(plan.services)}
    balancers = plan.load_balancers.network_address
    machines["networks"]["nodes"].append(str(plan.load_balancers))
    site["addresses"]["pool"] = [f"{balancers + 100}-{balancers + 109}"]
    site["gateway"]["address"] = str(balancers + 100)
    # A folder instead of a registry: real charts as far as the lab has them, and stubs.
    site["charts"]["mirror"] = ".bundle/charts"
    # The lab's hub speaks plain HTTP, and needs no authority.
    site["storage"]["weights"] |= {"mirror": f"http://{plan.hub}:{HUB_PORT}", "ca_config_map": None}
    # No GPU computes here: engines are simulated, which no production site may.
    site["purpose"] = "trial"
    site["storage"]["weights"]["simulated"] = "bring"
    for model in site["models"].values():
        model["server"] |= {"engine": "simulator", "simulated_load_scale": 0.01}
        # All of it shares two cores.
        model["pool"]["metrics_interval_ms"] = 250
        # No stream lasts: simulators and pickers leave only after the longest, whether there is one or not.
        model["server"]["longest_stream_s"] = 30
    site["gateway"]["longest_stream_s"] = 30
    # Secrets out of a store, so that one run needs no one who makes them meanwhile.
    site["secrets"] = {
        "system": "external_secrets",
        "store": {"kubernetes": {"namespace": STORE}},
        "remote": {
            "site-ca": {"key": "ca"},
            "hub-token": {"key": "hub"},
            "backup-target": {"key": "backup"},
            "alertmanager-config": {"key": "alerts"},
        },
    }
    # No CloudNativePG runs here, so nothing that asks a database. A gatekeeper decides, and plans are counted.
    for section in ("database", "portal", "usage"):
        del site[section]
    for tenant in site["tenants"].values():
        tenant.pop("people", None)
    site["cluster"]["rdma_devices"]["system"] = "network_operator"
    site["cluster"]["machines"]["hgx"]["rdma"] = "roce"


def permit(site: Document) -> None:
    """Let what holds data go."""
    site["storage"]["volumes"] = "disposable"
    site["cluster"]["machines"]["secrets"] = "disposable"


def stack_text(plan: NetworkPlan) -> str:
    """The stack file, with the machines' addresses moved into the lab."""
    nodes = str(plan.nodes.network_address).rpartition(".")[0]
    document = yaml.safe_load(FILE.read_text().replace("10.5.0.", f"{nodes}."))
    edit(document["config"][KEY], plan)
    return yaml.safe_dump(document, sort_keys=False)


def rack(site: Mapping[str, Any], plan: NetworkPlan) -> Document:
    """A rack with the machines that the site names, at their addresses; hgx machines have GPUs."""
    machines = [
        {
            "name": name,
            "address": node["address"],
            "pod_cidr": str(plan.node_pods(ordinal)),
            "hardware": "hgx-h200" if node["role"] == "hgx" else "infra",
            # As the site expects them: keys enrolled, and started from the signed medium.
            "secure_boot": site["cluster"]["machines"]["secure_boot"],
        }
        for ordinal, (name, node) in enumerate(site["cluster"]["machines"]["nodes"].items())
    ]
    return {**lab_rack.description(plan, 0), "machines": machines}


@dataclass(frozen=True, kw_only=True)
class ProdSite:
    """The project, and the lab that its machines are in."""

    lab: Lab
    project: Path
    tools: Lab
    authority: Authority

    @property
    def file(self) -> Path:
        return self.project / FILE.name

    @property
    def site(self) -> Document:
        document: Document = yaml.safe_load(self.file.read_text())["config"][KEY]
        return document

    def write(self) -> None:
        """The project: the checkout's program, a mirror folder, and the pinned stub of Cilium's manifest."""
        copy_project(self.project, "stacks")
        self.file.write_text(stack_text(self.lab.network))
        bundle = self.project / ".bundle"
        (bundle / "cilium").mkdir(parents=True)
        (bundle / "crds").symlink_to(self.tools.bundle / "crds")
        manifest = cilium_manifest()
        (bundle / "cilium" / "cilium.yaml").write_text(manifest)
        pins = self.project / "stacks" / "facts" / "versions.yaml"
        digest = hashlib.sha256(manifest.encode()).hexdigest()
        pins.write_text(pins.read_text().replace(versions.load().cilium.manifest, digest))
        shutil.copytree(self.tools.bundle / "charts", bundle / "charts")
        write_stub_charts(bundle / "charts", self.tools)

    def rewrite(self, change: Any) -> None:
        """Change the site in the stack file."""
        document = yaml.safe_load(self.file.read_text())
        change(document["config"][KEY])
        self.file.write_text(yaml.safe_dump(document, sort_keys=False))

    def pulumi(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """pulumi on the stack prod, whose state is the lab's."""
        environment = session.environment(self.lab)
        for variable in ("PULUMI_STACK", "PULUMI_OPTION_CONFIG_FILE"):
            environment.pop(variable, None)
        done = subprocess.run(
            ["pulumi", *arguments, "--stack", STACK, "--non-interactive"],
            cwd=self.project,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        # Steps come first and messages last; the proof of each model is between them.
        assert not check or done.returncode == 0, "\n".join([done.stdout[:20_000], done.stdout[-6000:], done.stderr])
        return done

    def state(self) -> Document:
        deployment: Document = json.loads(self.pulumi("stack", "export").stdout)["deployment"]
        return deployment

    def urns(self) -> set[str]:
        """What the state holds."""
        return {resource["urn"] for resource in self.state().get("resources", [])}

    def make_cluster(self) -> None:
        """The machines become a cluster, by the program's own part for them; nothing of the platform is on it.

        The lab's stand-ins for what this site brings itself, a class of volumes and one of GPU pods, are taken away.
        """
        up.bring_up(self.lab, rack=rack(self.site, self.lab.network))
        vip = self.site["cluster"]["machines"]["networks"]["vip"]
        network.own_address(self.lab, vip)
        session.prepare(self.lab)
        self.pulumi("stack", "init")
        self.pulumi("config", "set", "--secret", "registry-password", "none")
        whole = self.project / "__main__.py"
        kept = whole.read_text()
        whole.write_text(_CLUSTER_ALONE)
        self.pulumi("up", "--yes", "--skip-preview")
        whole.write_text(kept)
        with api.connect(self.lab) as connection:
            client.StorageV1Api(connection).delete_storage_class("longhorn")
            client.NodeV1Api(connection).delete_runtime_class("nvidia")
            self._fill_store(client.CoreV1Api(connection))
            apps = client.AppsV1Api(connection)
            eventually(lambda: all(map(_is_ready, apps.list_namespaced_deployment("kube-system").items)))

    def _fill_store(self, core: client.CoreV1Api) -> None:
        core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=STORE)))
        alerts = {"route": {"receiver": "none"}, "receivers": [{"name": "none"}]}
        entries = {
            "ca": {"tls.crt": self.authority.certificate, "tls.key": self.authority.key},
            "hub": {"token": "of-no-use"},
            "backup": {"AWS_ACCESS_KEY_ID": "of-no-use", "AWS_SECRET_ACCESS_KEY": "of-no-use"},
            "alerts": {"alertmanager.yaml": yaml.safe_dump(alerts)},
        }
        for name, values in entries.items():
            data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
            secret = client.V1Secret(metadata=client.V1ObjectMeta(name=name), data=data)
            core.create_namespaced_secret(STORE, secret)


def _is_ready(deployment: client.V1Deployment) -> bool:
    return status_of(deployment).ready_replicas == spec_of(deployment).replicas


def new_prod_site(lab: Lab, folder: Path, tools: Lab) -> ProdSite:
    """The project is written; the lab is down."""
    site = ProdSite(lab=lab, project=folder / "project", tools=tools, authority=new_authority("site CA"))
    site.write()
    return site
