"""Cilium's manifest: its chart from the pinned module, rendered as the machines of a site use it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from lab.errors import LabError
from lab.install.parts import CILIUM_CHART
from lab.install.store import file_sha256
from talos.cni import cilium_manifest, cilium_values
from talos.problems import ConfigError

FILE = "cilium.yaml"
SUMS = "SHA256SUMS"
# What the chart asks the cluster for unless it is set; a manifest must be the same wherever it is rendered.
_KUBERNETES_VERSION = "v1.36.3"
_RENDER_LIMIT_S = 120


def revision(helm_version: str) -> str:
    """Everything except the chart that decides the manifest's bytes."""
    return f"cilium-1 {helm_version} {_KUBERNETES_VERSION} {json.dumps(cilium_values(), sort_keys=True)}"


def write_cilium(helm: Path, chart: Path, folder: Path) -> None:
    """Write cilium.yaml and SHA256SUMS; LabError when the chart does not render to what a cold cluster can use."""
    command = [str(helm), "template", "cilium", str(chart), "--namespace", "kube-system"]
    command += ["--kube-version", _KUBERNETES_VERSION, "--values", "-"]
    done = subprocess.run(
        command,
        input=json.dumps(cilium_values()),
        capture_output=True,
        text=True,
        timeout=_RENDER_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise LabError(
            f"part cilium: helm cannot render {chart}: {done.stderr.strip()[-500:]}",
            fix=f"correct cilium_values in talos/cni.py for Cilium {CILIUM_CHART.version}, or pin another version",
        )
    try:
        text = cilium_manifest(done.stdout)
    except ConfigError as error:
        raise LabError(f"part cilium: {error}", fix="pin another version of Cilium") from error
    (folder / FILE).write_text(text)
    (folder / SUMS).write_text(f"{file_sha256(folder / FILE)}  {FILE}\n")
