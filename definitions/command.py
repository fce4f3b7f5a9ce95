"""The command that installs a file: the program writes it, and readers of a state or a preview read it back."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

_PROGRAM = (".venv/bin/python", "-m", "definitions", "apply")


@dataclass(frozen=True, kw_only=True)
class ApplyCommand:
    """`python -m definitions apply` of one file."""

    file: Path
    release: str
    sha256: str
    """Of the file, in hex."""
    manager: str
    """Of the fields, by server-side apply."""
    kubeconfig: str = ""
    """Path of an existing cluster's; empty where the environment has the text."""

    @property
    def source(self) -> str:
        """Such as `gateway-api`."""
        return self.file.stem

    @property
    def text(self) -> str:
        """The line that a shell reads."""
        options = ("--release", self.release, "--sha256", self.sha256, "--manager", self.manager)
        cluster = ("--kubeconfig", self.kubeconfig) if self.kubeconfig else ()
        return shlex.join([*_PROGRAM, str(self.file), *options, *cluster])

    @classmethod
    def read(cls, text: object) -> ApplyCommand | None:
        """The command out of its text; None for any other command."""
        words = shlex.split(text) if isinstance(text, str) and " -m definitions apply " in text else []
        if tuple(words[: len(_PROGRAM)]) != _PROGRAM:
            return None
        file, *rest = words[len(_PROGRAM) :]
        given = dict(zip(rest[::2], rest[1::2], strict=True))
        return cls(
            file=Path(file),
            release=given["--release"],
            sha256=given["--sha256"],
            manager=given["--manager"],
            kubeconfig=given.get("--kubeconfig", ""),
        )
