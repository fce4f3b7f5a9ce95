"""Where the checkout, or the folder of sites, is that a command works on."""

from __future__ import annotations

from pathlib import Path

from sitectl.shell import home
from sitectl.shell.errors import Exit, SitectlError

PROJECT_FILE = "Pulumi.yaml"


def find(folder: Path) -> Path:
    """The checkout that `folder` is in. Raises SitectlError."""
    for candidate in (folder, *folder.parents):
        if (candidate / PROJECT_FILE).is_file() and (candidate / "__main__.py").is_file():
            return candidate
    place = "checkout of the platform" if home.is_checkout() else "folder of sites"
    begin = "" if home.is_checkout() else "; to begin one, copy these two from a checkout of the platform"
    raise SitectlError(
        f"{folder} is in no {place}: no folder above it holds {PROJECT_FILE} and __main__.py",
        fix=f"change into the {place.partition(' of the')[0]}, or name it with --project{begin}",
        status=Exit.USAGE,
    )
