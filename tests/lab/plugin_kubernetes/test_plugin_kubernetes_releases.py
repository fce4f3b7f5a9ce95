"""helm.sh/v3 Release of the stand-in, under the real engine, a real control plane and the real helm."""

from __future__ import annotations

import base64
import functools
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.lab.plugin_kubernetes.conftest import Plane, Site

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

PROGRAM = """import pulumi
import pulumi_kubernetes as k8s
arguments = dict(name="rel", namespace="default", chart="./chart", timeout=60)
"""


@pytest.fixture
def releases(site: Site, plane: Plane) -> Iterator[Site]:
    """A project with the chart in ./chart, whose calls of helm are written to helm.log."""
    write_chart(site.folder / "chart")
    wrapper = site.folder / "bin" / "helm"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {site.folder}/helm.log\nexec {plane.bin}/helm "$@"\n')
    wrapper.chmod(0o755)
    site.environment["PATH"] = f"{wrapper.parent}{os.pathsep}{site.environment['PATH']}"
    yield site
    site.pulumi("destroy", "--yes", "--skip-preview")
    for name in plane.names("configmap"):
        if name.endswith("-kept"):
            plane.kubectl("delete", name)
    plane.kubectl("delete", "crd", "gadgets.release.example.net", "--ignore-not-found")


def write_chart(folder: Path) -> None:
    for name, text in CHART.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def declare(site: Site, program: str) -> None:
    (site.folder / "__main__.py").write_text(PROGRAM + program)


def helm(plane: Plane, *arguments: str, check: bool = True) -> str:
    command = [f"{plane.bin}/helm", *arguments, "--kubeconfig", str(plane.kubeconfig), "--namespace", "default"]
    done = subprocess.run(command, capture_output=True, text=True, check=check)
    return str(done.stdout)


def status(plane: Plane, name: str = "rel") -> tuple[int, str]:
    text = helm(plane, "status", name, "--output", "json", check=False)
    if not text:
        return 0, "absent"
    found = json.loads(text)
    return int(found["version"]), str(found["info"]["status"])


def leave_pending(plane: Plane, site: Site) -> None:
    """Kill helm while it waits for a hook that never starts."""
    command = [f"{plane.bin}/helm", "upgrade", "--install", "rel", f"{site.folder}/chart", "--set=stuck=true", "--wait"]
    before = status(plane)
    process = subprocess.Popen([*command, "--kubeconfig", str(plane.kubeconfig), "--namespace", "default"])
    while status(plane) == before or "pending" not in status(plane)[1]:
        time.sleep(0.2)
    process.kill()
    process.wait()


def test_a_release_is_installed_upgraded_and_uninstalled_with_its_hooks(releases: Site, plane: Plane) -> None:
    values = 'values={"greeting": "%s", "password": pulumi.Output.secret("' + SECRET + '"), "list": [1, 2]}'
    program = f'release = k8s.helm.v3.Release("release", {values}, **arguments)\n'
    program += 'pulumi.export("revision", release.status.revision)\n'
    declare(releases, program % "hello")
    said = releases.pulumi("preview", "--diff")
    assert status(plane) == (0, "absent"), "a preview touches nothing"
    said += releases.up("--diff")
    assert status(plane) == (1, "deployed")
    assert plane.get("configmap", "rel-map")["data"] == {"greeting": "hello", "known": "true", "password": SECRET}
    assert "job.batch/rel-hook" in plane.names("job"), "hooks run"
    state = releases.state("release")
    assert state["id"] == "default/rel"
    assert state["outputs"]["status"] | {"revision": 1} == state["outputs"]["status"]
    assert state["outputs"]["resourceNames"] == {"ConfigMap/v1": ["rel-kept", "rel-map"]}
    assert state["outputs"]["version"] == "0.1.0" and state["inputs"]["timeout"] == 60
    releases.unchanged()

    declare(releases, program % "bye")
    step = releases.steps()["release"]
    assert set(step["detailedDiff"]) == {"values.greeting"} and step["op"] == "update"
    said += releases.up("--diff")
    assert status(plane) == (2, "deployed") and plane.get("configmap", "rel-map")["data"]["greeting"] == "bye"
    releases.unchanged()
    exported = releases.pulumi("stack", "export")
    assert SECRET not in said + exported + (releases.folder / "helm.log").read_text()

    said = releases.pulumi("destroy", "--yes", "--skip-preview")
    assert status(plane) == (0, "absent") and "configmap/rel-map" not in plane.names("configmap")
    assert "rel-kept" in said, "what stays by its resource policy is named"


