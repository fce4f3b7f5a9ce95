"""The helm binary, run privately; kubeconfig, values and pulled charts are in a folder that only this user can read."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from lab.plugins.kubernetes import config
from lab.plugins.kubernetes.errors import ProviderError
from lab.plugins.kubernetes.properties import Tree
from lab.plugins.kubernetes.session import ProviderSession

_POLL_S: Final = 0.5
_END_S: Final = 5.0
_NOT_FOUND: Final = "release: not found"
# A release's record shows it while helm works on it, and forever where that helm was killed.
_UNDER_WAY: Final = ("pending-install", "pending-upgrade", "pending-rollback", "uninstalling")
_DEPLOYED: Final = "deployed"

# Settings of the provider's helmReleaseSettings, and the variable by which helm takes them.
_SETTINGS: Final = {
    "driver": "HELM_DRIVER",
    "pluginsPath": "HELM_PLUGINS",
    "registryConfigPath": "HELM_REGISTRY_CONFIG",
    "repositoryConfigPath": "HELM_REPOSITORY_CONFIG",
    "repositoryCache": "HELM_REPOSITORY_CACHE",
}

_running: set[subprocess.Popen[str]] = set()
_running_lock = threading.Lock()


class HelmError(ProviderError):
    """Helm refused or failed; the text is its own."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What helm keeps of a release's newest revision."""

    name: str
    namespace: str
    revision: int
    status: str
    description: str
    values: Tree
    manifest: str
    hooks: list[Tree]
    chart: str
    chart_version: str
    app_version: str

    @property
    def under_way(self) -> bool:
        return self.status in _UNDER_WAY

    @property
    def deployed(self) -> bool:
        return self.status == _DEPLOYED


