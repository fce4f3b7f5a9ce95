"""Files are taken from where their publishers put them, or a mirror, and written only as pinned."""

from __future__ import annotations

import errno
import hashlib
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import pytest

from bundle.definitions import definitions_file
from bundle.errors import BundleError
from bundle.fetching import Sources, write_crds
from bundle.helm import Helm
from components.addons.charts import Chart
from stacks.facts import versions
from stacks.facts.versions import Versions
from tests.unit.bundle.stand_in_helm import StandInHelm
from tests.unit.bundle.test_bundle_definitions import FIRST, LAST

PINS = versions.load()
RELEASE_FILE = "inference-extension.json"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def helm(tmp_path: Path) -> StandInHelm:
    (tmp_path / "project").mkdir()
    return StandInHelm.in_folder(tmp_path / "project")


@pytest.fixture
def pins() -> Versions:
    """As pinned, where each file holds one definition."""
    digest = _sha256(definitions_file(FIRST, ""))
    return PINS.model_copy(update={"crds": dict.fromkeys(PINS.crds, digest)})


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What is behind which address; all else is not found."""
    texts: dict[str, str] = {}

    def get(address: str, **_: object) -> httpx.Response:
        request = httpx.Request("GET", address)
        return httpx.Response(200 if address in texts else 404, text=texts.get(address, ""), request=request)

    monkeypatch.setattr("bundle.fetching.httpx.get", get)
    return texts


@pytest.fixture
def fetched(helm: StandInHelm, tmp_path: Path) -> Callable[..., list[str]]:
    def fetch(pins: Versions, mirror: str | None = None, parts: Sequence[str] = ()) -> list[str]:
        sources = Sources(versions=pins, helm=helm.helm(), mirror=mirror, parts=parts)
        return [path.name for path in write_crds(sources, tmp_path / "crds", lambda _: None)]

    return fetch


def test_each_file_is_asked_of_its_publisher(
    helm: StandInHelm, pins: Versions, internet: dict[str, str], fetched: Callable[..., list[str]], tmp_path: Path
) -> None:
    helm.renders(FIRST)
    release = pins.crd_versions[RELEASE_FILE]
    project = "https://github.com/kubernetes-sigs/gateway-api-inference-extension"
    internet[f"{project}/releases/download/{release}/manifests.yaml"] = FIRST
    assert fetched(pins) == sorted(pins.crds_with())
    gateway, ai_gateway = pins.charts["envoy_gateway"].version, pins.charts["ai_gateway"].version
    assert [call[2:5] for call in helm.asked()] == [
        ["oci://docker.io/envoyproxy/ai-gateway-crds-helm", "--version", ai_gateway],
        ["oci://docker.io/envoyproxy/gateway-crds-helm", "--version", gateway],
        ["oci://docker.io/envoyproxy/gateway-crds-helm", "--version", gateway],
    ]
    # The last one is Gateway API's: without the channel the chart renders the other definitions.
    assert helm.values() == {"crds": {"gatewayAPI": {"enabled": True, "channel": "experimental"}}}
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path / "crds", check=True)


def test_what_is_as_pinned_is_not_fetched_again(
    helm: StandInHelm, pins: Versions, internet: dict[str, str], fetched: Callable[..., list[str]], tmp_path: Path
) -> None:
    helm.renders(FIRST)
    internet[str(pins.crd_sources[RELEASE_FILE].file).format(release=pins.crd_versions[RELEASE_FILE])] = FIRST
    fetched(pins)
    internet.clear()
    calls = len(helm.asked())
    (tmp_path / "crds" / "ai-gateway.json").write_text("{}")
    assert fetched(pins) == ["ai-gateway.json"]
    assert fetched(pins) == []
    assert len(helm.asked()) == calls + 1


def test_another_content_is_refused_and_nothing_is_written(
    helm: StandInHelm, pins: Versions, internet: dict[str, str], fetched: Callable[..., list[str]], tmp_path: Path
) -> None:
    helm.renders(FIRST)
    internet[str(pins.crd_sources[RELEASE_FILE].file).format(release=pins.crd_versions[RELEASE_FILE])] = LAST
    with pytest.raises(
        BundleError, match=r"inference-extension\.json out of https://.* is not the pinned one"
    ) as error:
        fetched(pins)
    assert error.value.problem.got == f"sha256 {_sha256(definitions_file(LAST, ''))}"
    assert error.value.problem.allowed == f"sha256 {pins.crds[RELEASE_FILE]}"
    assert not (tmp_path / "crds").exists()


@pytest.mark.parametrize(
    ("mirror", "asked"),
    [
        ("oci://hub.example/charts", ["oci://hub.example/charts/gateway-crds-helm", "--version", "VERSION"]),
        (
            "https://hub.example/charts",
            ["gateway-crds-helm", "--version", "VERSION", "--repo", "https://hub.example/charts"],
        ),
        ("mirrored", ["./mirrored/gateway-crds-helm-VERSION.tgz", "--namespace"]),
    ],
)
def test_a_mirror_takes_the_publishers_place(
    helm: StandInHelm,
    pins: Versions,
    fetched: Callable[..., list[str]],
    internet: dict[str, str],
    mirror: str,
    asked: list[str],
) -> None:
    """A release's file is in the folder under its project's name; registries hold none, and its publisher is asked."""
    helm.renders(FIRST)
    release = pins.crd_versions[RELEASE_FILE]
    if mirror == "mirrored":
        folder = helm.program.parent / "mirrored"
        folder.mkdir()
        (folder / f"gateway-api-inference-extension-{release}.yaml").write_text(FIRST)
    else:
        internet[str(pins.crd_sources[RELEASE_FILE].file).format(release=release)] = FIRST
    assert len(fetched(pins, mirror)) == 4
    expected = [word.replace("VERSION", pins.charts["envoy_gateway"].version) for word in asked]
    assert helm.asked()[1][2 : 2 + len(expected)] == expected


def test_what_cannot_be_had_is_named_with_the_way_out(
    helm: StandInHelm, pins: Versions, internet: dict[str, str], fetched: Callable[..., list[str]]
) -> None:
    with pytest.raises(
        BundleError, match=r"helm cannot take oci://docker\.io/envoyproxy/ai-gateway-crds-helm v"
    ) as error:
        fetched(pins)
    assert (error.value.problem.got, "--from ADDRESS" in error.value.problem.fix) == ("Error: no such chart", True)
    helm.renders(FIRST)
    with pytest.raises(BundleError, match=r"manifests\.yaml cannot be fetched") as error:
        fetched(pins)
    assert "gateway-api-inference-extension-v1.5.0.yaml" in error.value.problem.fix


@pytest.mark.parametrize(
    ("content", "mode", "what", "got"),
    [
        (None, 0, "there is no .*/helm", ""),
        ("exit 0", 0o644, ".*/helm cannot be run", "Permission denied"),
        ("garbage", 0o755, ".*/helm cannot be run", "Exec format error"),
        ("#!/bin/sh\nkill -9 $$", 0o755, "helm cannot take oci://", "status -9 and no message"),
        ("#!/bin/sh\nprintf '\\377\\000'", 0o755, "ai-gateway-crds-helm v.* is not YAML", "unacceptable character"),
        ("#!/bin/sh", 0o755, "ai-gateway-crds-helm v.* holds no CustomResourceDefinition", ""),
    ],
)
def test_a_program_that_is_no_helm_is_named(
    helm: StandInHelm,
    pins: Versions,
    fetched: Callable[..., list[str]],
    content: str | None,
    mode: int,
    what: str,
    got: str,
) -> None:
    helm.program.unlink()
    if content is not None:
        helm.program.write_text(content)
        helm.program.chmod(mode)
    with pytest.raises(BundleError, match=what) as error:
        fetched(pins)
    assert error.value.problem.got.startswith(got)
    with pytest.raises(BundleError, match="no-such-helm is not on PATH"):
        Helm("no-such-helm", helm.program.parent).pull(Chart(chart="a", version="v1"), helm.program.parent, limit_s=1)


def test_definitions_of_an_optional_part_are_asked_for_by_sites_that_have_it(
    helm: StandInHelm, pins: Versions, internet: dict[str, str], fetched: Callable[..., list[str]]
) -> None:
    helm.renders(FIRST)
    internet[str(pins.crd_sources[RELEASE_FILE].file).format(release=pins.crd_versions[RELEASE_FILE])] = FIRST
    assert "prometheus-operator.json" not in fetched(pins)
    project, release = "prometheus-operator/prometheus-operator", pins.crd_versions["prometheus-operator.json"]
    internet[f"https://github.com/{project}/releases/download/{release}/bundle.yaml"] = FIRST
    assert fetched(pins, parts=["prometheus_operator"]) == ["prometheus-operator.json"]


def test_a_release_file_that_is_no_text_is_refused(
    helm: StandInHelm, pins: Versions, fetched: Callable[..., list[str]]
) -> None:
    helm.renders(FIRST)
    (helm.program.parent / f"gateway-api-inference-extension-{pins.crd_versions[RELEASE_FILE]}.yaml").write_bytes(
        b"a: \xff\n"
    )
    with pytest.raises(BundleError, match=r"\.yaml holds no CustomResourceDefinition"):
        fetched(pins, ".")


def test_a_proxy_that_is_none_is_an_error_of_the_address(
    helm: StandInHelm, pins: Versions, fetched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    helm.renders(FIRST)
    monkeypatch.setenv("HTTPS_PROXY", "ftp://hub.example")
    with pytest.raises(BundleError, match=r"manifests\.yaml cannot be fetched"):
        fetched(pins)


def test_a_full_disk_leaves_what_was_there(
    helm: StandInHelm,
    pins: Versions,
    internet: dict[str, str],
    fetched: Callable[..., list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    helm.renders(FIRST)
    internet[str(pins.crd_sources[RELEASE_FILE].file).format(release=pins.crd_versions[RELEASE_FILE])] = FIRST
    before = dict.fromkeys(pins.crds, "an older one")
    (tmp_path / "crds").mkdir()
    for file, text in before.items():
        (tmp_path / "crds" / file).write_text(text)
    write_text = Path.write_text

    def fills_up(path: Path, data: str, encoding: str | None = None) -> int:
        write_text(path, data[:9], encoding)
        if path.name.startswith(".gateway-api"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_text(path, data, encoding)

    with monkeypatch.context() as full:
        full.setattr(Path, "write_text", fills_up)
        with pytest.raises(OSError, match=r"No space left on device: '.*/crds/gateway-api\.json'"):
            fetched(pins)
    assert {path.name: path.read_text() for path in (tmp_path / "crds").iterdir()} == before
