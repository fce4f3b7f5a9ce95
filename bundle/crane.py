"""Container images as people copy them: by crane, from registries into OCI image layouts, and from these into one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bundle.errors import BundleError
from bundle.programs import FetchingProgram
from floor.images import ImageReference

_INSTALL = "install crane: https://github.com/google/go-containerregistry, or name the program: --crane PROGRAM"
_FETCH = "check the connection and the login (crane auth login HOST), or name a mirror that has the image: --from HOST"
_STORE = "check that the registry is there and takes images from you: crane auth login HOST; without TLS: --plain-http"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Crane:
    """The crane program. Credentials are Docker's own file, as `crane auth login` writes it."""

    program: str
    plain_http: bool = False
    """Whether registries may have no TLS. crane then believes any certificate too."""

    def digest(self, image: ImageReference, platform: str, *, limit_s: float) -> str:
        """What the tag is now, of one platform such as `linux/amd64`. Raises BundleError, NoAnswerError."""
        arguments = ["digest", "--platform", platform, str(image)]
        printed = self._run(arguments, image, f"crane finds no {image} for {platform}", _FETCH, limit_s).strip()
        if not _DIGEST.fullmatch(printed):
            raise BundleError(f"crane knows no digest of {image}", got=printed[:80], allowed="sha256:...", fix=_FETCH)
        return printed

    def pull(self, image: ImageReference, folder: Path) -> None:
        """Write the image of this digest as an OCI layout into the folder, which is not there yet."""
        self._run(["pull", "--format=oci", str(image), str(folder)], image, f"crane cannot pull {image}", _FETCH, None)

    def push(self, folder: Path, image: ImageReference) -> None:
        """Put the layout of one image into a registry under this name and tag."""
        self._run(["push", str(folder), image.tagged], image, f"crane cannot push {image.tagged}", _STORE, None)

    def _run(
        self, arguments: Sequence[str], image: ImageReference, failed: str, fix: str, limit_s: float | None
    ) -> str:
        program = FetchingProgram(command=self.program, folder=Path.cwd(), install=_INSTALL)
        options = ["--insecure"] if self.plain_http else []
        return program.run([*options, *arguments], what=str(image), failed=failed, fix=fix, limit_s=limit_s)
