"""What sites take from outside as lines for the usual copy tools."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal, get_args

from bundle.errors import BundleError
from bundle.fetching import PackedChart
from bundle.image_folder import ImageFolder
from bundle.mirror_paths import require_own_paths
from bundle.supplies import BUILT, CHARTS, WHEELS, Supplies, weights_folder
from floor.counts import counted
from floor.images import ImageReference
from stacks.facts.own_images import is_built_here

Tool = Literal["crane", "skopeo", "oras", "helm", "hf", "pip"]
TOOLS: tuple[Tool, ...] = get_args(Tool)


def mirror_list(supplies: Supplies, tool: Tool, mirror: str) -> str:
    """Commands for a shell, which ends at the first that fails.

    mirror: `HOST[:PORT][/PREFIX]` that images go to. Raises BundleError for images of which no tag is known yet,
    and for those that would replace each other there.
    """
    if tool in ("crane", "skopeo", "oras"):
        _check_tags(supplies)
        require_own_paths(supplies.images)
    lines = {
        "crane": (_crane(image, mirror) for image in supplies.images),
        "skopeo": (_skopeo(image, mirror) for image in supplies.images),
        "oras": (_oras(image, mirror) for image in supplies.images),
        "helm": chain([["mkdir", "-p", CHARTS]], (_pull(packed) for packed in supplies.charts)),
        "hf": _downloads(supplies),
        "pip": iter([["pip", "download", "--require-hashes", "--no-deps", "-r", "requirements.lock", "-d", WHEELS]]),
    }[tool]
    return "".join(["set -e\n", *(f"{shlex.join(words)}\n" for words in lines)])


def _check_tags(supplies: Supplies) -> None:
    if unknown := [image.name for image in supplies.images if not (image.tag or image.digest)]:
        raise BundleError(
            f"no tag is known of {counted(len(unknown), 'image')}: {', '.join(unknown)}",
            fix=f"sitectl bundle lock {' '.join(supplies.sites)}: it renders the charts that name them",
        )


def _crane(image: ImageReference, mirror: str) -> list[str]:
    """What is built here comes out of its folder, as for every tool."""
    built, target = _built(image), image.held_by(mirror).tagged
    return ["crane", "push", built, target] if built else ["crane", "copy", str(image), target]


def _skopeo(image: ImageReference, mirror: str) -> list[str]:
    """skopeo takes a tag or a digest, not both. With --all the copy of an index is the same index."""
    named = f"{image.name}@{image.digest}" if image.digest else image.tagged
    source = f"oci:{built}" if (built := _built(image)) else f"docker://{named}"
    target = image.held_by(mirror).tagged
    return ["skopeo", "copy", "--all", "--preserve-digests", source, f"docker://{target}"]


def _oras(image: ImageReference, mirror: str) -> list[str]:
    built, target = _built(image), image.held_by(mirror).tagged
    source = ["--from-oci-layout", f"{built}@{image.digest}"] if built else [str(image)]
    return ["oras", "cp", *source, target]


def _built(image: ImageReference) -> str:
    """The folder of an image of an own service, below the project; empty for every other image."""
    return str(ImageFolder(BUILT).of(image)) if is_built_here(image.name) else ""


def _pull(packed: PackedChart) -> list[str]:
    if packed.chart is None:
        return ["curl", "--fail", "--location", "--create-dirs", "--output", f"{CHARTS}/{packed.file}", packed.address]
    chart = packed.chart
    where = ["--repo", chart.repository] if chart.repository else []
    return ["helm", "pull", chart.chart, "--version", chart.version, *where, "--destination", CHARTS]


def _downloads(supplies: Supplies) -> Iterator[list[str]]:
    wanted = [(manifest.repository, manifest.revision) for manifest in supplies.weights]
    for repository, revision in sorted({*wanted, *supplies.unlocked_weights}):
        folder = weights_folder(Path(), repository) / "revisions" / revision
        yield ["hf", "download", repository, "--revision", revision, "--local-dir", str(folder)]
