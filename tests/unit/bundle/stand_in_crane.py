"""A program in crane's place: registries are a JSON file beside it, and an image is the text that the file has."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SCRIPT = f"""\
#!{sys.executable}
import json, pathlib, sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.unit.bundle import stand_in_crane
sys.exit(stand_in_crane.main(pathlib.Path(sys.argv[0]), sys.argv[1:]))
"""


def blob(data: bytes) -> str:
    """Its digest."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def image(text: str) -> dict[str, bytes]:
    """Blobs of an image whose one layer is this text, by digest; the last is its manifest."""
    config, layer = b"{}", text.encode()
    described = [{"digest": blob(data), "size": len(data)} for data in (config, layer)]
    manifest = json.dumps({"schemaVersion": 2, "config": described[0], "layers": described[1:]}).encode()
    return {blob(data): data for data in (config, layer, manifest)}


def digest_of(text: str) -> str:
    """Of the image with this text."""
    return list(image(text))[-1]


def write_layout(folder: Path, text: str) -> None:
    blobs = image(text)
    (folder / "blobs" / "sha256").mkdir(parents=True)
    for digest, data in blobs.items():
        (folder / "blobs" / digest.replace(":", "/")).write_bytes(data)
    (folder / "index.json").write_text(json.dumps({"manifests": [{"digest": digest_of(text)}]}))


def main(program: Path, words: list[str]) -> int:
    """As crane does; what is asked for is noted."""
    with program.with_suffix(".asked").open("a") as asked:
        asked.write(json.dumps(words) + "\n")
    file = program.with_suffix(".json")
    there: dict[str, str] = json.loads(file.read_text())
    match [word for word in words if word != "--insecure"]:
        case ["version"]:
            print("v0.22.1")
        case ["digest", "--platform", _, name] if name in there:
            print(digest_of(there[name]))
        case ["pull", "--format=oci", name, folder]:
            tagged, _, digest = name.partition("@")
            texts = [text for known, text in there.items() if known == tagged and digest_of(text) == digest]
            if not texts:
                print(f"Error: MANIFEST_UNKNOWN: {name}", file=sys.stderr)
                return 1
            write_layout(Path(folder), texts[0])
        case ["push", folder, name]:
            (manifest,) = json.loads((Path(folder) / "index.json").read_text())["manifests"]
            layer = json.loads((Path(folder) / "blobs" / manifest["digest"].replace(":", "/")).read_text())["layers"][0]
            there[name] = (Path(folder) / "blobs" / layer["digest"].replace(":", "/")).read_text()
            file.write_text(json.dumps(there))
        case _:
            print(f"Error: NAME_UNKNOWN: {words[-1]}", file=sys.stderr)
            return 1
    return 0


@dataclass(frozen=True)
class StandInCrane:
    """Registries with the images that a test gave it."""

    program: Path

    @classmethod
    def in_folder(cls, folder: Path) -> StandInCrane:
        program = folder / "crane"
        program.write_text(_SCRIPT)
        program.chmod(0o755)
        program.with_suffix(".json").write_text("{}")
        return cls(program)

    @property
    def images(self) -> dict[str, str]:
        """Text of each image by its name with tag."""
        there: dict[str, str] = json.loads(self.program.with_suffix(".json").read_text())
        return there

    def has(self, images: dict[str, str]) -> None:
        self.program.with_suffix(".json").write_text(json.dumps({**self.images, **images}))

    def asked(self, verb: str) -> list[list[str]]:
        file = self.program.with_suffix(".asked")
        calls: list[Any] = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [call for call in calls if verb in call[:2]]
