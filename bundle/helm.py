"""Charts as people take them: by helm, from an OCI registry, a repository or a folder."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bundle.errors import BundleError
from components.addons.charts import Chart

# A chart is a few hundred kB; a registry behind a slow proxy answers within this, or not at all.
_LIMIT_S = 300


@dataclass(frozen=True)
class Helm:
    """The helm program, run in `folder`, which relative paths of charts count from."""

    program: str
    folder: Path

    def render(self, chart: Chart, release: str, values: Mapping[str, Any], *, namespace: str, kubernetes: str) -> str:
        """The chart's objects as YAML. `kubernetes` as `v1.36.3`: helm's own default changes with helm."""
        cluster = ("--namespace", namespace, "--kube-version", kubernetes)
        arguments = ["template", release, *_address(chart), *cluster, "--values", "-"]
        return self._run(arguments, chart, given=json.dumps(dict(values)))

    def pull(self, chart: Chart, folder: Path) -> None:
        """Write NAME-VERSION.tgz into the folder."""
        self._run(["pull", *_address(chart), "--destination", str(folder)], chart)

    def _run(self, arguments: Sequence[str], chart: Chart, given: str = "") -> str:
        try:
            done = subprocess.run(
                [self.program, *arguments],
                cwd=self.folder,
                input=given,
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                check=False,
            )
        except FileNotFoundError:
            raise BundleError("helm is not on PATH", fix="install helm 3 or 4: https://helm.sh") from None
        except subprocess.TimeoutExpired:
            raise BundleError(f"helm got no answer from {chart.chart} within {_LIMIT_S} s", fix=_MIRROR) from None
        if done.returncode != 0:
            raise BundleError(
                f"helm cannot take {chart.chart} {chart.version}", got=done.stderr.strip()[-400:], fix=_MIRROR
            )
        return done.stdout


_MIRROR = "check the connection, or name a registry, repository or folder that has it: --from ADDRESS"


def _address(chart: Chart) -> list[str]:
    version = [] if chart.chart.endswith(".tgz") else ["--version", chart.version]
    return [chart.chart, *version, *(["--repo", chart.repository] if chart.repository else [])]
