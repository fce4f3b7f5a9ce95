"""Stub charts in the names and pinned versions of others that no registry of the lab has, and Cilium's stub manifest.

Each states that it is a stub. Their operators are simulated (simulated_operator.py) or, for external-secrets, an older
release. Definitions have no schema: what is played is the order, and the status that operators write.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bundle.definitions import definitions_file
from lab.install.building import module_folder
from lab.install.installer import Installation
from lab.install.parts import ModuleFolder
from lab.paths import Lab
from stacks.facts import versions
from tests import stub_charts

_CHARTS = Path(__file__).parent / "charts"
_SCRIPT = Path(__file__).with_name("simulated_operator.py")
_NOTE = "A stub of the lab's tests: its operator is simulated."
_EXTERNAL_SECRETS = ModuleFolder(
    family="external-secrets", module="github.com/external-secrets/external-secrets", path="deploy/crds/bundle.yaml"
)
# Those that external-secrets' chart leaves out by the program's values.
_LEFT_OUT = {"clusterexternalsecrets", "clusterpushsecrets", "pushsecrets", "clustergenerators"}

Document = dict[str, Any]


def definition(kind: str, group: str, version: str, *, namespaced: bool = False) -> Document:
    """A definition without a schema, with a status of its own."""
    plural = f"{kind.lower()[:-1]}ies" if kind.endswith("y") else f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": [served],
        },
    }


# In `crds/` of the charts: Helm makes these and never removes them. A hook of NVIDIA's chart removes the first.
STAYING = (definition("NicClusterPolicy", "mellanox.com", "v1alpha1"),)
_IN_CRDS = {
    "gpu_operator": (definition("ClusterPolicy", "nvidia.com", "v1"),),
    "network_operator": STAYING,
}
_IN_TEMPLATES = {
    "longhorn": tuple(definition(kind, "longhorn.io", "v1beta2", namespaced=True) for kind in ("Node", "Setting")),
}


def write_stub_charts(folder: Path, tools: Lab) -> None:
    """The stubs, beside charts that the folder has. That of node-exporter has nothing in it: no node is a machine."""
    stub_charts.write_stub_charts(folder, ["node_exporter"])
    for name in ("gpu_operator", "longhorn", "network_operator", "external_secrets"):
        pin = versions.load().charts[name]
        chart = pin.chart.rpartition("/")[2]
        target = folder / f"{chart}-{pin.version}.tgz"
        assert not target.exists(), f"{target.name}: a stub would take the place of a chart"
        about = {"apiVersion": "v2", "name": chart, "version": pin.version, "description": _NOTE}
        files = {
            "Chart.yaml": yaml.safe_dump(about),
            "values.yaml": "{}\n",
            "operator.py": _SCRIPT.read_text(),
            "templates/NOTES.txt": f"{_NOTE}\n",
            "templates/_simulated.tpl": (_CHARTS / "simulated.tpl").read_text(),
            "crds/definitions.yaml": yaml.safe_dump_all(_IN_CRDS.get(name, ())),
            "templates/definitions.yaml": yaml.safe_dump_all(_IN_TEMPLATES.get(name, ())),
        }
        files |= {
            f"templates/{template.name}": template.read_text() for template in (_CHARTS / chart / "templates").iterdir()
        }
        if name == "external_secrets":
            files["definitions.yaml"] = _external_secrets_definitions(tools)
        _pack(target, chart, files)


def cilium_manifest() -> str:
    """What a machine config brings in place of Cilium: its kinds of addresses, and its operator, simulated."""
    space, name = "kube-system", "simulated-cilium-operator"
    meta = {"name": name, "namespace": space, "annotations": {"simulated.lab.example/note": _NOTE}}
    account = {"kind": "ServiceAccount", "name": name, "namespace": space}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    container = {
        "name": "simulated",
        "image": "docker.io/library/python:3.13.1",
        "args": ["/simulated/operator.py", "cilium-operator"],
        "volumeMounts": [{"name": "simulated", "mountPath": "/simulated", "readOnly": True}],
    }
    pod = {
        "serviceAccountName": name,
        "containers": [container],
        "volumes": [{"name": "simulated", "configMap": {"name": name}}],
    }
    objects: list[Document] = [
        definition("CiliumLoadBalancerIPPool", "cilium.io", "v2"),
        definition("CiliumL2AnnouncementPolicy", "cilium.io", "v2alpha1"),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": role,
            "subjects": [account],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"operator.py": _SCRIPT.read_text()}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
            },
        },
    ]
    return yaml.safe_dump_all(objects)


def _external_secrets_definitions(tools: Lab) -> str:
    """Those of the release that the lab has built, without the webhook that converts between versions."""
    source = module_folder(Installation(tools, tools.bundle).builder, _EXTERNAL_SECRETS, "tests")
    items = json.loads(definitions_file(source.read_text(), str(source)))["items"]
    kept = [item for item in items if item["spec"]["names"]["plural"] not in _LEFT_OUT]
    for item in kept:
        item["spec"].pop("conversion", None)
    # In JSON, which is less than YAML to parse.
    return "\n".join(f"---\n{json.dumps(item)}" for item in kept)


def _pack(target: Path, chart: str, files: Mapping[str, str]) -> None:
    with tarfile.open(target, "w:gz") as archive:
        for name, text in sorted(files.items()):
            if not text:
                continue
            member = tarfile.TarInfo(f"{chart}/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
