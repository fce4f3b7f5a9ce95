"""The directory of keys as pods over the operator's database; `sitectl key` asks it through the API server."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from components.specs.access import TenantSpec
from components.tenants import directory
from components.tenants.callers import CallersHandle, mounted, tenants_file
from components.tenants.pods import opaque_secret, service
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


@pytest.fixture(scope="module")
def lab(spare_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    site = tmp_path_factory.mktemp("site") / "Pulumi.lab.yaml"
    site.write_text("config: {inference-platform:site: {callers: {database_secret: directory-database}}}")
    assert value_of(site, "callers", "database_secret") == operator_database.DIRECTORY
    own = replace(spare_lab, site_file=site)
    bring_up_cluster(own, hgx=1)
    return own


def objects() -> Iterator[dict[str, Any]]:
    """What the platform's program declares, as far as this needs it."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": GATEWAY}}
    content = tenants_file({"search": TenantSpec(models=("chat",))})
    tenants = mounted(GATEWAY, "tenants", {"tenants.json": content})
    yield tenants
    names = (variables.OPERATOR_KEY, variables.READER_KEY, variables.PEPPER_KEY)
    yield opaque_secret(GATEWAY, variables.TOKENS_SECRET, {name: f"the-{name}" for name in names})
    known = CallersHandle(tenants=tenants["metadata"]["name"], keys="", versions={"tenants": ""}, ready=())
    yield directory.deployment(
        GATEWAY, image=f"{DIRECTORY_REPOSITORY}:0", known=known, database_secret=operator_database.DIRECTORY
    )
    yield service(GATEWAY, variables.SERVICE, variables.DEFAULT_PORT)


@pytest.fixture(scope="module")
def core(lab: Lab) -> Iterator[client.CoreV1Api]:
    with api.connect(lab) as connection:
        api.apply(connection, *objects())
        own = client.CoreV1Api(connection)
        eventually(lambda: is_ready(own))
        yield own


def is_ready(core: client.CoreV1Api) -> bool:
    pods = core.list_namespaced_pod(GATEWAY, label_selector="app.kubernetes.io/name=directory").items
    conditions = [condition for pod in pods for condition in (pod.status and pod.status.conditions) or ()]
    return len([c for c in conditions if c.type == "Ready" and c.status == "True"]) == 2


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


@pytest.mark.row("opening 24")
def test_keys_are_made_and_ended_through_the_api_server(lab: Lab, core: client.CoreV1Api, project: Path) -> None:
    made = key(project, "create", "lab", "search", "ci", "--expires", "1d")
    assert made.status == Exit.OK, made.err
    (text,) = made.out.splitlines()
    assert key(project, "revoke", "lab", text[3:13]).status == Exit.OK
    (listed,) = json.loads(key(project, "list", "lab", "--json").out)["keys"]
    assert (listed["id"], listed["state"]) == (text[3:13], "revoked")
    assert "no tenant of the site's file" in key(project, "create", "lab", "sales", "ci").err
    log = "".join(file.read_text() for file in lab.logs.glob(f"pods/{GATEWAY}_directory-*/**/*.log"))
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
    wanted = operator_database.wanted(lab, operator_database.DIRECTORY)
    assert wanted is not None
    core.delete_namespaced_secret(operator_database.DIRECTORY, GATEWAY)
    eventually(lambda: core.read_namespaced_secret(operator_database.DIRECTORY, GATEWAY).data == wanted["data"])
