"""Talos's own libraries on a config: whether it is valid, and what a change of it requires. By the checker program."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lab.errors import LabError
from talos.api.errors import Code, RpcError

_TIMEOUT_S = 60
_INCOMPLETE = "the v1alpha1 document is missing"


@dataclass(frozen=True)
class Verdict:
    """Talos's verdict of a config; `complete` is False where it only lacks what a machine needs to boot."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    complete: bool = True


@dataclass(frozen=True)
class MachineChange:
    """What lies between two configs; `why` is the reason where a reboot is needed. Both texts may hold secrets."""

    live: bool
    why: str
    diff: str


class Checker(Protocol):
    """Who judges configs."""

    def validate(self, config: bytes) -> Verdict:
        """Load and validate for metal mode."""

    def change(self, old: bytes, new: bytes) -> MachineChange:
        """Compare; `old` is empty for a machine without a config. RpcError for a config that cannot be read."""


@dataclass(frozen=True)
class CheckerProgram:
    """The program `talos-checker`."""

    program: Path

    def __post_init__(self) -> None:
        """Raise LabError unless it is there."""
        if not self.program.exists():
            raise LabError(f"{self.program} is missing", fix="`python -m lab install` builds it")

    def validate(self, config: bytes) -> Verdict:
        """As Checker.validate."""
        answer = self._ask("validate --allow-warnings", config)
        errors = [str(error) for error in answer["errors"]]
        incomplete = [error for error in errors if error.startswith(_INCOMPLETE)]
        return Verdict(
            tuple(error for error in errors if error not in incomplete), tuple(answer["warnings"] or ()), not incomplete
        )

    def change(self, old: bytes, new: bytes) -> MachineChange:
        """As Checker.change."""
        answer = self._ask("change", old, new)
        return MachineChange(answer["live"], answer["why"], answer["diff"])

    def _ask(self, command: str, *configs: bytes) -> dict[str, Any]:
        # Files without a place on the disk: configs hold the cluster's secrets.
        files = [os.memfd_create("config") for _ in configs]
        try:
            for file, config in zip(files, configs, strict=True):
                with open(file, "wb", closefd=False) as target:
                    target.write(config)
            done = subprocess.run(
                [self.program, *command.split(), *(f"/proc/self/fd/{file}" for file in files)],
                capture_output=True,
                check=False,
                timeout=_TIMEOUT_S,
                pass_fds=files,
            )
        finally:
            for file in files:
                os.close(file)
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            message = done.stderr.decode(errors="replace").strip().removeprefix("error: ")
            raise RpcError(Code.INVALID_ARGUMENT, message) from None
        return answer
