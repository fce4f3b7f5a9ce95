"""Images of the platform's own services in a real registry: built, pushed, pulled by digest, and started.

No publisher is reached: the base image is made up, and packages are those of the lab's Python, which starts them too.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bundle.oci_layout import LayerFile, OciLayout
from floor.digests import sha256_of
from floor.images import image_reference
from lab.free_ports import free_address
from lab.install.toolchain import choose_toolchain, go_environment
from lab.paths import CHECKOUT, Lab
from lab.registry import serving
from stacks.facts import versions
from stacks.facts.own_images import PYTHON_SERVICES, SERVICES
from tests.unit.bundle.own_services import starts

PINS = versions.load()


@dataclass(frozen=True)
class Checkout:
    """One with the sources of the services, and the registry that it pushes to."""

    folder: Path
    lab: Lab
    registry: str

    def crane(self, *words: str) -> None:
        subprocess.run([self.lab.bin / "crane", *words, "--insecure"], check=True, capture_output=True)

    def built(self, *options: str) -> dict[str, str]:
        """Each service's image, as `bundle services` prints it."""
        go = choose_toolchain(self.lab, tuple(map(int, PINS.go.split("."))))
        go.prepare(self.lab)
        words = ["bundle", "services", "--project", str(self.folder), "--from", self.registry, "--plain-http"]
        programs = ["--crane", str(self.lab.bin / "crane"), "--go", str(go.program)]
        done = subprocess.run(
            [sys.executable, "-m", "sitectl", *words, *programs, *options, "--json"],
            cwd=CHECKOUT,
            env={**go_environment(self.lab), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.folder / "index")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        images: dict[str, str] = json.loads(done.stdout)["images"]
        return images

    def pulled(self, image: str, folder: Path) -> tuple[OciLayout, Path]:
        """The image's layout out of the registry by its digest alone, and its files."""
        asked = image_reference(image)
        self.crane("pull", "--format=oci", f"{asked.name}@{asked.digest}", str(folder / "layout"))
        layout, root = OciLayout(folder / "layout"), folder / "root"
        for layer in layout.read_image()[1]:
            with tarfile.open(layout.blob(layer.descriptor["digest"])) as files:
                files.extractall(root, filter="tar")
        return layout, root


def of_services() -> list[Distribution]:
    """Installed packages of the extra `services`, and those that they may need."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    new, needed = [*project["optional-dependencies"]["services"]], dict[str, Distribution]()
    while new:
        name = canonicalize_name(Requirement(new.pop()).name)
        # What another system or Python needs is not installed.
        if name not in needed and (installed := next(iter(distributions(name=name)), None)):
            needed[name] = installed
            new += installed.requires or ()
    return [*needed.values()]


def packed_again(distribution: Distribution, index: Path) -> Path:
    """A wheel of an installed package, which pip takes for every Python."""
    name = distribution.name.replace("-", "_").replace(".", "_")
    wheel = index / f"{name}-{distribution.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in distribution.files or ():
            # Scripts are beside the packages, and installed ones begin with this machine's path.
            if ".." not in file.parts and file.suffix != ".pyc":
                archive.write(file.locate(), str(file))
    return wheel


@pytest.fixture(scope="module")
def checkout(module_lab_of_tools: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("Pulumi.yaml", "__main__.py", "services", "pyproject.toml"):
        (folder / name).symlink_to(CHECKOUT / name)
    (folder / "index").mkdir()
    wheels = [packed_again(distribution, folder / "index") for distribution in of_services()]
    locked = {wheel: "==".join(wheel.name.split("-")[:2]) for wheel in wheels}
    lock = "".join(f"{name} \\\n    --hash=sha256:{sha256_of(wheel)}\n" for wheel, name in locked.items())
    (folder / "requirements.lock").write_text(lock)
    with serving.running(module_lab_of_tools.bin / "registry", free_address(), folder / "registry") as registry:
        checkout, base = Checkout(folder, module_lab_of_tools, registry), OciLayout(folder / "base")
        layer = base.add_layer([LayerFile("etc/base", io.BytesIO(b"made up"))], gzip_level=1)
        run = {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "PYTHON_VERSION=3.11.9"], "Cmd": ["python3"]}
        base.write_image({"architecture": "amd64", "os": "linux", "config": run}, [layer])
        checkout.crane("push", str(base.folder), image_reference(PINS.images.python).held_by(registry).tagged)
        yield checkout


@pytest.fixture(scope="module")
def pushed(checkout: Checkout) -> dict[str, str]:
    return checkout.built("--to", f"{checkout.registry}/inference-platform")


def test_what_is_pushed_is_what_the_lock_has_of_the_same_sources(checkout: Checkout, pushed: dict[str, str]) -> None:
    """Where a mirror of all registries has them too, so that pins stay as they are."""
    built = checkout.built()
    for name in SERVICES:
        assert image_reference(pushed[name]).digest == image_reference(built[name]).digest
        assert image_reference(built[name]).held_by(checkout.registry).tagged == image_reference(pushed[name]).tagged
    locked = (checkout.folder / "images.lock").read_text().splitlines()
    assert {line.partition("@")[0] for line in locked} == {
        PINS.images.python,
        *(getattr(PINS.images, s) for s in SERVICES),
    }
    assert {*built.values()} <= {*locked}


def test_the_gatekeeper_out_of_its_image_starts(checkout: Checkout, pushed: dict[str, str], tmp_path: Path) -> None:
    layout, root = checkout.pulled(pushed["gatekeeper"], tmp_path)
    assert [str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()] == ["usr/local/bin/gatekeeper"]
    (program,) = layout.read_image()[0]["config"]["Entrypoint"]
    shown = subprocess.run([root / program.lstrip("/"), "--help"], capture_output=True, text=True, check=True)
    assert "-tenants-file string" in shown.stderr


@pytest.mark.parametrize("service", PYTHON_SERVICES)
def test_a_service_out_of_its_image_starts(
    service: str, checkout: Checkout, pushed: dict[str, str], tmp_path: Path
) -> None:
    layout, root = checkout.pulled(pushed[service], tmp_path)
    assert (root / "etc/base").read_text() == "made up"
    run = layout.read_image()[0]["config"]
    variables = dict(variable.split("=", 1) for variable in run["Env"])
    path = ":".join(f"{root}{place}" for place in variables["PYTHONPATH"].split(":"))
    # Python alone, without the packages of this machine.
    python = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    assert run["Entrypoint"][1:] == ["-m", f"services.{service}"]
    for words in starts(service):
        command = [str(python), "-S", "-P", *words]
        shown = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.strip() not in ("", "[]")
