"""helm.sh/v4 Chart: rendered by the helm binary from a local chart, unfolded into child resources."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import pulumi

from lab.plugins.kubernetes.errors import ProviderError
from lab.plugins.kubernetes.objects import annotation
from lab.plugins.kubernetes.properties import Tree
from lab.plugins.kubernetes.session import ProviderSession
from lab.plugins.kubernetes.yaml_components import Unfolded, parse_documents

_RESOURCE_POLICY: Final = "helm.sh/resource-policy"
_HOOK: Final = "helm.sh/hook"
_RENDER_LIMIT_S: Final = 120
# Helm's protocol for what cannot be covered without a registry.
_NOT_COVERED: Final = ("postRenderer", "verify", "keyring")


class Chart(Unfolded):
    """A chart's objects as resources; its hooks are left out, as the official provider does."""

    def __init__(
        self, session: ProviderSession, name: str, inputs: dict[str, Any], options: pulumi.ResourceOptions | None
    ) -> None:
        super().__init__("kubernetes:helm.sh/v4:Chart", session, name, inputs, options)

    def _namespace(self, inputs: dict[str, Any]) -> str:
        return str(inputs.get("namespace") or "")

    def _objects(self, inputs: dict[str, Any]) -> list[Tree]:
        return render(self._session, inputs.get("name") or self._name, inputs)

    def _options(self, obj: Tree) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(retain_on_delete=True if annotation(obj, _RESOURCE_POLICY) == "keep" else None)


def render(session: ProviderSession, release: str, inputs: dict[str, Any]) -> list[Tree]:
    """Objects that `helm template` makes of the chart. Raises ProviderError with helm's message."""
    for key in _NOT_COVERED:
        if inputs.get(key):
            raise ProviderError(f"the lab stand-in does not cover the {key} input of helm.sh/v4 Chart")
    chart = locate(inputs)
    command = ["helm", "template", release, str(chart), "--namespace", _release_namespace(session, inputs)]
    command += ["--no-hooks"] + ([] if inputs.get("skipCrds") else ["--include-crds"])
    if inputs.get("dependencyUpdate"):
        command.append("--dependency-update")
    if session.reachable is not None:
        command += ["--kube-version", str(session.cluster.version().get("gitVersion"))]
        command += ["--api-versions", ",".join(session.cluster.api_versions())]
    with tempfile.TemporaryDirectory(prefix="chart-values-") as folder:
        for index, asset in enumerate(inputs.get("valueYamlFiles") or []):
            command += ["--values", str(_asset_path(asset, Path(folder) / f"asset-{index}.yaml"))]
        values = Path(folder) / "values.json"
        values.touch(mode=0o600)
        values.write_text(json.dumps(inputs.get("values") or {}))
        command += ["--values", str(values)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_RENDER_LIMIT_S, check=False)
        except FileNotFoundError as error:
            raise ProviderError("helm is not on PATH: Chart resources need its binary") from error
        except subprocess.TimeoutExpired as error:
            raise ProviderError(f"helm template of {chart} took longer than {_RENDER_LIMIT_S} s") from error
    if done.returncode != 0:
        raise ProviderError(f"helm template of {chart} failed: {done.stderr.strip()}")
    return [obj for obj in parse_documents(done.stdout, f"chart {chart}") if not annotation(obj, _HOOK)]


def _release_namespace(session: ProviderSession, inputs: dict[str, Any]) -> str:
    return str(inputs.get("namespace") or session.default_namespace)


def locate(inputs: dict[str, Any]) -> Path:
    """The chart's folder or archive, which must be on this machine. Raises ProviderError if it is not."""
    chart = find(inputs)
    if chart is None:
        raise ProviderError(
            f'chart "{inputs.get("chart") or ""}" is not a local path, and the lab stand-in fetches none for '
            "helm.sh/v4 Chart: name a folder or a packed chart"
        )
    return chart


def find(inputs: dict[str, Any]) -> Path | None:
    """A local chart; None for one of a repository or registry."""
    chart = str(inputs.get("chart") or "")
    repository = (inputs.get("repositoryOpts") or {}).get("repo")
    local = Path(chart)
    remote = repository or chart.startswith(("oci://", "http://", "https://"))
    return local.resolve() if not remote and local.exists() else None


def _asset_path(asset: Any, target: Path) -> Path:
    if isinstance(asset, pulumi.FileAsset):
        return Path(str(asset.path))
    if isinstance(asset, pulumi.StringAsset):
        target.touch(mode=0o600)
        target.write_text(str(asset.text))
        return target
    raise ProviderError("the lab stand-in accepts value files from files and strings only")
