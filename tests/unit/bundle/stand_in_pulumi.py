"""A program in pulumi's place, its host of Python programs, and its folder of plugins: enough to be copied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bundle.plugins import Plugin

VERSION = "v3.246.0"


@dataclass(frozen=True)
class StandInPulumi:
    """`home` is what PULUMI_HOME names."""

    program: Path
    home: Path

    @classmethod
    def in_folder(cls, folder: Path) -> StandInPulumi:
        """As a release has it, with a link on PATH to it."""
        release = folder / "pulumi-release"
        release.mkdir()
        for name, prints in (("pulumi", VERSION), ("pulumi-language-python", ""), ("pulumi-language-python-exec", "")):
            (release / name).write_text(f"#!/bin/sh\necho {prints}\n")
            (release / name).chmod(0o755)
        program = folder / "pulumi"
        program.symlink_to(release / "pulumi")
        return cls(program, folder / "pulumi-home")

    def has(self, plugins: Iterable[Plugin]) -> None:
        for plugin in plugins:
            folder = self.home / "plugins" / plugin.folder
            folder.mkdir(parents=True)
            (folder / plugin.program).write_text(f"the provider {plugin.name}")
            (folder / plugin.program).chmod(0o755)
            (folder / "LICENSE").write_text("its license")
