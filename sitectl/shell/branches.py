"""A new branch of the checkout's repository with one commit, which changes no file that the user has open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sitectl.shell import programs, temporary
from sitectl.shell.errors import Exit, SitectlError


@contextmanager
def added(project: Path, branch: str) -> Iterator[Path]:
    """The checkout's files at its last commit, in a folder of their own, on a new branch.

    The folder is gone afterwards, and after an error the branch too. Raises SitectlError where git refuses it.
    """
    below = _git(project, ["rev-parse", "--show-prefix"], "clone the repository: a copy without .git has no branches")
    with temporary.folder() as folder:
        tree = folder / "tree"
        _git(
            project,
            ["worktree", "add", "--quiet", "-b", branch, str(tree), "HEAD"],
            f"if the branch is of an earlier try, delete it: git branch -D {branch}",
        )
        try:
            yield tree / below
        except BaseException:
            _forget(project, tree)
            _git(project, ["branch", "--quiet", "-D", branch], "delete the branch yourself")
            raise
        _forget(project, tree)


def commit(folder: Path, file: Path, message: str) -> None:
    """Commit this one file. Raises SitectlError where git refuses it."""
    _git(folder, ["add", "--", str(file)], "make the file one that git keeps")
    _git(folder, ["commit", "--quiet", "-m", message], "do what git asks for, such as user.name and user.email")


def push(project: Path, branch: str) -> None:
    """Send the branch to the remote `origin`. Raises SitectlError where that refuses it."""
    _git(
        project,
        ["push", "--quiet", "origin", branch],
        f"look at origin's {branch}, or delete it if it is of an earlier try",
    )


def commit_of(project: Path, branch: str) -> str:
    """Its last commit, whole. Raises SitectlError where there is none."""
    return _git(project, ["rev-parse", branch], "name a branch that is there")


def is_origins(project: Path, branch: str) -> bool:
    """Whether the last commit here is that of this branch at the remote `origin`. Raises SitectlError without one."""
    there = _git(project, ["ls-remote", "origin", f"refs/heads/{branch}"], "look at what `git remote -v` lists")
    return there.split("\t")[0] == commit_of(project, "HEAD")


def checked_out(project: Path) -> str:
    """The branch that the user is on; empty for none."""
    return _git(project, ["branch", "--show-current"], "clone the repository: a copy without .git has no branches")


def _forget(project: Path, tree: Path) -> None:
    _git(project, ["worktree", "remove", "--force", str(tree)], "git worktree prune")


def _git(folder: Path, arguments: Sequence[str], fix: str) -> str:
    done = programs.run(["git", *arguments], cwd=folder, fix="install git")
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().replace("\n", "; ")
        raise SitectlError(f"git {arguments[0]}: {reason or 'no reason given'}", fix=fix, status=Exit.UNABLE)
    return done.stdout.decode().strip()
