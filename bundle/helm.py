"""Charts as people take them: by helm, from an OCI registry, a repository or a folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bundle.errors import BundleError
from bundle.programs import FetchingProgram
from components.addons.charts import Chart

_INSTALL = "install helm 3.8 or later: https://helm.sh, or name the program: --helm PROGRAM"
_MIRROR = "check the connection, or name a registry, repository or folder that has it: {option} ADDRESS"
_PACKED = "put the chart there as `helm pull` writes it, or name another place: {option} ADDRESS"


@dataclass(frozen=True)
class Helm:
    """The helm program, run in `folder`, which relative paths of charts count from."""

    program: str
    folder: Path
    option: str = "--from"
    """Of the command that is running: the one that names another place of charts."""

    def render(
        self, chart: Chart, release: str, values: Mapping[str, Any], *, namespace: str, kubernetes: str, limit_s: float
    ) -> str:
        """The chart's objects as YAML. `kubernetes` as `v1.36.3`: helm's own default changes with helm.

        Raises BundleError, NoAnswerError after `limit_s` seconds.
        """
        cluster = ("--namespace", namespace, "--kube-version", kubernetes)
        arguments = ["template", release, *_address(chart), *cluster, "--values", "-"]
        return self._run(arguments, chart, limit_s, given=json.dumps(dict(values)))

    def pull(self, chart: Chart, folder: Path, *, limit_s: float) -> Path:
        """The packed chart, now in this empty folder. Raises BundleError, NoAnswerError after `limit_s` seconds."""
        if _is_packed(chart):
            # `helm pull` takes no path. `show` reads the whole file, so a cut one is no chart.
            self._run(["show", "chart", *_address(chart)], chart, limit_s)
            return Path(shutil.copy(self.folder / chart.chart, folder))
        self._run(["pull", *_address(chart), "--destination", str(folder)], chart, limit_s)
        packed = list(folder.glob("*.tgz"))
        if len(packed) != 1:
            raise BundleError(f"{self.program} pulled no {chart.chart} {chart.version}, and no error", fix=_INSTALL)
        return packed[0]

    def _run(self, arguments: Sequence[str], chart: Chart, limit_s: float, given: str = "") -> str:
        return FetchingProgram(command=self.program, folder=self.folder, install=_INSTALL).run(
            arguments,
            what=named(chart),
            failed=f"helm cannot take {chart.chart} {chart.version}",
            fix=(_PACKED if _is_packed(chart) else _MIRROR).format(option=self.option),
            limit_s=limit_s,
            given=given,
        )


def named(chart: Chart) -> str:
    """The chart as errors and progress name it, with the repository that has it."""
    return f"{chart.chart} of {chart.repository}" if chart.repository else chart.chart


def _is_packed(chart: Chart) -> bool:
    return chart.chart.endswith(".tgz")


def _address(chart: Chart) -> list[str]:
    version = [] if _is_packed(chart) else ["--version", chart.version]
    return [chart.chart, *version, *(["--repo", chart.repository] if chart.repository else [])]
