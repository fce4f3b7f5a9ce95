"""The lab's site behind a wall: its project, its bundle, and the commands that bring it up from that alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab import session
from lab.paths import CHECKOUT, SITE_FILE, Lab
from lab.registry import serving
from stacks.facts.image_lock import read_image_lock
from stacks.plan.site_plan import plan_file
from tests.lab.dark.publishers import Publishers
from tests.lab.site.project_copies import copy_project

SITE = "lab"
_KEY = "inference-platform:site"


@dataclass(frozen=True, kw_only=True)
class DarkSite:
    """A project with the lab's site, all images locked, and its bundle."""

    lab: Lab
    folder: Path

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def bundle(self) -> Path:
        return self.folder / "bundle"

    @property
    def programs(self) -> Path:
        """Of the bundle; the lab's own come after them on PATH, and until it is packed."""
        return self.bundle / "programs" / "bin"

    @property
    def file(self) -> Path:
        return self.project / SITE_FILE.name

    @property
    def locked(self) -> set[str]:
        """What the lock has, as a container's status names it: without tags."""
        return {f"{image.name}@{image.digest}" for image in read_image_lock(self.project).images}

    def write(self) -> None:
        """The checked-in site, with images by lock and out of the lab's registry, and everything else by bundle."""
        copy_project(self.project)
        document = yaml.safe_load(SITE_FILE.read_text())
        site = document["config"][_KEY]
        site["images"] = {"locked": True}
        site["charts"]["mirror"] = str(self.bundle / "charts")
        site["crds"]["folder"] = ".bundle/crds"
        mirror = {"endpoints": [f"http://{serving.address(self.lab)}"], "skip_fallback": True}
        site["cluster"]["machines"]["registries"] = {"mirrors": {"*": mirror}}
        self.file.write_text(yaml.safe_dump(document, sort_keys=False))

    def sitectl(self, *arguments: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        """One command in the project."""
        path = f"{self.programs}:{self.lab.bin}:{os.environ['PATH']}"
        done = subprocess.run(
            [sys.executable, "-m", "sitectl", *arguments],
            cwd=self.project,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT), "PATH": path, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def pulumi(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        session.prepare(self.lab, self.project)
        done = subprocess.run(
            ["pulumi", *arguments, "--stack", session.STACK, "--non-interactive"],
            cwd=self.project,
            env=self._session(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    @property
    def pulumi_program(self) -> str | None:
        """The one that `pulumi` runs."""
        return shutil.which("pulumi", path=self._session()["PATH"])

    def _session(self) -> dict[str, str]:
        """The session's environment, in which pulumi and its host of Python programs are the bundle's."""
        environment = session.environment(self.lab)
        return {**environment, "PATH": f"{self.programs}:{environment['PATH']}"}

    @contextmanager
    def pulumi_output(
        self, file: Path, *arguments: str
    ) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], list[str]]]]:
        """pulumi as it runs, and the lines that it has printed so far; it ends with the block."""
        session.prepare(self.lab, self.project)
        command = ["pulumi", *arguments, "--stack", session.STACK, "--non-interactive"]
        with file.open("wb") as output:
            process = subprocess.Popen(command, cwd=self.project, env=self._session(), stdout=output, stderr=output)
        try:
            yield process, lambda: file.read_text(errors="replace").splitlines()
        finally:
            process.terminate()
            process.wait()

    def publish(self, publishers: Publishers) -> None:
        """What the site asks for exists from now on, at its publishers."""
        plan = plan_file(self.file, without={"images"})
        nodes = plan.machines.nodes if plan.machines else ()
        listed: dict[str, Any] = json.loads(self.sitectl("bundle", "list", SITE, "--json").stdout)
        images = [entry["image"] for entry in listed["images"]]
        factory = f"{self.lab.network.image_factory}:8080"
        publishers.publish(images, factory=factory, schematics=[node.schematic.canonical() for node in nodes])

    def pack(self, publishers: Publishers) -> None:
        """Lock weights and images, and write the bundle."""
        origin = ("--from", publishers.registry, "--charts-from", str(self.lab.bundle / "charts"))
        self.sitectl("bundle", "lock", SITE, *origin)
        self.sitectl("weights", "lock", SITE, HF_ENDPOINT=publishers.hub)
        self.sitectl("bundle", "pack", SITE, "--out", str(self.bundle), *origin, HF_ENDPOINT=publishers.hub)

    def push(self) -> None:
        """The bundle's images into the lab's registry, which speaks plain HTTP."""
        self.sitectl("bundle", "push", str(self.bundle), "--to", serving.address(self.lab), "--plain-http")

    def remove(self) -> None:
        """A bundle with its copies takes gigabytes, which no later test needs."""
        shutil.rmtree(self.folder)
