"""The files of a git revision in a separate folder, without changing the checkout or its worktrees."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sitectl.shell import programs, temporary
from sitectl.shell.errors import Exit, SitectlError


@contextmanager
def tree(project: Path, revision: str) -> Iterator[Path]:
    """The tree of `revision`, gone afterwards. Raises SitectlError when git knows no such revision."""
    packed = _git(project, "archive", "--format=tar", _folder(project, revision))
    if packed.returncode != 0:
        raise SitectlError(f"git cannot pack {revision}: {packed.stderr.decode().strip()}", fix="git fsck")
    with temporary.folder() as folder:
        try:
            with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
                # Links that lead out of the folder, devices and the like are refused.
                archive.extractall(folder, filter="data")
        except tarfile.TarError as error:
            raise SitectlError(
                f"the files of {revision} are not unpacked: {error}",
                fix="take out the link that leads out of the checkout",
                status=Exit.REFUSED,
            ) from None
        yield folder


def text(project: Path, revision: str, name: str) -> str | None:
    """A file of the checkout at `revision`; None where it was not there. Raises SitectlError as `tree` does."""
    shown = _git(project, "cat-file", "blob", f"{_folder(project, revision)}{name}")
    return shown.stdout.decode(errors="replace") if shown.returncode == 0 else None


def _folder(project: Path, revision: str) -> str:
    """The checkout's folder at `revision`, in git's syntax: `COMMIT:` or `COMMIT:below/`."""
    if revision.startswith("-"):
        raise SitectlError(
            "a revision does not begin with a dash", got=revision, fix="name a branch, tag or commit", status=Exit.USAGE
        )
    below = _git(project, "rev-parse", "--show-prefix")
    if below.returncode != 0:
        raise _no_repository(project, below.stderr.decode(errors="replace").strip())
    commit = _git(project, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit.returncode != 0:
        raise SitectlError(
            "no such revision, and no folder that `render` wrote",
            got=revision,
            allowed="a branch, tag or commit of this checkout, or a rendered folder",
            fix="git fetch, if it is a branch of the remote; git log names commits",
            status=Exit.USAGE,
        )
    return f"{commit.stdout.decode().strip()}:{below.stdout.decode().strip()}"


def _no_repository(project: Path, reason: str) -> SitectlError:
    """git refuses the whole checkout, whatever the revision."""
    # The option's name is in git's message in every language.
    is_of_another_owner = "safe.directory" in reason
    trust = f"if you trust its owner: git config --global --add safe.directory {project}"
    return SitectlError(
        f"git reads no revision of {project}: {reason.splitlines()[0] if reason else 'it gives no reason'}",
        fix=trust if is_of_another_owner else "clone the repository: a copy without .git has no revisions",
    )


def _git(project: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return programs.run(["git", *arguments], cwd=project, fix="install git, or compare two rendered folders")
