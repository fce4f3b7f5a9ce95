"""A lab that takes images and weights out of a bundle: what is started, and which folder is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from lab.errors import LabError
from lab.paths import Lab
from lab.site import guard, supervisor, up


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made = Lab(home=tmp_path / "lab", cache=tmp_path / "cache", index=3)
    made.make_folders()
    return made


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "bundle.json").write_text("{}")
    return folder


def commands(lab: Lab) -> dict[str, tuple[str, ...]]:
    """Arguments of each process, without the Python before them."""
    return {component.name: component.argv[1:] for component in supervisor.components(lab)}


def test_without_a_bundle_nothing_is_pulled(lab: Lab) -> None:
    started = commands(lab)
    assert "registry" not in started
    assert "--mirror" not in started["pod-runner"]


def test_a_bundle_gives_weights_and_its_registry_all_images(lab: Lab, bundle: Path) -> None:
    up.take_from(lab, bundle)
    started = commands(lab)
    address = f"{lab.network.registry}:5000"
    assert started["pod-runner"][-2:] == ("--mirror", address)
    assert Path(started["emulated-hub"][-1]).parent.samefile(bundle)
    config = yaml.safe_load(Path(started["registry"][-1]).read_text())
    assert config["http"]["addr"] == address
    assert Path(config["storage"]["filesystem"]["rootdirectory"]).is_relative_to(lab.home)


def test_a_bundle_that_was_not_written_to_its_end_is_refused(lab: Lab, bundle: Path) -> None:
    (bundle / "bundle.json").unlink()
    with pytest.raises(LabError, match=r"is no bundle: it has no bundle\.json") as refused:
        up.take_from(lab, bundle)
    assert f"python -m sitectl bundle pack SITE --out {bundle}" in refused.value.fix
    assert not lab.packed.exists()


def test_a_lab_that_is_up_keeps_where_it_came_from(
    lab: Lab, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "pid", lambda _lab: 1)
    with pytest.raises(LabError, match="the lab is up already, and came from no bundle"):
        up.take_from(lab, bundle)
    lab.packed.symlink_to(bundle)
    up.take_from(lab, bundle)
    other = tmp_path / "other"
    other.mkdir()
    (other / "bundle.json").write_text("{}")
    with pytest.raises(LabError, match="came from another bundle"):
        up.take_from(lab, other)
