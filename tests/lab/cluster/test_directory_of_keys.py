"""The directory of keys as a pod over the operator's database; `sitectl key` asks it through the API server."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kubernetes import client

from floor.namespaces import GATEWAY
from lab.cluster import api, operator_database
from lab.cluster.operator_secret import value_of
from lab.paths import Lab
from lab.runner.images import DIRECTORY_REPOSITORY
from lab.site import supervisor
from services.directory import variables
from sitectl.shell.errors import Exit
from tests.lab.cluster_by_hand import bring_up_cluster
from tests.lab.waiting import eventually
from tests.unit.sitectl.sites_to_work_on import CommandResult, make_checkout, run

SETTINGS = "/etc/directory"
FILES = {
    variables.TENANTS_FILE: json.dumps({"tenants": {"search": {"models": ["chat"]}}}),
    variables.PEPPER_FILE: "pepper",
}
TOKENS = {variables.OPERATOR_KEY: "token-of-the-operator", variables.READER_KEY: "token-of-the-reader"}


@pytest.fixture(scope="module")
def lab(spare_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    site = tmp_path_factory.mktemp("site") / "Pulumi.lab.yaml"
    site.write_text("config: {inference-platform:site: {callers: {database_secret: directory-database}}}")
    assert value_of(site, "callers", "database_secret") == operator_database.NAME
    own = replace(spare_lab, site_file=site)
    bring_up_cluster(own, hgx=1)
    return own


def objects() -> Iterator[dict[str, object]]:
    """What the platform's program would declare, as far as this needs it."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": GATEWAY}}
    here = {"namespace": GATEWAY}
    yield {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "directory-settings", **here},
        "stringData": FILES,
    }
    yield {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": variables.TOKENS_SECRET, **here},
        "stringData": TOKENS,
    }
    places = {
        variables.DATABASE_URL_FILE: f"{SETTINGS}/database/{variables.DATABASE_KEY}",
        variables.OPERATOR_TOKEN_FILE: f"{SETTINGS}/tokens/{variables.OPERATOR_KEY}",
        variables.READER_TOKEN_FILE: f"{SETTINGS}/tokens/{variables.READER_KEY}",
        **{name: f"{SETTINGS}/settings/{name}" for name in FILES},
    }
    mounted = {
        "settings": {"secret": {"secretName": "directory-settings"}},
        "tokens": {"secret": {"secretName": variables.TOKENS_SECRET}},
        "database": {"secret": {"secretName": variables.DATABASE_SECRET}},
    }
    yield {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "directory", "labels": {"app": "directory"}, **here},
        "spec": {
            "containers": [
                {
                    "name": "directory",
                    "image": f"{DIRECTORY_REPOSITORY}:0",
                    "args": ["serve"],
                    "env": [{"name": name, "value": value} for name, value in places.items()],
                    "readinessProbe": {
                        "httpGet": {"path": "/readyz", "port": variables.DEFAULT_PORT},
                        "periodSeconds": 1,
                    },
                    "securityContext": {"readOnlyRootFilesystem": True},
                    "volumeMounts": [{"name": name, "mountPath": f"{SETTINGS}/{name}"} for name in mounted],
                }
            ],
            "volumes": [{"name": name, **source} for name, source in mounted.items()],
        },
    }
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": variables.SERVICE, **here},
        "spec": {"selector": {"app": "directory"}, "ports": [{"port": variables.DEFAULT_PORT}]},
    }


@pytest.fixture(scope="module")
def core(lab: Lab) -> Iterator[client.CoreV1Api]:
    with api.connect(lab) as connection:
        api.apply(connection, *objects())
        own = client.CoreV1Api(connection)
        eventually(lambda: is_ready(own))
        yield own


def is_ready(core: client.CoreV1Api) -> bool:
    status = core.read_namespaced_pod("directory", GATEWAY).status
    return any(c.type == "Ready" and c.status == "True" for c in (status and status.conditions) or ())


@pytest.fixture
def project(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = tmp_path / "bin"
    programs.mkdir()
    kubeconfig = tmp_path / "output.json"
    kubeconfig.write_text(json.dumps(lab.kubeconfig.read_text()))
    (programs / "pulumi").write_text(f"#!/bin/sh\ncat {kubeconfig}\n")
    (programs / "pulumi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{lab.bin}:/usr/bin:/bin")
    return make_checkout(tmp_path / "project", sites=("lab",))


def key(project: Path, *words: str) -> CommandResult:
    return run(project, "key", *words)


def test_keys_are_made_and_ended_through_the_api_server(lab: Lab, core: client.CoreV1Api, project: Path) -> None:
    made = key(project, "create", "lab", "search", "ci", "--expires", "1d")
    assert made.status == Exit.OK, made.err
    (text,) = made.out.splitlines()
    assert key(project, "revoke", "lab", text[3:13]).status == Exit.OK
    (listed,) = json.loads(key(project, "list", "lab", "--json").out)["keys"]
    assert (listed["id"], listed["state"]) == (text[3:13], "revoked")
    assert "no tenant of the site's file" in key(project, "create", "lab", "sales", "ci").err
    log = "".join(file.read_text() for file in lab.logs.glob(f"pods/{GATEWAY}_directory_*/**/*.log"))
    assert text[3:13] in log
    assert text[14:] not in log


def test_a_database_that_is_killed_comes_back(lab: Lab, core: client.CoreV1Api, project: Path) -> None:
    before = json.loads(key(project, "list", "lab", "--json").out)["keys"]
    part = next(part for part in supervisor.components(lab) if part.name == operator_database.COMPONENT)
    pid = eventually(part.pid)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: part.pid() not in {None, pid})
    eventually(lambda: key(project, "create", "lab", "search", "later").status == Exit.OK)
    after = json.loads(key(project, "list", "lab", "--json").out)["keys"]
    assert [entry["id"] for entry in after if entry["name"] != "later"] == [entry["id"] for entry in before]


def test_the_secret_is_written_again_when_it_is_lost(lab: Lab, core: client.CoreV1Api) -> None:
    wanted = operator_database.wanted(lab)
    assert wanted is not None
    core.delete_namespaced_secret(operator_database.NAME, GATEWAY)
    eventually(lambda: core.read_namespaced_secret(operator_database.NAME, GATEWAY).data == wanted["data"])
