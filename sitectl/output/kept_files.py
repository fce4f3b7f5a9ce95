"""Files that a command writes where its user names them: a new one, or one of the same kind. Nothing else is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from floor.reading.files import UnreadableError, text_of
from sitectl.change import saved_previews
from sitectl.output import markdown
from sitectl.shell import whole_files
from sitectl.shell.errors import Exit, SitectlError


def markdown_file(option: str, path: Path | None) -> None:
    """Raise SitectlError where Markdown would overwrite something else."""
    _refuse_over_other(option, path, "Markdown of sitectl", "plan.md", _is_markdown)


def preview_file(option: str, path: Path | None) -> None:
    """Raise SitectlError where a preview would overwrite something else."""
    _refuse_over_other(option, path, "a saved preview", "preview.json", _is_preview)


def write(path: Path | None, text: str, *, private: bool = False) -> None:
    """Write the file that was checked before; `private` keeps it to its owner. No path, no file."""
    if path is not None:
        whole_files.write(path, text, private=private)


def _refuse_over_other(option: str, path: Path | None, kind: str, example: str, is_one: Callable[[Path], bool]) -> None:
    if path is None or not path.is_file() or not path.stat().st_size or is_one(path):
        return
    raise SitectlError(
        f"{option} would overwrite {path}, which is not {kind}",
        fix=f"name a file that does not exist, such as {example}",
        status=Exit.USAGE,
    )


def _is_markdown(path: Path) -> bool:
    try:
        return markdown.MARK in text_of(path, largest=saved_previews.LARGEST_BYTES)
    except (OSError, UnreadableError):
        return False


def _is_preview(path: Path) -> bool:
    try:
        saved_previews.read(path)
    except SitectlError:
        return False
    return True
