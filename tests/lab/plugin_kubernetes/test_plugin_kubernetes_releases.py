"""helm.sh/v3 Release by the engine's protocol, on a real control plane and with the real helm."""

from __future__ import annotations

import base64
import functools
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lab.plugins import values
from tests.lab.plugin_kubernetes.conftest import Plane, Site
from tests.lab.plugin_kubernetes.declared import declare
from tests.lab.provider_driver import Declared, Driver, FailedError
from tests.lab.waiting import eventually

SECRET = "canary-of-the-values"

CHART = {
    "Chart.yaml": "apiVersion: v2\nname: demo\nversion: 0.1.0\nappVersion: '7'\n",
    "values.yaml": "greeting: nobody\nstuck: false\n",
    "templates/map.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-map"}
data:
  greeting: "{{ .Values.greeting }}"
  known: "{{ not (empty (lookup "v1" "Namespace" "" "default")) }}"
  password: "{{ .Values.password }}"
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-kept", annotations: {helm.sh/resource-policy: keep}}
""",
    "templates/hook.yaml": """
apiVersion: batch/v1
kind: Job
metadata:
  name: "{{ .Release.Name }}-hook"
  annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-delete-policy: before-hook-creation}
spec:
  template:
    spec:
      restartPolicy: Never
      {{- if .Values.stuck }}
      nodeSelector: {nowhere: "true"}
      {{- end }}
      containers: [{name: a, image: b}]
""",
    "crds/gadgets.yaml": """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.release.example.net}
spec:
  group: release.example.net
  names: {kind: Gadget, plural: gadgets}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
