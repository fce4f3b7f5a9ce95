"""A model's repository as it lies on a disk: a clone, a snapshot of the hub's cache, or a config.json alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from floor.reading.files import UnreadableError, text_of
from stacks.facts.catalogue import CatalogueModel
from stacks.importing.config import read_json
from stacks.importing.geometry import NotUnderstoodError
from stacks.proof.weights import weight_bytes

# Files and geometry may differ by norms, biases, positions and the headers of the files; by more, a part is misread.
_SIZE_BAND = 0.03
_COMMIT = re.compile(r"[0-9a-f]{40}")
_CACHED = re.compile(r"models--(?P<owner>[^/]+?)--(?P<name>[^/]+)")
_REMOTE = re.compile(r"url\s*=\s*\S*huggingface\.co[/:](?P<repository>[^/\s]+/[^/\s]+?)(\.git)?/?\s*$", re.MULTILINE)
# How the hub spells licences that have an SPDX name, where it is not just in lower case.
_SPDX = {"apache-2.0": "Apache-2.0", "mit": "MIT", "cc-by-4.0": "CC-BY-4.0", "cc-by-nc-4.0": "CC-BY-NC-4.0"}


@dataclass(frozen=True, kw_only=True)
class Repository:
    """What the files of a repository hold; empty or None where they hold nothing of it."""

    config: Mapping[str, Any]
    """config.json."""
    nvidia: Mapping[str, Any] | None
    """hf_quant_config.json."""
    name: str
    """`owner/model`."""
    revision: str
    """The commit that lies there."""
    revision_source: str
    licence: str
    licence_source: str
    size: int | None
    """Bytes of the weights, from the index of the safetensors."""
    code: tuple[str, ...]
    """Python files that an auto_map names."""
    answer_tokens: int | None
    """max_new_tokens of generation_config.json, which vLLM takes as its default."""


def read_repository(path: Path) -> Repository:
    """The repository in a folder, or next to nothing for a config.json. Raises NotUnderstoodError."""
    if not path.is_dir():
        return Repository(
            config=read_json(path),
            nvidia=None,
            name="",
            revision="",
            revision_source="",
            licence="",
            licence_source="",
            size=None,
            code=tuple(_code([_read(path)])),
            answer_tokens=None,
        )
    config = read_json(path / "config.json")
    name, revision, revision_source = _identity(path)
    licence, licence_source = _licence(path)
    described = [_read(path / file) for file in ("config.json", "tokenizer_config.json", "preprocessor_config.json")]
    answer = (_read(path / "generation_config.json")).get("max_new_tokens")
    return Repository(
        config=config,
        nvidia=_read(path / "hf_quant_config.json") or None,
        name=name,
        revision=revision,
        revision_source=revision_source,
        licence=licence,
        licence_source=licence_source,
        size=_size(path),
        code=tuple(_code(described)),
        answer_tokens=answer if isinstance(answer, int) and not isinstance(answer, bool) else None,
    )


def check_size(repository: Repository, model: CatalogueModel) -> None:
    """Raise NotUnderstoodError where the weights' files are not of the size that geometry and quantisation give."""
    derived = weight_bytes(model).files
    if repository.size is not None and abs(derived / repository.size - 1) > _SIZE_BAND:
        raise NotUnderstoodError(
            f"model.safetensors.index.json: got {repository.size / 1e9:.1f} GB of weights, but geometry and "
            f"quantisation give {derived / 1e9:.1f}, more than {_SIZE_BAND:.0%} apart; fix: correct the family in "
            "stacks/importing/geometry.py, or what is quantised in stacks/importing/quantising.py"
        )


def _read(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _text(path: Path) -> str:
    """A file's text, or nothing where it cannot be read as text."""
    try:
        return text_of(path)
    except (OSError, UnreadableError):
        return ""


def _identity(folder: Path) -> tuple[str, str, str]:
    """Name, commit, and where the commit was read: the path of a hub's cache, or the clone's own files."""
    resolved = folder.resolve()
    cached = _CACHED.fullmatch(resolved.parent.parent.name)
    if cached and resolved.parent.name == "snapshots" and _COMMIT.fullmatch(resolved.name):
        source = f"{'/'.join(resolved.parts[-3:-1])}/ of the hub's cache from which it was added"
        return f"{cached['owner']}/{cached['name']}", resolved.name, source
    # A clone of another forge has commits of its own.
    remote = _REMOTE.search(_text(folder / ".git" / "config"))
    if remote is None:
        return "", "", ""
    return remote["repository"], _head(folder / ".git"), ".git/HEAD of the clone from which it was added"


def _head(git: Path) -> str:
    """The commit that is checked out; empty where it is unknown."""
    head = _text(git / "HEAD").strip()
    reference = head.removeprefix("ref: ")
    if reference != head and ".." not in reference:
        packed = re.search(rf"^({_COMMIT.pattern}) {re.escape(reference)}$", _text(git / "packed-refs"), re.MULTILINE)
        head = _text(git / reference).strip() or (packed[1] if packed else "")
    return head if _COMMIT.fullmatch(head) else ""


def _licence(folder: Path) -> tuple[str, str]:
    """The licence by the front matter of the model card: its SPDX name, or the name that its maker gives it."""
    card = _text(folder / "README.md")
    _, opened, rest = card.partition("---\n")
    front, closed, _ = rest.partition("\n---")
    try:
        matter = yaml.safe_load(front) if opened and closed and not card.partition("---\n")[0].strip() else None
    except yaml.YAMLError:
        matter = None
    named = matter if isinstance(matter, dict) else {}
    spelled = named.get("license")
    if spelled == "other":
        spelled = named.get("license_name")
        return (f"LicenseRef-{spelled}", "license_name of the model card's front matter") if spelled else ("", "")
    if not isinstance(spelled, str) or not spelled:
        return _licence_of_file(folder)
    return _SPDX.get(spelled.lower(), f"LicenseRef-{spelled}"), "license of the model card's front matter"


def _licence_of_file(folder: Path) -> tuple[str, str]:
    beginning = " ".join(_text(folder / "LICENSE").split()[:6]).lower()
    for words, name in (("mit license", "MIT"), ("apache license version 2.0", "Apache-2.0")):
        if beginning.startswith(words):
            return name, "the repository's LICENSE"
    return "", ""


def _size(folder: Path) -> int | None:
    metadata = _read(folder / "model.safetensors.index.json").get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(size, float) and size.is_integer():
        size = int(size)
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    files = [*folder.glob("*.safetensors")]
    return sum(file.stat().st_size for file in files) if files and metadata is None else None


def _code(files: list[dict[str, Any]]) -> Iterator[str]:
    """Files of the classes that auto_map names, `module.Class`; of another repository, `owner/name--module.Class`."""
    named: dict[str, None] = {}
    for content in files:
        mapped = content.get("auto_map")
        for value in mapped.values() if isinstance(mapped, dict) else ():
            for reference in value if isinstance(value, list) else [value]:
                if isinstance(reference, str) and "." in reference:
                    named[f"{reference.rpartition('.')[0]}.py"] = None
    yield from named
