"""Locks of adapters, as the page has them: from a hub or a folder, and refused where the site states something else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.hub import made_up
from lab.hub.server import EmulatedHubServer, Hub
from services.weights.manifest import file_name
from sitectl.shell.errors import Exit
from tests import documented
from tests.unit.sitectl.sites_to_work_on import ROOT, edit, make_checkout, run

pytestmark = pytest.mark.row("001.13", "000.07")

PAGE = ROOT / "docs/how-to/add-an-adapter.md"
MODEL, NAME = "qwen3-32b", "legal"
LOCK = documented.argv("python -m sitectl weights lock prod qwen3-32b")[3:]
REFUSED = "models.qwen3-32b.adapters.legal"


def of_the_page() -> dict[str, Any]:
    """The adapter that the page adds."""
    block, *_ = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    adapter: dict[str, Any] = yaml.safe_load(block)["models"][MODEL]["adapters"][NAME]
    return adapter


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    emulated = Hub()
    server = EmulatedHubServer(emulated)
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "client"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    yield emulated
    server.close()


def project(folder: Path, **adapter: Any) -> Path:
    """The reference site with the page's adapter, and these keys of it otherwise."""
    made = make_checkout(folder / "own", sites=("prod",))
    models = yaml.safe_load((made / "Pulumi.prod.yaml").read_text())["config"]["inference-platform:site"]["models"]
    models[MODEL]["adapters"] = {NAME: {**of_the_page(), **adapter}}
    edit(made, "prod", models=models)
    return made


def test_the_pages_adapter_is_locked_beside_its_model(hub: Hub, tmp_path: Path) -> None:
    site, adapter = project(tmp_path), of_the_page()
    result = run(site, *LOCK)
    assert result.status == Exit.OK, result.err
    assert f"weights/{file_name(adapter['repository'], adapter['revision'])}: 2 files" in result.out
    assert not [path for path, _ in hub.requests if path.endswith(".safetensors")]


@pytest.mark.parametrize(
    ("change", "key", "message"),
    [
        ({"rank": 8}, "rank", "got 8; allowed: 16"),
        ({"target_modules": ["q_proj", "o_proj"]}, "target_modules", "got o_proj, q_proj; allowed: q_proj, v_proj"),
    ],
)
def test_another_rank_or_projection_than_the_adapters_own_is_refused(
    hub: Hub, tmp_path: Path, change: dict[str, Any], key: str, message: str
) -> None:
    site = project(tmp_path, **change)
    result = run(site, *LOCK)
    assert result.status == Exit.REFUSED
    assert f"{REFUSED}.{key}: " in result.err
    assert all(part in result.err for part in re.split("; allowed: |got ", message) if part)
    assert not (site / "weights").exists()


def test_what_is_no_adapter_is_refused(hub: Hub, tmp_path: Path) -> None:
    result = run(project(tmp_path, repository="acme/whole-model"), *LOCK)
    assert "is no adapter: it has no adapter_config.json" in result.err


def test_a_folder_is_compared_without_a_hub(tmp_path: Path) -> None:
    site, adapter = project(tmp_path), of_the_page()
    folder = tmp_path / adapter["revision"]
    folder.mkdir()
    for path, data in made_up.files(adapter["repository"], adapter["revision"]).items():
        (folder / path).write_bytes(data)
    result = run(site, *LOCK, "--adapter-from", f"{NAME}={folder}", "--json")
    assert result.status == Exit.OK, result.err
    assert result.data["written"] == [f"weights/{file_name(adapter['repository'], adapter['revision'])}"]
    (lacking,) = result.data["not_locked"]
    assert "qwen3-32b --from FOLDER" in lacking["next"]
    unknown = run(site, *LOCK, "--adapter-from", f"lega={folder}")
    assert (unknown.status, "qwen3-32b has no adapter lega" in unknown.err) == (Exit.USAGE, True)
    (folder / "adapter_config.json").unlink()
    assert "has no adapter_config.json" in run(site, *LOCK, "--adapter-from", f"{NAME}={folder}").err