""",
}

# Helm waits as long for a hook that will never run; one that runs has a minute.
STUCK_S = 6


@pytest.fixture
def folder(plane: Plane, tmp_path: Path) -> Iterator[Path]:
    """A folder with the chart in ./chart and a helm whose calls are written to helm.log."""
    here = tmp_path / "project"
    for name, text in CHART.items():
        path = here / "chart" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    wrapper = here / "bin" / "helm"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {here}/helm.log\nexec {plane.bin}/helm "$@"\n')
    wrapper.chmod(0o755)
    yield here
    for name in plane.names("configmap"):
        if name.endswith("-kept"):
            plane.kubectl("delete", name)
    plane.kubectl("delete", "crd", "gadgets.release.example.net", "--ignore-not-found")


@pytest.fixture
def releases(folder: Path, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A provider that runs in the folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return driver


def release(**inputs: Any) -> Declared:
    given = {"name": "rel", "namespace": "default", "chart": "./chart", "timeout": 60, "compat": "true", **inputs}
    return Declared(type="kubernetes:helm.sh/v3:Release", name="release", inputs=given)


def greeting(text: str, **inputs: Any) -> Declared:
    return release(values={"greeting": text}, **inputs)


def stuck(**inputs: Any) -> Declared:
    return release(values={"stuck": True}, timeout=STUCK_S, **inputs)


def helm(plane: Plane, *arguments: str, check: bool = True) -> str:
    command = [f"{plane.bin}/helm", *arguments, "--kubeconfig", str(plane.kubeconfig), "--namespace", "default"]
    done = subprocess.run(command, capture_output=True, text=True, check=check)
    return str(done.stdout)


def status(plane: Plane, name: str = "rel") -> tuple[int, str]:
    text = helm(plane, "status", name, "--output", "json", check=False)
    if not text:
        return 0, "absent"
    release = json.loads(text)
    return int(release["version"]), str(release["info"]["status"])


def leave_pending(plane: Plane, folder: Path) -> None:
    """Kill helm while it waits for a hook that never starts."""
    command = [f"{plane.bin}/helm", "upgrade", "--install", "rel", f"{folder}/chart", "--set=stuck=true", "--wait"]
    before = status(plane)
    process = subprocess.Popen([*command, "--kubeconfig", str(plane.kubeconfig), "--namespace", "default"])
    eventually(lambda: status(plane) != before and "pending" in status(plane)[1])
    process.kill()
    process.wait()


def test_a_release_is_installed_upgraded_and_uninstalled_with_its_hooks(
    releases: Driver, plane: Plane, folder: Path
) -> None:
    def program(text: str) -> Declared:
        return release(values={"greeting": text, "password": values.secret(SECRET), "list": [1, 2]})

    releases.preview(program("hello"))
    assert status(plane) == (0, "absent"), "a preview touches nothing"
    releases.up(program("hello"))
    assert status(plane) == (1, "deployed")
    assert plane.get("configmap", "rel-map")["data"] == {"greeting": "hello", "known": "true", "password": SECRET}
    assert "job.batch/rel-hook" in plane.names("job"), "hooks run"
    kept = releases.state["release"]
    assert kept.id == "default/rel"
    assert kept.outputs["status"] | {"revision": 1} == kept.outputs["status"]
    assert kept.outputs["resourceNames"] == {"ConfigMap/v1": ["rel-kept", "rel-map"]}
    assert kept.outputs["version"] == "0.1.0"
    assert kept.inputs["timeout"] == 60
    releases.unchanged(program("hello"))

    step = releases.preview(program("bye"))["release"]
    assert set(step.detailed_diff) == {"values.greeting"}
    assert step.op == "update"
    releases.up(program("bye"))
    assert status(plane) == (2, "deployed")
    assert plane.get("configmap", "rel-map")["data"]["greeting"] == "bye"
    releases.unchanged(program("bye"))
    kept = releases.state["release"]
    assert SECRET not in json.dumps([hidden(kept.inputs), hidden(kept.outputs)])
    assert SECRET not in releases.log.text + (folder / "helm.log").read_text()

    releases.destroy()
    assert status(plane) == (0, "absent")
    assert "configmap/rel-map" not in plane.names("configmap")
    assert "rel-kept" in releases.log.text, "what stays by its resource policy is named"


def hidden(value: Any) -> Any:
    """The value without what is marked as secret, which the engine encrypts."""
    if values.is_secret(value):
        return "[secret]"
    if isinstance(value, dict):
        return {key: hidden(inner) for key, inner in value.items()}
    return [hidden(inner) for inner in value] if isinstance(value, list) else value


def test_a_failed_release_is_kept_and_mended_by_the_next_up(releases: Driver, plane: Plane) -> None:
    with pytest.raises(FailedError, match="release default/rel is failed at revision 1") as failed:
        releases.up(stuck())
    assert "Job rel-hook" in str(failed.value)
    assert releases.state["release"].init_errors
    releases.refresh()
    assert "release default/rel is failed" in releases.log.text
    assert releases.state["release"].init_errors, "a refresh does not forget that it failed"
    corrected = release(values={"stuck": False})
    releases.up(corrected)
    assert status(plane) == (2, "deployed")
    assert not releases.state["release"].init_errors
    releases.unchanged(corrected)


def test_atomic_releases_leave_nothing_half_done(releases: Driver, plane: Plane) -> None:
    good = release(values={"stuck": False}, atomic=True)
    with pytest.raises(FailedError, match="helm cannot install release default/rel"):
        releases.up(stuck(atomic=True))
    assert status(plane) == (0, "absent")
    assert releases.state == {}
    releases.up(good)
    with pytest.raises(FailedError, match="is deployed at revision 3"):
        releases.up(stuck(atomic=True))
    releases.up(good)
    releases.unchanged(good)


def test_a_release_that_helm_left_pending_is_freed(releases: Driver, plane: Plane, folder: Path) -> None:
    leave_pending(plane, folder)
    assert status(plane) == (1, "pending-install")
    with pytest.raises(FailedError, match="is there already, revision 1, pending-install"):
        releases.up(greeting("one"))
    releases.up(greeting("one", replace=True))
    assert "its remains were uninstalled" in releases.log.text
    assert status(plane) == (1, "deployed")
    leave_pending(plane, folder)
    assert status(plane) == (2, "pending-upgrade")
    releases.up(greeting("two", replace=True))
    assert "rolled back to revision 1" in releases.log.text
    assert status(plane)[1] == "deployed"
    assert plane.get("configmap", "rel-map")["data"]["greeting"] == "two"
    releases.unchanged(greeting("two", replace=True))


def test_a_killed_engine_leaves_no_release_locked(site: Site, folder: Path, plane: Plane) -> None:
    """Under the real engine: only the end of the plugin's own process shows what it leaves."""
    locked = release(values={"stuck": True}, replace=True, chart=str(folder / "chart"))
    site.declare(locked)
    command = [f"{plane.bin}/pulumi", "up", "--yes", "--skip-preview", "--non-interactive"]
    with (site.folder / "up.log").open("w") as log:
        engine = subprocess.Popen(command, cwd=site.folder, env=site.environment, stdout=log, stderr=log)
        eventually(lambda: status(plane) == (1, "pending-install"))
        engine.send_signal(signal.SIGKILL)
        engine.wait()
    eventually(lambda: status(plane)[1] == "failed")
    site.pulumi("cancel", "--yes")
    site.declare(release(values={"stuck": False}, replace=True, chart=str(folder / "chart")))
    site.up()
    assert status(plane)[1] == "deployed"
    site.unchanged()


