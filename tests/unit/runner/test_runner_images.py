from __future__ import annotations

from pathlib import Path

import pytest

from lab.paths import EARLIER
from lab.runner import images
from lab.runner.launch import program_of
from lab.runner.lifecycle import ImageError


@pytest.mark.parametrize(
    ("image", "tool"),
    [
        ("envoyproxy/gateway:v1.9.1", "envoy-gateway"),
        ("mirror.site/docker.io/envoyproxy/gateway:v1.9.1", "envoy-gateway"),
        ("mirror.site/envoyproxy/ai-gateway-extproc:v1", "ai-gateway-extproc"),
        ("mirror.site:5000/registry.k8s.io/kubectl:v1.36.3", "kubectl"),
        ("registry.k8s.io/gateway-api-inference-extension/epp:v1.5.0", "epp"),
        ("mirror.site/prometheus/prometheus:v3.12.0", "prometheus"),
        ("mirror.site/prometheus-operator/prometheus-operator:v0.85.0", "prometheus-operator"),
    ],
)
def test_find(image: str, tool: str) -> None:
    program = images.find(image)
    assert program is not None
    assert program.tool == tool


@pytest.mark.parametrize("image", ["lmsysorg/sglang:v0.5", "bitnami/kubectl", "example.com/epp"])
def test_other_images_are_not_guessed(image: str) -> None:
    assert images.find(image) is None
    message = images.unknown_image_message(image)
    assert image in message
    assert "lab/runner/images.py" in message


def test_a_name_that_is_none_is_reported() -> None:
    with pytest.raises(ImageError, match="has a digest that is no sha256"):
        program_of("registry.k8s.io/kubectl@sha256:abc")


def test_the_tag_chooses_between_versions_that_the_lab_has(tmp_path: Path) -> None:
    (tmp_path / EARLIER).mkdir()
    for name in ("prometheus", f"{EARLIER}/prometheus-v3.11.0"):
        (tmp_path / name).touch()
    program = program_of("quay.io/prometheus/prometheus:v3.11.0")
    for tag, name in (("v3.11.0", f"{EARLIER}/prometheus-v3.11.0"), ("v3.12.0", "prometheus"), ("", "prometheus")):
        assert images.host_files(program, tmp_path, tag).binds == ((tmp_path / name, "/bin/prometheus"),)


def test_an_image_of_the_platforms_own_has_the_labs_packages(tmp_path: Path) -> None:
    made, plain = (
        images.host_files(images.TABLE[name], tmp_path)
        for name in (images.DIRECTORY_REPOSITORY, images.PYTHON_REPOSITORY)
    )
    more = dict(link[::-1] for link in set(made.links) - set(plain.links))
    assert set(more) == {"/usr/local/pyvenv.cfg", "/usr/local/lib"}
    assert all(Path(target).exists() for target in more.values())
