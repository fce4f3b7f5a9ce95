"""Programs of others that fetch for us: run within a limit, with their failures as errors of our form."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bundle.asking import NoAnswerError
from bundle.errors import BundleError

# The end of what a program prints: there is the reason.
_SHOWN = 400


@dataclass(frozen=True, kw_only=True)
class FetchingProgram:
    """A program on PATH, or its path."""

    command: str
    folder: Path
    """Where it is run."""
    install: str
    """How to get it."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of its environment, beside ours."""

    def run(
        self, arguments: Sequence[str], *, what: str, failed: str, fix: str, limit_s: float | None, given: str = ""
    ) -> str:
        """What it prints. Raises BundleError, `failed` and `fix` for its own; NoAnswerError of `what` after the limit.

        given: its standard input.
        """
        try:
            done = subprocess.run(
                [self.command, *arguments],
                cwd=self.folder,
                env={**os.environ, **self.variables},
                input=given,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=limit_s,
                check=False,
            )
        except FileNotFoundError:
            missing = f"there is no {self.command}" if "/" in self.command else f"{self.command} is not on PATH"
            raise BundleError(missing, fix=self.install) from None
        except OSError as error:
            raise BundleError(f"{self.command} cannot be run", got=str(error.strerror), fix=self.install) from None
        except subprocess.TimeoutExpired as late:
            raise NoAnswerError(what, late.timeout) from None
        if done.returncode != 0:
            got = done.stderr.strip()[-_SHOWN:] or f"status {done.returncode} and no message"
            raise BundleError(failed, got=got, fix=fix)
        return done.stdout
