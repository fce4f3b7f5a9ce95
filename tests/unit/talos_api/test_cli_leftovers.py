"""`leftovers`: what an earlier manifest had and the present one lacks is deleted, and nothing else ever."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from talos.cli.failures import Exit
from talos.cli.main import main
from talos.secrets import variables

pytestmark = pytest.mark.row("C.01")

NOW = "apps/v1 DaemonSet kube-system/cilium\nv1 ConfigMap kube-system/cilium-config"


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keeps what it is asked, and what it reads."""
    program = tmp_path / "kubectl"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\ncat > {tmp_path}/given\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv(variables.KUBECONFIG, "server: here")
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, now: str, earlier: str | None) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(now))
    monkeypatch.delenv("PULUMI_COMMAND_STDOUT", raising=False)
    if earlier is not None:
        monkeypatch.setenv("PULUMI_COMMAND_STDOUT", earlier)
    return main(["leftovers"])


def test_what_the_present_manifest_lacks_is_deleted_but_a_namespace(
    kubectl: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = "apps/v1 DaemonSet kube-system/cilium-envoy\nrbac.authorization.k8s.io/v1 ClusterRole cilium-old"
    assert run(monkeypatch, NOW, f"{NOW}\n{gone}\nv1 Namespace cilium-secrets") == 0
    given: Any = json.loads((kubectl / "given").read_text())
    assert {(item["apiVersion"], item["kind"], *sorted(item["metadata"].items())) for item in given["items"]} == {
        ("apps/v1", "DaemonSet", ("name", "cilium-envoy"), ("namespace", "kube-system")),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", ("name", "cilium-old")),
    }
    assert "delete --filename=- --ignore-not-found" in (kubectl / "words").read_text()
    shown = capsys.readouterr()
    assert shown.out == NOW, "the next run compares with it"
    assert "Namespace cilium-secrets is in the manifest no longer, and stays" in shown.err


@pytest.mark.parametrize("earlier", [None, "", NOW, NOW.replace("apps/v1 ", "apps/v1beta2 ")])
def test_an_object_that_is_still_there_is_kept_under_another_version_too(
    earlier: str | None, kubectl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a first run, which has no earlier list, deletes nothing."""
    assert run(monkeypatch, NOW, earlier) == 0
    assert not (kubectl / "words").exists()


def test_an_empty_manifest_takes_nothing_away(kubectl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "\n", NOW) == Exit.USAGE
    assert not (kubectl / "words").exists()
