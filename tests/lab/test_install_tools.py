"""What the installer put into `lab.bin` and `lab.bundle`, by running it: versions as pinned, charts that render."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Mapping
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from bundle.fetching import Sources, write_crds
from bundle.helm import Helm
from bundle.locked_charts import ChartFolder
from bundle.store import ContentStore
from lab.install import install, pulumi_choice
from lab.install.parts import CHART_SOURCES, GO_FAMILIES
from lab.paths import Lab
from stacks.facts import chart_values, versions

VERSION_COMMANDS = {
    "alertmanager": ["alertmanager", "--version"],
    "amtool": ["amtool", "--version"],
    "coredns": ["coredns", "-version"],
    "crane": ["crane", "version"],
    "envoy": ["envoy", "--version"],
    "envoy-gateway": ["envoy-gateway", "version"],
    "etcd": ["etcd", "--version"],
    "etcdutl": ["etcdutl", "version"],
    "helm": ["helm", "version"],
    "kube-apiserver": ["kube-apiserver", "--version"],
    "kube-controller-manager": ["kube-controller-manager", "--version"],
    "kube-proxy": ["kube-proxy", "--version"],
    "kube-scheduler": ["kube-scheduler", "--version"],
    "kube-state-metrics": ["kube-state-metrics", "version"],
    "kubectl": ["kubectl", "version", "--client"],
    "kwok": ["kwok", "--version"],
    "kwokctl": ["kwokctl", "--version"],
    "prometheus": ["prometheus", "--version"],
    "prometheus-config-reloader": ["prometheus-config-reloader", "--version"],
    "prometheus-operator": ["prometheus-operator", "--version"],
    "promtool": ["promtool", "--version"],
    "pulumi": ["pulumi", "version"],
    "registry": ["registry", "--version"],
}
OTHER_PINS = {"envoy": "/1.39.1/"}


@pytest.fixture(scope="module")
def installed() -> Lab:
    """This checkout's lab folder with every tool in it; no lab runs."""
    lab = Lab.from_environment()
    install(lab)
    return lab


def _run(lab: Lab, command: list[str], environment: Mapping[str, str] | None = None) -> str:
    answer = subprocess.run(
        [lab.bin / command[0], *command[1:]],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PATH": str(lab.bin), "HOME": str(lab.home), "PULUMI_SKIP_UPDATE_CHECK": "1", **(environment or {})},
    )
    return answer.stdout + answer.stderr


@pytest.mark.parametrize("name", sorted(VERSION_COMMANDS))
def test_each_program_says_the_version_that_is_pinned(installed: Lab, name: str) -> None:
    if name == "pulumi" and pulumi_choice(installed).official:
        pytest.skip("this machine's own pulumi serves")
    pins = {program: family.release for family in GO_FAMILIES for program in family.names}
    assert {**pins, **OTHER_PINS}[name] in _run(installed, VERSION_COMMANDS[name])


@pytest.mark.parametrize(
    ("chart", "image"),
    [
        ("gateway-helm", "docker.io/envoyproxy/gateway"),
        ("ai-gateway-helm", "docker.io/envoyproxy/ai-gateway-controller"),
    ],
)
def test_the_charts_render_without_a_network(installed: Lab, chart: str, image: str) -> None:
    # A proxy that answers nothing: a chart that fetched its dependency would fail here.
    closed = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    packed = installed.bundle / "charts" / f"{chart}-{CHART_SOURCES[chart].version}.tgz"
    command = ["helm", "template", "x", str(packed), "-n", "x-system"]
    objects: list[dict[str, Any]] = [
        document for document in yaml.safe_load_all(_run(installed, command, closed)) if document
    ]
    deployment = next(document for document in objects if document["kind"] == "Deployment")
    used = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    assert used == f"{image}:{CHART_SOURCES[chart].version}"
    assert not [document for document in objects if document["kind"] == "CustomResourceDefinition"]


@pytest.mark.parametrize("name", ["envoy_gateway", "ai_gateway", "cert_manager"])
def test_the_documented_values_are_those_of_the_chart(installed: Lab, name: str) -> None:
    listed = chart_values.load(name)
    chart = listed.chart.rpartition("/")[2]
    packed = installed.bundle / "charts" / f"{chart}-{CHART_SOURCES[chart].version}.tgz"
    with tarfile.open(packed) as archive:
        values = archive.extractfile(f"{chart}/values.yaml")
        assert values is not None
        wrong = list(listed.misread(values.read().decode()))
    # The configuration of Envoy Gateway, of which the chart shows only a part: an API that its program reads.
    parts = ("extensionManager.", "extensionApis.", "rateLimit.", "provider.kubernetes.rateLimit")
    api = tuple(f"config.envoyGateway.{part}" for part in parts)
    assert [text for text in wrong if not text.startswith(api)] == []


def test_the_bundle_serves_the_kinds_that_the_program_uses(installed: Lab) -> None:
    served = {
        (crd["spec"]["names"]["kind"], version["name"])
        for file in versions.load().crds
        for crd in json.loads((installed.bundle / "crds" / file).read_text())["items"]
        for version in crd["spec"]["versions"]
        if version["served"]
    }
    assert served >= {
        ("GatewayClass", "v1"),
        ("Gateway", "v1"),
        ("HTTPRoute", "v1"),
        ("ReferenceGrant", "v1beta1"),
        ("InferencePool", "v1"),
        ("InferenceObjective", "v1alpha2"),
        ("EnvoyProxy", "v1alpha1"),
        ("ClientTrafficPolicy", "v1alpha1"),
        ("BackendTrafficPolicy", "v1alpha1"),
        ("SecurityPolicy", "v1alpha1"),
        ("AIGatewayRoute", "v1beta1"),
        ("BackendSecurityPolicy", "v1beta1"),
    }


def test_the_sums_are_those_of_the_files(installed: Lab) -> None:
    folder = installed.bundle / "crds"
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folder, check=True)


def test_a_sites_bundle_is_the_same_by_helm_out_of_a_repository(installed: Lab, tmp_path: Path) -> None:
    """Packed charts behind HTTP, taken by the real helm: the pins hold for the files that come out."""
    charts = tmp_path / "charts"
    shutil.copytree(installed.bundle / "charts", charts)
    _run(installed, ["helm", "repo", "index", str(charts)])
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(charts))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        helm, address = Helm(str(installed.bin / "helm"), tmp_path), f"http://127.0.0.1:{server.server_port}"
        pins = versions.load()
        by_chart = {file: digest for file, digest in pins.crds.items() if pins.crd_sources[file].chart}
        gateways = ("envoy_gateway", "ai_gateway")
        some = pins.model_copy(update={"crds": by_chart})
        sources = Sources(
            versions=some, helm=helm, mirror=address, wanted=gateways, parts=versions.load().optional_parts
        )
        assert len(write_crds(sources, tmp_path / "crds", lambda _: None)) == len(by_chart) == 4
        folder = ChartFolder(project=tmp_path, folder=tmp_path / "pulled", store=ContentStore(tmp_path / "store"))
        *pulled, lock = folder.write(sources, lambda _: None)
        server.shutdown()
    assert [file.read_bytes() for file in pulled] == [(charts / file.name).read_bytes() for file in pulled]
    subprocess.run(["sha256sum", "--check", "--quiet", lock.name], cwd=tmp_path, check=True)