def test_a_failed_release_is_kept_and_mended_by_the_next_up(releases: Site, plane: Plane) -> None:
    program = 'k8s.helm.v3.Release("release", values={"stuck": %s}, **(arguments | {"timeout": 6}))'
    declare(releases, program % True)
    said = releases.up(check=False)
    assert "release default/rel is failed at revision 1" in said and "Job rel-hook" in said
    assert releases.state("release")["initErrors"]
    assert "release default/rel is failed" in releases.pulumi("refresh", "--yes")
    assert releases.state("release")["initErrors"], "a refresh does not forget that it failed"
    declare(releases, program % False)
    releases.up()
    assert status(plane) == (2, "deployed") and not releases.state("release").get("initErrors")
    releases.unchanged()


def test_atomic_releases_leave_nothing_half_done(releases: Site, plane: Plane) -> None:
    program = 'k8s.helm.v3.Release("release", atomic=True, values={"stuck": %s}, **(arguments | {"timeout": 6}))'
    declare(releases, program % True)
    assert "helm cannot install release default/rel" in releases.up(check=False)
    assert status(plane) == (0, "absent") and not releases.state("release")
    declare(releases, program % False)
    releases.up()
    declare(releases, program % True)
    assert "is deployed at revision 3" in releases.up(check=False)
    declare(releases, program % False)
    releases.up()
    releases.unchanged()


def test_a_release_that_helm_left_pending_is_freed(releases: Site, plane: Plane) -> None:
    declare(releases, 'k8s.helm.v3.Release("release", values={"greeting": "one"}, **arguments)')
    leave_pending(plane, releases)
    assert status(plane) == (1, "pending-install")
    assert "is there already, revision 1, pending-install" in releases.up(check=False)
    declare(releases, 'k8s.helm.v3.Release("release", values={"greeting": "one"}, replace=True, **arguments)')
    assert "its remains were uninstalled" in releases.up()
    assert status(plane) == (1, "deployed")
    leave_pending(plane, releases)
    assert status(plane) == (2, "pending-upgrade")
    declare(releases, 'k8s.helm.v3.Release("release", values={"greeting": "two"}, replace=True, **arguments)')
    assert "rolled back to revision 1" in releases.up()
    assert status(plane)[1] == "deployed" and plane.get("configmap", "rel-map")["data"]["greeting"] == "two"
    releases.unchanged()


def test_a_killed_engine_leaves_no_release_locked(releases: Site, plane: Plane) -> None:
    declare(releases, 'k8s.helm.v3.Release("release", values={"stuck": True}, replace=True, **arguments)')
    command = [f"{plane.bin}/pulumi", "up", "--yes", "--skip-preview", "--non-interactive"]
    with (releases.folder / "up.log").open("w") as log:
        engine = subprocess.Popen(command, cwd=releases.folder, env=releases.environment, stdout=log, stderr=log)
        while status(plane) != (1, "pending-install"):
            time.sleep(0.2)
        engine.send_signal(signal.SIGKILL)
        engine.wait()
    until = time.monotonic() + 20
    while status(plane)[1] == "pending-install" and time.monotonic() < until:
        time.sleep(0.2)
    assert status(plane)[1] == "failed"
    releases.pulumi("cancel", "--yes")
    declare(releases, 'k8s.helm.v3.Release("release", values={"stuck": False}, replace=True, **arguments)')
    releases.up()
    assert status(plane)[1] == "deployed"
    releases.unchanged()


