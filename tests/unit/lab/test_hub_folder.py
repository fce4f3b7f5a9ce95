"""The emulated hub over a folder, such as the weights of a bundle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from lab.hub.folder import files_of
from lab.hub.server import EmulatedHubServer, Hub

REVISION, OTHER = "a" * 40, "b" * 40


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    files = tmp_path / "weights" / "owner" / "model" / "revisions" / REVISION
    (files / "original").mkdir(parents=True)
    (files / "config.json").write_text("{}")
    (files / "original" / "model.safetensors").write_bytes(b"1" * 100_000)
    (files / ".weights.json").write_text("a volume's, and none of the hub's")
    server = EmulatedHubServer(Hub(content=files_of(tmp_path / "weights")))
    yield server.url
    server.close()


def test_the_hub_has_the_files_of_the_folder(url: str) -> None:
    stated = httpx.get(f"{url}/api/models/owner/model/revision/{REVISION}").json()
    assert [file["rfilename"] for file in stated["siblings"]] == ["config.json", "original/model.safetensors"]
    for path, data in (("config.json", b"{}"), ("original/model.safetensors", b"1" * 100_000)):
        answer = httpx.get(f"{url}/owner/model/resolve/{REVISION}/{path}", follow_redirects=True)
        assert answer.content == data


@pytest.mark.parametrize(
    "place", [f"owner/model/revision/{OTHER}", f"owner/another/revision/{REVISION}", "owner/model"]
)
def test_it_makes_nothing_up(url: str, place: str) -> None:
    answer = httpx.get(f"{url}/api/models/{place}")
    assert (answer.status_code, answer.headers["x-error-code"]) == (404, "RevisionNotFound")


def test_nothing_outside_of_the_folder_is_the_hubs(tmp_path: Path) -> None:
    (tmp_path / "secret" / "revisions").mkdir(parents=True)
    (tmp_path / "secret" / "revisions" / "key").write_text("k")
    (tmp_path / "weights").mkdir()
    assert files_of(tmp_path / "weights")("../secret", "") == {}
