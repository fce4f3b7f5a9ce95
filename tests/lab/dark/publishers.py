"""Everyone whom a site takes files from, played by one registry and one hub on this machine, until they are shut."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from floor.images import image_reference
from lab.free_ports import free_address
from lab.hub.server import EmulatedHubServer, Hub
from lab.machines.image_factory import FactoryContent, ImageFactoryServer
from lab.paths import Lab
from lab.registry import made_images, serving


@dataclass(frozen=True, kw_only=True)
class Publishers:
    """Where they answer."""

    lab: Lab
    registry: str
    hub: str
    factory: ImageFactoryServer

    def publish(self, images: Sequence[str], *, factory: str, schematics: Sequence[bytes]) -> None:
        """Each image by name and tag. Those of the image factory, whose address is `factory`, are its installers."""
        for schematic in schematics:
            self.factory.content.add(schematic)
        for image in images:
            asked = image_reference(image)
            if asked.registry == factory:
                path = f"{asked.path}:{asked.tag}"
                command = [
                    str(self.lab.bin / "crane"),
                    "copy",
                    f"{self.factory.registry}/{path}",
                    f"{self.registry}/{path}",
                ]
                subprocess.run(command, check=True, capture_output=True)
            else:
                made_images.push_all([image], self.registry, tools=self.lab.bin)


@contextmanager
def publishing(lab: Lab, folder: Path) -> Iterator[Publishers]:
    """They answer until the block ends, and nothing of theirs does after it."""
    address = free_address()
    hub, factory = EmulatedHubServer(Hub()), ImageFactoryServer(FactoryContent())
    try:
        with serving.running(lab.bin / "registry", address, folder) as registry:
            yield Publishers(lab=lab, registry=registry, hub=hub.url, factory=factory)
    finally:
        hub.close()
        factory.close()
