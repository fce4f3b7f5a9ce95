"""Kubeconfigs of the lab's own processes (no key is left behind)."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

import pytest
import yaml
from kubernetes import config

from lab import kubeconfigs

KEY = b"-----BEGIN RSA PRIVATE KEY-----\nof a test\n"


def kubeconfig() -> dict[str, object]:
    def inline(text: bytes) -> str:
        return base64.b64encode(text).decode()

    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {"name": "c", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": inline(b"ca")}}
        ],
        "users": [{"name": "u", "user": {"client-key-data": inline(KEY), "client-certificate-data": inline(b"own")}}],
    }


def test_a_client_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    client = config.new_client_from_config_dict(kubeconfigs.in_memory(kubeconfig()), persist_config=False)
    assert not list(tmp_path.iterdir())
    assert Path(client.configuration.key_file).read_bytes() == KEY
    assert Path(client.configuration.cert_file).read_bytes() == b"own"
    assert Path(client.configuration.ssl_ca_cert).read_bytes() == b"ca"
    assert Path(client.configuration.key_file).read_bytes() == KEY, "it can be opened once more"


def test_files_and_tokens_stay_as_they_are(tmp_path: Path) -> None:
    given = kubeconfig() | {"users": [{"name": "u", "user": {"token": "t", "client-key": "/some/key"}}]}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(given))
    assert kubeconfigs.read(file)["users"] == given["users"]


def test_what_was_given_is_not_changed() -> None:
    given = kubeconfig()
    kubeconfigs.in_memory(given)
    assert given == kubeconfig()
