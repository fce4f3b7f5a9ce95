"""Image references: how a pod names an image, and how a registry that holds copies of many registries names it."""

from __future__ import annotations

import re
from dataclasses import dataclass

# What a name without a registry means to a container runtime.
_DEFAULT_REGISTRY = "docker.io"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# Of OCI's distribution specification, in "Pulling manifests".
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
REPOSITORY = rf"{_PART}(?:/{_PART})*"
"""A pattern of the whole name of a repository, or of what it begins with before a slash."""


def is_repository(name: str) -> bool:
    """Whether a repository of a registry may have this name."""
    return re.fullmatch(REPOSITORY, name) is not None


@dataclass(frozen=True, order=True)
class ImageReference:
    """`registry/path:tag@digest`; tag and digest are empty where the reference has none."""

    registry: str
    path: str
    tag: str = ""
    digest: str = ""
    """`sha256:` and 64 hex digits."""

    @property
    def name(self) -> str:
        """Registry and path."""
        return f"{self.registry}/{self.path}"

    @property
    def tagged(self) -> str:
        """Without the digest."""
        return f"{self.name}:{self.tag}" if self.tag else self.name

    def __str__(self) -> str:
        return f"{self.tagged}@{self.digest}" if self.digest else self.tagged

    def held_by(self, mirror: str) -> ImageReference:
        """The same image in a mirror of all registries, which Talos and containerd ask for the path alone.

        mirror: `HOST[:PORT][/PREFIX]`.
        """
        host, _, prefix = mirror.partition("/")
        return ImageReference(host, f"{prefix}/{self.path}" if prefix else self.path, self.tag, self.digest)


def image_reference(text: str) -> ImageReference:
    """Read a reference as a container runtime does: `busybox:1` is docker.io/library/busybox:1.

    Raises ValueError for a digest that is no sha256.
    """
    name, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise ValueError(f"'{text}' has a digest that is no sha256")
    folder, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    name = folder + slash + last
    first, _, rest = name.partition("/")
    if not rest:
        return ImageReference(_DEFAULT_REGISTRY, f"library/{name}", tag, digest)
    if "." in first or ":" in first or first == "localhost":
        return ImageReference(first, rest, tag, digest)
    return ImageReference(_DEFAULT_REGISTRY, name, tag, digest)
