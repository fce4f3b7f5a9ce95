"""Facts about images of others, against the charts and modules that the lab has of them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from components.addons.cert_manager import cert_manager_values
from components.gateway.gateway_controllers import ai_gateway_values, envoy_gateway_values
from lab.install.building import module_folder
from lab.install.installer import Installation
from lab.install.parts import ModuleFolder
from lab.paths import Lab
from stacks.facts import chart_images, versions
from talos.images import DEFAULTS, kubelet_image, kubernetes_image

pytestmark = pytest.mark.row("000.07")

VALUES: Mapping[str, Mapping[str, Any]] = {
    "envoy_gateway": envoy_gateway_values("cluster.local"),
    "ai_gateway": ai_gateway_values(1, "seed"),
    "cert_manager": cert_manager_values(),
}
# Registry, path and tag, wherever they are in an object: in a container, an argument, or a configuration within a text.
_IMAGE = re.compile(r"(?<![\w./-])[a-z0-9-]+(?:\.[a-z0-9-]+)+/[a-z0-9/._-]+:[\w.-]+(?:@sha256:[0-9a-f]{64})?")


def rendered(lab: Lab, name: str, folder: Path) -> str:
    """The chart that the lab has, with the program's values and the hooks."""
    pin = versions.load().charts[name]
    values = folder / "values.json"
    values.write_text(json.dumps(VALUES[name]))
    chart = lab.bundle / "charts" / f"{pin.chart.rpartition('/')[2]}-{pin.version}.tgz"
    command = [str(lab.bin / "helm"), "template", name.replace("_", "-"), str(chart), "--values", str(values)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def module_text(lab: Lab, family: str, module: str, path: str) -> str:
    """A file of a module that a tool of the lab is built with."""
    wanted = ModuleFolder(family=family, module=module, path=path)
    return module_folder(Installation(lab, lab.bundle).builder, wanted, "tests").read_text()


@pytest.mark.parametrize("name", VALUES)
def test_a_rendering_names_the_images_and_what_is_unused(module_lab_of_tools: Lab, name: str, tmp_path: Path) -> None:
    entry = chart_images.load()[name]
    rendering = set(_IMAGE.findall(rendered(module_lab_of_tools, name, tmp_path)))
    unused = {image for image in rendering if versions.parts(image)[0] in entry.unused}
    assert rendering - unused == {*entry.images.get("chart", ()), *entry.images.get("controller", ())}
    assert {versions.parts(image)[0] for image in unused} == set(entry.unused)


def test_envoy_is_what_the_controller_starts_by_default(module_lab_of_tools: Lab) -> None:
    text = module_text(
        module_lab_of_tools, "envoy-gateway", "github.com/envoyproxy/gateway", "api/v1alpha1/shared_types.go"
    )
    [image] = re.findall(r'DefaultEnvoyProxyImage = "(.+)"', text)
    assert set(chart_images.load()["envoy_gateway"].images["compiled"]) == {image}


def test_images_of_machines_are_those_of_talos(module_lab_of_tools: Lab) -> None:
    module = "github.com/siderolabs/talos/pkg/machinery"
    assert ModuleFolder(family="talos-checker", module=module, path="").version == versions.load().talos
    text = module_text(module_lab_of_tools, "talos-checker", module, "constants/constants.go")
    theirs = dict(re.findall(r'^\t(\w+) += "(.+)"', text, re.MULTILINE))
    ours = DEFAULTS[versions.load().talos]
    assert f"{theirs['EtcdImage']}:{theirs['DefaultEtcdVersion']}" == ours.etcd
    assert f"{theirs['CoreDNSImage']}:{theirs['DefaultCoreDNSVersion']}" == ours.coredns
    assert versions.parts(ours.flannel)[1] == theirs["FlannelVersion"]
    assert kubelet_image("v1") == f"{theirs['KubeletImage']}:v1"
    assert kubernetes_image("kube-apiserver", "v1") == f"{theirs['KubernetesAPIServerImage']}:v1"
    assert kubernetes_image("kube-controller-manager", "v1") == f"{theirs['KubernetesControllerManagerImage']}:v1"
    assert kubernetes_image("kube-scheduler", "v1") == f"{theirs['KubernetesSchedulerImage']}:v1"
    assert kubernetes_image("kube-proxy", "v1") == f"{theirs['KubeProxyImage']}:v1"
