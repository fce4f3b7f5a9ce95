from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from lab.runner.env import MissingReferenceError, PodFacts
from lab.runner.volumes import Entry, Owner, Payload, make_empty_dir, payload, token_requests, write_payload

FACTS = PodFacts(pod_ip="198.18.1.2", host_ip="198.18.0.10", allocatable={})
POD: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "team", "uid": "u", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main"}]},
}


def lookup(kind: str, name: str) -> dict[str, Any] | None:
    objects = {
        ("Secret", "tls"): {"kind": "Secret", "data": {"tls.crt": base64.b64encode(b"cert").decode()}},
        ("ConfigMap", "conf"): {"kind": "ConfigMap", "data": {"a": "1", "b": "2"}, "binaryData": {"c": "AAE="}},
    }
    return objects.get((kind, name))


def files(volume: dict[str, Any], pod: dict[str, Any] = POD) -> Payload:
    return payload(pod, {"name": "v", **volume}, FACTS, lookup, {("vault", 600): "token-text"})


def test_secret_and_config_map() -> None:
    assert files({"secret": {"secretName": "tls", "defaultMode": 0o400}}) == {
        "tls.crt": Entry(content=b"cert", mode=0o400)
    }
    entries = files({"configMap": {"name": "conf"}})
    assert {path: entry.content for path, entry in entries.items()} == {"a": b"1", "b": b"2", "c": b"\x00\x01"}


def test_items_choose_place_and_mode() -> None:
    items = [{"key": "a", "path": "deep/name", "mode": 0o600}]
    assert files({"configMap": {"name": "conf", "items": items}}) == {"deep/name": Entry(content=b"1", mode=0o600)}


def test_missing_source_is_an_error_unless_optional() -> None:
    with pytest.raises(MissingReferenceError, match="absent"):
        files({"secret": {"secretName": "absent"}})
    with pytest.raises(MissingReferenceError, match="no key x"):
        files({"configMap": {"name": "conf", "items": [{"key": "x", "path": "x"}]}})
    assert files({"secret": {"secretName": "absent", "optional": True}}) == {}


def test_projected_volume_joins_its_sources() -> None:
    volume = {
        "projected": {
            "sources": [
                {"serviceAccountToken": {"path": "token", "audience": "vault", "expirationSeconds": 600}},
                {"configMap": {"name": "conf", "items": [{"key": "a", "path": "a"}]}},
                {"downwardAPI": {"items": [{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            ]
        }
    }
    assert token_requests(volume) == [("vault", 600)]
    entries = files(volume)
    assert {path: entry.content for path, entry in entries.items()} == {
        "token": b"token-text",
        "a": b"1",
        "ns": b"team",
    }
    owned = {**POD, "spec": {**POD["spec"], "securityContext": {"fsGroup": 2000}}}
    assert files(volume, owned)["token"].mode == 0o600


def test_update_is_one_step_and_removes_what_is_gone(tmp_path: Path) -> None:
    first = {"a": Entry(content=b"1", mode=0o644), "deep/b": Entry(content=b"2", mode=0o600)}
    assert write_payload(tmp_path, first, Owner())
    assert (tmp_path / "a").read_bytes() == b"1"
    assert (tmp_path / "deep" / "b").stat().st_mode & 0o777 == 0o600
    # A reader that follows the link at any time sees one complete version.
    assert (tmp_path / "a").readlink() == Path("..data/a")
    assert not write_payload(tmp_path, first, Owner())
    assert write_payload(tmp_path, {"a": Entry(content=b"3", mode=0o644)}, Owner())
    assert (tmp_path / "a").read_bytes() == b"3"
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("..")) == ["a"]
    assert len([path for path in tmp_path.iterdir() if path.is_dir() and not path.is_symlink()]) == 1


def test_group_can_read_and_an_unchanged_volume_stays(tmp_path: Path) -> None:
    entry = {"key": Entry(content=b"k", mode=0o400)}
    gid = tmp_path.stat().st_gid
    assert write_payload(tmp_path, entry, Owner(gid=gid))
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o440
    assert not write_payload(tmp_path, entry, Owner(gid=gid))


def test_empty_dir_is_fresh_and_open(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    (folder / "old.sock").touch()
    make_empty_dir(folder, Owner())
    assert list(folder.iterdir()) == []
    assert folder.stat().st_mode & 0o777 == 0o777