def test_drift_is_shown_and_put_back(releases: Site, plane: Plane) -> None:
    declare(releases, 'k8s.helm.v3.Release("release", values={"greeting": "ours"}, **arguments)')
    releases.up()
    helm(plane, "upgrade", "rel", str(releases.folder / "chart"), "--set=greeting=theirs")
    releases.pulumi("refresh", "--yes")
    assert set(releases.steps()["release"]["detailedDiff"]) == {"values.greeting"}
    releases.up()
    assert plane.get("configmap", "rel-map")["data"]["greeting"] == "ours"
    helm(plane, "uninstall", "rel")
    releases.pulumi("refresh", "--yes")
    assert not releases.state("release")


def test_another_name_replaces_and_the_rest_updates(releases: Site, plane: Plane) -> None:
    program = 'k8s.helm.v3.Release("release", **(arguments | {"name": "%s"}))'
    declare(releases, program % "rel")
    releases.up()
    declare(releases, program % "other")
    step = releases.steps()["release"]
    assert step["op"] == "replace" and step["detailedDiff"]["name"]["kind"] == "update-replace"
    releases.up()
    assert status(plane) == (0, "absent") and status(plane, "other") == (1, "deployed")


def test_import_takes_a_release_as_it_is(releases: Site, plane: Plane) -> None:
    helm(plane, "install", "rel", str(releases.folder / "chart"), "--set=greeting=found")
    # Helm does not keep where a chart came from; as with the official provider, that difference is an update.
    releases.pulumi(
        "import",
        "kubernetes:helm.sh/v3:Release",
        "release",
        "default/rel",
        "--yes",
        "--generate-code=false",
        "--protect=false",
    )
    assert releases.state("release")["outputs"]["values"] == {"greeting": "found"}
    declare(releases, 'k8s.helm.v3.Release("release", values={"greeting": "found"}, **(arguments | {"timeout": 300}))')
    assert set(releases.steps()["release"].get("detailedDiff") or {}) <= {"chart"}
    releases.up()
    releases.unchanged()


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


def test_a_chart_comes_from_a_repository_with_a_password(releases: Site, plane: Plane) -> None:
    served = releases.folder / "served"
    served.mkdir()
    helm(plane, "package", str(releases.folder / "chart"), "--destination", str(served))
    with repository(served) as address:
        helm(plane, "repo", "index", str(served), "--url", address)
        options = f'{{"repo": "{address}", "username": "reader", "password": pulumi.Output.secret("{SECRET}")}}'
        declare(
            releases,
            'k8s.helm.v3.Release("release", **(arguments | {"chart": "demo", "version": "0.1.x"}),'
            f" repository_opts={options})",
        )
        releases.up()
        assert status(plane) == (1, "deployed")
        assert releases.state("release")["inputs"]["version"] == "0.1.0"
        releases.unchanged()
        written = (releases.folder / "helm.log").read_text() + releases.pulumi("stack", "export")
        assert SECRET not in written


def test_a_chart_that_is_nowhere_fails_the_preview(releases: Site) -> None:
    declare(releases, 'k8s.helm.v3.Release("release", **(arguments | {"chart": "./nowhere"}))')
    said = releases.pulumi("preview", check=False)
    assert 'chart "./nowhere" is not a local path' in said and "cannot be pulled" in said


def test_objects_of_the_charts_own_kinds_follow_the_release(releases: Site, plane: Plane) -> None:
    declare(
        releases,
        """
release = k8s.helm.v3.Release("release", **arguments)
k8s.apiextensions.CustomResource("gadget", api_version="release.example.net/v1", kind="Gadget",
    metadata={"name": "one"}, opts=pulumi.ResourceOptions(depends_on=[release]))
""",
    )
    releases.pulumi("preview")
    releases.up()
    assert releases.state("gadget")["id"] == "one", "the chart says that the kind is cluster-wide"
    releases.unchanged()
