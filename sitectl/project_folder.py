"""Where the checkout is that a command works on."""

from __future__ import annotations

from pathlib import Path

from sitectl.errors import Exit, SitectlError

PROJECT_FILE = "Pulumi.yaml"


def find(folder: Path) -> Path:
    """The checkout that `folder` is in. Raises SitectlError."""
    for candidate in (folder, *folder.parents):
        if (candidate / PROJECT_FILE).is_file() and (candidate / "__main__.py").is_file():
            return candidate
    raise SitectlError(
        f"{folder} is in no checkout of the platform: no folder above it holds {PROJECT_FILE} and __main__.py",
        fix="change into the checkout, or name it with --project",
        status=Exit.USAGE,
    )
