"""Which images a site runs, and what the plan makes of a lock."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from floor.images import image_reference
from floor.problems import SiteError
from stacks.facts import chart_images, versions
from stacks.facts.image_lock import FILE, ImageLock
from stacks.plan.images import shortened, untagged_repositories
from stacks.plan.site_plan import SitePlan, plan_file

pytestmark = pytest.mark.row("opening 14", "000.07")

PROD = Path(__file__).parents[3] / "Pulumi.prod.yaml"
PLAN = plan_file(PROD)
DIGEST = f"sha256:{'1' * 64}"


UNTAGGED = untagged_repositories(PLAN.site, PLAN.versions)


def lock_of(plan: SitePlan) -> ImageLock:
    """With every image of the site."""
    rendered = {f"{name}:v1.2.3": releases for name, releases in UNTAGGED.items()}
    # Some pins have their digest.
    named = (image if "@" in image else f"{image}@{DIGEST}" for image in (*plan.images, *rendered))
    images = [image_reference(image) for image in named]
    return ImageLock({}).with_images(images).with_renderings(rendered)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """prod with locked images, and the lock beside it."""
    file = Path(shutil.copy(PROD, tmp_path))
    file.write_text(file.read_text().replace("    cluster:\n", "    images: {locked: true}\n    cluster:\n", 1))
    (tmp_path / FILE).write_text(lock_of(PLAN).text())
    return file


def test_a_site_runs_what_its_models_charts_and_machines_run() -> None:
    pins = versions.load()
    assert PLAN.images[pins.images.vllm] == [
        "model glm-5-1",
        "model qwen3-32b",
        "weights of glm-5-1",
        "weights of qwen3-32b",
    ]
    assert PLAN.images[pins.images.envoy] == ["proxies of the gateway"]
    assert PLAN.images[pins.images.prometheus] == ["monitoring"]
    assert PLAN.images[f"ghcr.io/siderolabs/kubelet:{pins.kubernetes}"] == ["machines"]
    assert {*chart_images.load()["longhorn"].all_images()} <= PLAN.images.keys()
    assert (
        len([image for image in PLAN.images if image.startswith("factory.talos.dev/metal-installer-secureboot/")]) == 2
    )
    assert pins.images.simulator not in PLAN.images
    assert not [image for image in PLAN.images if "metallb" in image or "kube-proxy" in image]


def test_pods_get_the_locked_digests(site: Path) -> None:
    plan = plan_file(site)
    pins = versions.load().images
    assert plan.versions.images.vllm == f"{pins.vllm}@{DIGEST}"
    assert plan.proxy_image == f"{pins.envoy}@{DIGEST}"
    assert {model.stable.engine.image for model in plan.models.values()} == {f"{pins.vllm}@{DIGEST}"}
    assert plan.locked_images is not None
    assert f"{pins.vllm}@{DIGEST}" in plan.locked_images
    assert (PLAN.proxy_image, PLAN.locked_images, PLAN.versions.images.vllm) == (None, None, pins.vllm)


@pytest.mark.parametrize("image", [*PLAN.images, *UNTAGGED])
def test_a_site_is_refused_for_each_image_that_its_lock_lacks(site: Path, image: str) -> None:
    lock, name = site.with_name(FILE), image.partition("@")[0]
    kept = [
        line for line in lock.read_text().splitlines(keepends=True) if not line.startswith((f"{name}@", f"{name}:"))
    ]
    lock.write_text("".join(kept))
    with pytest.raises(SiteError) as error:
        plan_file(site)
    (problem,) = error.value.problems
    assert problem.key == "images.locked"
    assert f"images.lock lacks 1 image of the site: {shortened(image)} (" in problem.what
    assert "sitectl bundle lock prod" in problem.fix
    assert plan_file(site, without={"images"}).image_lock is None


def test_a_raised_chart_is_refused_until_its_rendering_was_locked_again(site: Path) -> None:
    """Also where a tag of the repository is locked: it is that of the version before."""
    lock = site.with_name(FILE)
    text = lock.read_text()
    releases = sorted({release for releases in UNTAGGED.values() for release in releases})
    assert {"cilium", "gpu_operator"} <= {release.chart for release in releases}
    for release in releases:
        lock.write_text(text.replace(str(release), f"{release.chart}@0.0.1"))
        with pytest.raises(SiteError) as error:
            plan_file(site)
        (problem,) = error.value.problems
        assert f"(chart {release.chart} {release.version})" in problem.what
        assert problem.fix.startswith("sitectl bundle lock prod")
    lock.write_text(text.replace(str(releases[0]), f"{releases[0]} {releases[0].chart}@0.0.1"))
    assert plan_file(site).image_lock is not None


def test_no_factory_is_asked_for_installers_that_are_locked(site: Path) -> None:
    assert (PLAN.asked_factory, plan_file(site).asked_factory) == ("https://factory.talos.dev", None)


def test_another_digest_than_a_part_pins_itself_is_not_the_locked_one(site: Path) -> None:
    lock = ImageLock({"docker.io/a/b:v1": DIGEST})
    assert lock.pinned(f"docker.io/a/b:v1@sha256:{'2' * 64}") is None
    assert lock.pinned(f"docker.io/a/b:v1@{DIGEST}") == f"docker.io/a/b:v1@{DIGEST}"
    site.with_name(FILE).unlink()
    with pytest.raises(SiteError, match=f"lacks {len(PLAN.images) + len(UNTAGGED)} images of the site"):
        plan_file(site)
