"""What a revision of a repository consists of: each file with its size and sha256. Also the form of a lock."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from services.weights.failure import Exit, WeightsError

REVISION = re.compile(r"[0-9a-f]{40}")
_HEAD = re.compile(r"# (?P<repository>[^\s/]+/[^\s/]+) at (?P<revision>[0-9a-f]{40})")
_SIZE = re.compile(r"# (?P<size>[0-9]+) bytes")
_FILE = re.compile(r"(?P<sha256>[0-9a-f]{64})  (?P<path>\S(.*\S)?)")

# vLLM reads the first of these that a repository has (its loader's order), and nothing of the folders below, of
# which the last two are made by clients.
_WEIGHTS = (".safetensors", ".bin", ".pt")
_OTHER_WEIGHTS = (".pth", ".gguf", ".onnx", ".onnx_data", ".h5", ".msgpack", ".ot", ".tflite", ".ckpt", ".nemo")
_OTHER_FOLDERS = ("original", "metal", "onnx", "openvino", "coreml", ".cache", ".git")


@dataclass(frozen=True)
class Entry:
    """One file. Where a hub knows no sha256 of it, the digest that git gives it (a small file)."""

    size: int
    sha256: str
    git_sha1: str = ""


@dataclass(frozen=True)
class Manifest:
    """The files of one revision, by their path in the repository."""

    repository: str
    revision: str
    files: Mapping[str, Entry]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files.values())

    def text(self) -> str:
        """The form of a lock: sorted by path, and `sha256sum --check` reads it, as it skips what begins with `#`."""
        lines = [f"# {self.repository} at {self.revision}"]
        for path, entry in sorted(self.files.items()):
            lines += [f"# {entry.size} bytes", f"{entry.sha256}  {path}"]
        return "\n".join(lines) + "\n"

    @property
    def digest(self) -> str:
        """sha256 of the text, in hex."""
        return hashlib.sha256(self.text().encode()).hexdigest()


def file_name(repository: str, revision: str) -> str:
    """What a lock is called, as the hub's cache calls a repository: `zai-org--GLM-5.1-FP8@f396....sha256`."""
    return f"{repository.replace('/', '--')}@{revision}.sha256"


def parse(text: str, name: str) -> Manifest:
    """The manifest that a lock's text holds; `name` is the file's. Raises WeightsError for the first bad line."""
    lines = text.splitlines()
    head = _HEAD.fullmatch(lines[0]) if lines else None
    if head is None:
        raise _bad(name, 1, lines[0] if lines else "", "# OWNER/NAME at COMMIT")
    files: dict[str, Entry] = {}
    for number in range(1, len(lines), 2):
        size, line = _SIZE.fullmatch(lines[number]), lines[number + 1] if number + 1 < len(lines) else ""
        file = _FILE.fullmatch(line)
        if size is None:
            raise _bad(name, number + 1, lines[number], "# NUMBER bytes")
        if file is None or not is_inside(file["path"]) or file["path"] in files:
            raise _bad(name, number + 2, line, "sha256 in hex, two spaces, a path of the repository, once")
        files[file["path"]] = Entry(int(size["size"]), file["sha256"])
    if not files:
        raise _bad(name, 2, "", "at least one file")
    return Manifest(head["repository"], head["revision"], files)


def is_inside(path: str) -> bool:
    """Whether a path names a file below a folder, and none of the program's own, which begin with a dot."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and not parts[0].startswith(".weights")


def chosen(paths: Iterable[str]) -> list[str]:
    """The files of a repository that the engine reads: weights in one form, and all that is small.

    `consolidated` files hold the same weights again where others are there.
    """
    read = [path for path in paths if PurePosixPath(path).parts[0] not in _OTHER_FOLDERS]
    form = next((suffix for suffix in _WEIGHTS if any(path.endswith(suffix) for path in read)), "")
    dropped = tuple(suffix for suffix in (*_WEIGHTS, *_OTHER_WEIGHTS) if suffix != form)
    kept = [path for path in read if not path.endswith(dropped)]
    twice = [path for path in kept if path.startswith("consolidated") and path.endswith(form)]
    others = [path for path in kept if form and path.endswith(form) and path not in twice]
    return sorted(path for path in kept if not (others and path in twice))


def _bad(name: str, line: int, got: str, allowed: str) -> WeightsError:
    return WeightsError(
        Exit.ORDER,
        f"{name}:{line}: not a line of a lock",
        got=repr(got[:80]),
        allowed=allowed,
        fix="take the file back from version control, or lock the model again",
    )
