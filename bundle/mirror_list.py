"""What sites take from outside as lines for the usual copy tools."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from bundle.fetching import PackedChart
from bundle.supplies import CHARTS, WHEELS, Supplies, weights_folder

Tool = Literal["crane", "skopeo", "oras", "helm", "hf", "pip"]
TOOLS: tuple[Tool, ...] = get_args(Tool)


def mirror_list(supplies: Supplies, tool: Tool, mirror: str) -> str:
    """Text for the tool: commands for a shell, but for skopeo, which reads a file: `skopeo sync --src yaml`.

    mirror: `HOST[:PORT][/PREFIX]` that images go to.
    """
    if tool == "skopeo":
        return yaml.safe_dump(_skopeo(supplies), sort_keys=True, width=1000)
    lines = {
        "crane": (["crane", "copy", str(image), image.held_by(mirror).tagged] for image in supplies.images),
        "oras": (["oras", "cp", str(image), image.held_by(mirror).tagged] for image in supplies.images),
        "helm": (_pull(packed) for packed in supplies.charts),
        "hf": _downloads(supplies),
        "pip": iter([["pip", "download", "--require-hashes", "--no-deps", "-r", "requirements.lock", "-d", WHEELS]]),
    }[tool]
    return "".join(f"{shlex.join(words)}\n" for words in lines)


def _skopeo(supplies: Supplies) -> dict[str, Any]:
    """By registry: `images` has tags or digests by path."""
    registries: dict[str, Any] = {}
    for image in supplies.images:
        paths = registries.setdefault(image.registry, {"images": {}})["images"]
        paths.setdefault(image.path, []).append(image.digest or image.tag)
    return registries


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
