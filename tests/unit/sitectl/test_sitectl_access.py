"""`access`: the files of one more person, with no more in them than the role has, and nothing of them on the screen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from sitectl.commands import access
from sitectl.shell.errors import Exit
from stacks.plan.site_plan import SitePlan, plan_values
from talos.api import client
from talos.api.errors import UnreachableError
from talos.api.results import ClientConfig
from tests import documented
from tests.unit.sitectl.sites_to_work_on import make_checkout, run
from tests.unit.sitectl.test_sitectl_gpu_nodes import PEM, TALOSCONFIG
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("000.05")

KEY = "canary-of-the-new-key"
PEOPLE = {"issuer": "https://login.site.example/realms/platform", "operators": ["hands"], "admins": ["heads"]}
ADMIN = {"clusters": [{"name": "prod", "cluster": {"certificate-authority-data": PEM, "server": "https://old:6443"}}]}


def site(**keys: Any) -> SitePlan:
    return plan_values(changed(prod(), {f"cluster.machines.{key}": value for key, value in keys.items()}), "prod.yaml")


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What control planes were asked for; the first of them is away."""
    programs = tmp_path / "bin"
    programs.mkdir()
    outputs = {"talosconfig": TALOSCONFIG, "kubeconfig": ADMIN}
    for name, content in outputs.items():
        (tmp_path / name).write_text(json.dumps(yaml.safe_dump(content)))
    (programs / "pulumi").write_text(f'#!/bin/sh\ncat {tmp_path}/"$3"\n')
    (programs / "pulumi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr(access, "plan_file", lambda _: site(administrators=PEOPLE))
    signed: list[tuple[str, Any]] = []

    class Signing:
        def generate_client_configuration(self, **wanted: Any) -> ClientConfig:
            signed.append(("signed", wanted))
            made = {"context": "x", "contexts": {"x": {"endpoints": [], "ca": PEM, "crt": PEM, "key": KEY}}}
            return ClientConfig(b"", b"", b"", yaml.safe_dump(made))

    @contextmanager
    def connect(host: str, _identity: Any, *, node: str, **_: Any) -> Iterator[Any]:
        if node == "cp-1":
            raise UnreachableError(node=node, call="connect", cause=f"dial {host}: connection refused")
        yield Signing()

    monkeypatch.setattr(client, "connect", connect)
    make_checkout(tmp_path / "project", sites=("prod",))
    return signed


def test_a_person_gets_a_short_certificate_of_the_role_and_a_kubeconfig_without_a_secret(
    tmp_path: Path, asked: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(
        tmp_path / "project", *documented.argv("python -m sitectl access prod operator ana --output access-ana")[3:]
    )
    assert done.status == Exit.OK, done.err
    assert asked == [("signed", {"roles": ("os:operator",), "lifetime_s": 8 * 3600})]
    files = {path.name: path for path in (tmp_path / "access-ana").iterdir()}
    assert {name: path.stat().st_mode & 0o777 for name, path in files.items()} == {
        "talosconfig": 0o600,
        "kubeconfig": 0o600,
    }
    talos = yaml.safe_load(files["talosconfig"].read_text())
    assert talos["contexts"][talos["context"]]["endpoints"] == ["10.5.0.11", "10.5.0.12", "10.5.0.13"]
    assert KEY not in done.out + done.err
    kube = json.loads(files["kubeconfig"].read_text())
    assert kube["clusters"][0]["cluster"]["server"] == str(prod()["cluster"]["machines"]["endpoint"])
    assert f"--oidc-issuer-url={PEOPLE['issuer']}" in kube["users"][0]["user"]["exec"]["args"]
    assert "client-key" not in files["kubeconfig"].read_text()


def test_nothing_is_written_where_a_file_would_be_lost_or_no_one_signs(
    tmp_path: Path, asked: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "project", tmp_path / "there"
    refused = run(here, "access", "prod", "viewer", "ana", "--output", str(here))
    assert (refused.status, "exists" in refused.err) == (Exit.USAGE, True)
    assert run(here, "access", "prod", "viewer", "ana", "--hours", "1000", "--output", str(there)).status == Exit.USAGE
    monkeypatch.setattr(client, "connect", _away)
    refused = run(here, "access", "prod", "viewer", "ana", "--output", str(there))
    assert "no control plane of prod signs a certificate: cp-1" in refused.err
    monkeypatch.setattr(access, "plan_file", lambda _: replace(site(), machines=None))
    assert "exists already" in run(here, "access", "prod", "viewer", "ana", "--output", str(there)).err
    assert not there.exists()
    assert not asked


@contextmanager
def _away(_host: str, _identity: Any, *, node: str, **_: Any) -> Iterator[Any]:
    raise UnreachableError(node=node, call="connect", cause="connection refused")
    yield