def test_drift_is_shown_and_put_back(releases: Driver, plane: Plane, folder: Path) -> None:
    releases.up(greeting("ours"))
    helm(plane, "upgrade", "rel", str(folder / "chart"), "--set=greeting=theirs")
    releases.refresh()
    assert set(releases.preview(greeting("ours"))["release"].detailed_diff) == {"values.greeting"}
    releases.up(greeting("ours"))
    assert plane.get("configmap", "rel-map")["data"]["greeting"] == "ours"
    helm(plane, "uninstall", "rel")
    releases.refresh()
    assert releases.state == {}


def test_another_name_replaces_and_the_rest_updates(releases: Driver, plane: Plane) -> None:
    releases.up(release())
    step = releases.preview(release(name="other"))["release"]
    assert step.op == "replace"
    assert step.detailed_diff["name"] == "update-replace"
    releases.up(release(name="other"))
    assert status(plane) == (0, "absent")
    assert status(plane, "other") == (1, "deployed")


def test_import_takes_a_release_as_it_is(releases: Driver, plane: Plane, folder: Path) -> None:
    helm(plane, "install", "rel", str(folder / "chart"), "--set=greeting=found")
    # Helm does not keep where a chart came from; as with the official provider, that difference is an update.
    taken = releases.take_over("kubernetes:helm.sh/v3:Release", "release", "default/rel")
    assert taken.outputs["values"] == {"greeting": "found"}
    program = greeting("found", timeout=300)
    assert set(releases.preview(program)["release"].detailed_diff) <= {"chart"}
    releases.up(program)
    releases.unchanged(program)


class _Repository(SimpleHTTPRequestHandler):
    """A chart repository that asks for a password."""

    def do_GET(self) -> None:
        wanted = "Basic " + base64.b64encode(f"reader:{SECRET}".encode()).decode()
        if self.headers.get("Authorization") == wanted:
            super().do_GET()
        else:
            self.send_error(401)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def repository(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Repository, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_a_chart_comes_from_a_repository_with_a_password(releases: Driver, plane: Plane, folder: Path) -> None:
    served = folder / "served"
    served.mkdir()
    helm(plane, "package", str(folder / "chart"), "--destination", str(served))
    with repository(served) as address:
        helm(plane, "repo", "index", str(served), "--url", address)
        options = {"repo": address, "username": "reader", "password": values.secret(SECRET)}
        program = release(chart="demo", version="0.1.x", repositoryOpts=options)
        releases.up(program)
        assert status(plane) == (1, "deployed")
        kept = releases.state["release"]
        assert kept.inputs["version"] == "0.1.0"
        releases.unchanged(program)
        assert SECRET not in (folder / "helm.log").read_text()
        assert SECRET not in json.dumps([hidden(kept.inputs), hidden(kept.outputs)])


def test_a_chart_that_is_nowhere_fails_the_preview(releases: Driver) -> None:
    with pytest.raises(FailedError, match=r'chart "\./nowhere" is not a local path.*cannot be pulled'):
        releases.preview(release(chart="./nowhere"))


def test_objects_of_the_charts_own_kinds_follow_the_release(releases: Driver) -> None:
    gadget = declare("release.example.net/v1:Gadget", "gadget", {"metadata": {"name": "one"}})
    releases.preview(release(), gadget)
    releases.up(release(), gadget)
    assert releases.state["gadget"].id == "one", "the chart says that the kind is cluster-wide"
    releases.unchanged(release(), gadget)