@dataclass(frozen=True)
class Helm:
    """Runs helm for one operation; `folder` is private to it."""

    session: ProviderSession
    folder: Path

    def run(self, *arguments: str, given: str = "", cluster: bool = True) -> str:
        """Helm's output. Raises HelmError with its message; an engine that cancels ends it in an orderly way."""
        command = ["helm", *arguments]
        if cluster:
            command += ["--kubeconfig", str(self._kubeconfig())]
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=self._environment(),
                # A Ctrl-C on the terminal must not reach helm a second time, in addition to the engine's cancellation.
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise ProviderError("helm is not on PATH: Release resources need its binary") from error
        with _running_lock:
            _running.add(process)
        try:
            output, complaint = self._wait(process, given)
        finally:
            with _running_lock:
                _running.discard(process)
        if process.returncode != 0:
            raise HelmError(_message(complaint) or f"helm {arguments[0]} ended with code {process.returncode}")
        return output

    def _wait(self, process: subprocess.Popen[str], given: str) -> tuple[str, str]:
        announced = False
        while True:
            try:
                return process.communicate(given, timeout=_POLL_S)
            except subprocess.TimeoutExpired:
                if self.session.cancelled.is_set() and not announced:
                    # Helm takes its work back or records the release as failed; then it ends.
                    process.terminate()
                    announced = True

    def _kubeconfig(self) -> Path:
        path = self.folder / "kubeconfig.json"
        if not path.exists():
            try:
                content = config.load_kubeconfig(self.session.config)
            except ValueError as error:
                raise ProviderError(str(error)) from error
            self.write(path.name, json.dumps(content))
        return path

    def _environment(self) -> dict[str, str]:
        settings = self.session.config.helm_release_settings
        chosen = {variable: str(settings[key]) for key, variable in _SETTINGS.items() if settings.get(key)}
        return {**os.environ, "HELM_DRIVER": "secret", **chosen}

    def write(self, name: str, content: str) -> Path:
        """Write a file of the private folder."""
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(content)
        return path

    def chart(self, inputs: Tree) -> Path:
        """The chart's folder or archive: local, else pulled. Raises ProviderError."""
        local = local_chart(inputs)
        if local is not None:
            return local
        try:
            return self._pull(inputs)
        except HelmError as error:
            raise ProviderError(
                f'chart "{inputs.get("chart")}" is not a local path, and cannot be pulled: {error}'
            ) from error

    def _pull(self, inputs: Tree) -> Path:
        chart, options = str(inputs["chart"]), inputs.get("repositoryOpts") or {}
        command: list[str] = []
        for key, flag in (("caFile", "--ca-file"), ("certFile", "--cert-file"), ("keyFile", "--key-file")):
            command += [flag, str(options[key])] if options.get(key) else []
        login = ["--username", str(options["username"]), "--password-stdin"] if options.get("username") else []
        password, repository = str(options.get("password") or ""), str(options.get("repo") or "")
        if chart.startswith("oci://") and login:
            registry = str(self.folder / "registry.json")
            host = chart.removeprefix("oci://").partition("/")[0]
            self.run("registry", "login", host, *login, "--registry-config", registry, given=password, cluster=False)
            command += ["--registry-config", registry]
        elif "://" in repository and login:
            # The password goes through stdin into our own repository list: every user could see an argument.
            files = ["--repository-config", str(self.folder / "repositories.yaml")]
            files += ["--repository-cache", str(self.folder / "repository-cache")]
            self.run("repo", "add", "given", repository, *login, *command, *files, given=password, cluster=False)
            command, chart = [*command, *files], f"given/{chart}"
        elif "://" in repository:
            command += ["--repo", repository]
        elif repository:
            chart = f"{repository}/{chart}"
        if inputs.get("version"):
            command += ["--version", str(inputs["version"])]
        elif inputs.get("devel"):
            command.append("--devel")
        pulled = self.folder / "pulled"
        pulled.mkdir(exist_ok=True)
        self.run("pull", chart, *command, "--destination", str(pulled), cluster=False)
        return next(pulled.glob("*.tgz"))

    def metadata(self, chart: Path) -> Tree:
        """The chart's own description, of its Chart.yaml."""
        description = yaml.safe_load(self.run("show", "chart", str(chart), cluster=False))
        return description if isinstance(description, dict) else {}

    def record(self, name: str, namespace: str) -> Record | None:
        """The release's newest revision, or None if there is none."""
        where = [name, "--namespace", namespace, "--output", "json"]
        try:
            status: Tree = json.loads(self.run("status", *where))
            metadata: Tree = json.loads(self.run("get", "metadata", *where))
        except HelmError as error:
            if _NOT_FOUND in str(error):
                return None
            raise
        information: Tree = status.get("info") or {}
        return Record(
            name=name,
            namespace=namespace,
            revision=int(status.get("version") or 0),
            status=str(information.get("status") or ""),
            description=str(information.get("description") or ""),
            values=status.get("config") or {},
            manifest=str(status.get("manifest") or ""),
            hooks=[hook for hook in status.get("hooks") or [] if isinstance(hook, dict)],
            chart=str(metadata.get("chart") or ""),
            chart_version=str(metadata.get("version") or ""),
            app_version=str(metadata.get("appVersion") or ""),
        )

    def unlock(self, record: Record) -> str:
        """Free a release whose helm ended in the middle, as helm's maintainers advise; returns what was done.

        Back to the last revision that was deployed; where none ever was, the remains are uninstalled.
        """
        where = ["--namespace", record.namespace]
        history: list[dict[str, Any]] = json.loads(self.run("history", record.name, *where, "--output", "json"))
        good = [int(item["revision"]) for item in history if item.get("status") == _DEPLOYED]
        if not good or record.status == "uninstalling":
            self.run("uninstall", record.name, *where, "--ignore-not-found", "--wait=legacy")
            return "its remains were uninstalled"
        # Hooks belong to the upgrade that follows; this only makes the record whole again.
        self.run("rollback", record.name, str(max(good)), *where, "--no-hooks", "--server-side=false")
        return f"rolled back to revision {max(good)}"


@contextmanager
def opened(session: ProviderSession) -> Iterator[Helm]:
    """Helm with a private folder, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="helm-release-") as folder:
        yield Helm(session, Path(folder))


def end_all() -> None:
    """End every helm under way, in order to leave no release locked when the plugin goes."""
    with _running_lock:
        left = list(_running)
    for process in left:
        process.terminate()
    deadline = time.monotonic() + _END_S
    for process in left:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(deadline - time.monotonic(), 0))
        if process.poll() is None:
            process.kill()


def _message(complaint: str) -> str:
    """Helm's error without its prefix and without the log lines before it."""
    lines = [line for line in complaint.strip().splitlines() if not line.startswith("level=")]
    return "\n".join(lines).removeprefix("Error: ").strip()


def local_chart(inputs: dict[str, Any]) -> Path | None:
    """A local chart; None for one of a repository or registry."""
    chart = str(inputs.get("chart") or "")
    repository = (inputs.get("repositoryOpts") or {}).get("repo")
    local = Path(chart)
    remote = repository or chart.startswith(("oci://", "http://", "https://"))
    return local.resolve() if not remote and local.exists() else None
