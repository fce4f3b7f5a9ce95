"""Locks of models: what a revision consists of, by the hub's own metadata or by a folder that has it."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from huggingface_hub import HfApi
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from bundle.errors import BundleError
from floor.digests import sha256_of
from floor.model_hub import HUB
from services.weights.manifest import REVISION, Entry, Manifest, chosen, is_inside

ADAPTER_CONFIG = "adapter_config.json"
_TOKEN = "hf auth login, or HF_TOKEN with a token that has access"  # noqa: S105 - a sentence


@dataclass(frozen=True, kw_only=True)
class HubMetadata:
    """A hub, a mirror of it, and what they state of a revision."""

    endpoint: str
    note: Callable[[str], None]

    @property
    def _token(self) -> str | bool | None:
        """The token of `hf auth login` is for the hub alone; a mirror gets what HF_TOKEN holds, or none."""
        return None if self.endpoint.rstrip("/") == HUB else os.environ.get("HF_TOKEN") or False

    def manifest(self, repository: str, revision: str) -> Manifest:
        """Each file that an engine reads. Raises BundleError.

        The hub knows the sha256 of what is in its store; the rest is small, and read to know its own.
        """
        if not REVISION.fullmatch(revision):
            raise BundleError(
                f"{revision} is no commit of {repository}: a branch or tag may name other files tomorrow",
                allowed="40 digits of 0-9 and a-f",
                fix=f"take one of {self.endpoint}/{repository}/commits/main",
            )
        api = HfApi(endpoint=self.endpoint, token=self._token)
        called = f"{repository} at {revision}"
        self.note(f"{called}: asking {self.endpoint}")
        try:
            info = api.model_info(repository, revision=revision, files_metadata=True)
            if info.sha != revision:
                raise BundleError(
                    f"{self.endpoint} answers with another revision of {repository}",
                    got=str(info.sha),
                    allowed=revision,
                    fix="name a commit",
                )
            stated = {sibling.rfilename: sibling for sibling in info.siblings or ()}
            files = {}
            with tempfile.TemporaryDirectory() as cache:
                for path in chosen(filter(is_inside, stated)):
                    files[path] = self._entry(api, repository, revision, stated[path], Path(cache))
        except (HfHubHTTPError, LocalEntryNotFoundError, httpx2.HTTPError, OSError) as error:
            raise self._unable(error, called) from None
        return Manifest(repository, revision, files)

    def adapter_config(self, repository: str, revision: str) -> str:
        """Text of an adapter's own configuration. Raises BundleError."""
        api = HfApi(endpoint=self.endpoint, token=self._token)
        try:
            with tempfile.TemporaryDirectory() as cache:
                file = api.hf_hub_download(repository, ADAPTER_CONFIG, revision=revision, cache_dir=cache)
                return Path(file).read_text(encoding="utf-8", errors="replace")
        except EntryNotFoundError:
            raise BundleError(
                f"{repository} at {revision} is no adapter: it has no {ADAPTER_CONFIG}",
                fix="name the repository of an adapter as PEFT writes it",
            ) from None
        except (HfHubHTTPError, LocalEntryNotFoundError, httpx2.HTTPError, OSError) as error:
            raise self._unable(error, f"{repository} at {revision}") from None

    @staticmethod
    def _entry(api: HfApi, repository: str, revision: str, stated: Any, cache: Path) -> Entry:
        if stated.lfs is not None:
            return Entry(int(stated.lfs.size), str(stated.lfs.sha256))
        file = Path(api.hf_hub_download(repository, stated.rfilename, revision=revision, cache_dir=cache))
        data = file.read_bytes()
        if stated.blob_id and stated.blob_id != _git_sha1(data):
            raise BundleError(
                f"{stated.rfilename} of {repository} is not the file of this commit",
                got=f"git's sha1 {_git_sha1(data)}",
                allowed=str(stated.blob_id),
                fix=f"ask the hub itself: HF_ENDPOINT={HUB}",
            )
        return Entry(len(data), hashlib.sha256(data).hexdigest())

    def _unable(self, error: Exception, called: str) -> BundleError:
        if isinstance(error, GatedRepoError):
            return BundleError(f"{called} is gated, and there is no token that opens it", fix=_TOKEN)
        if isinstance(error, RevisionNotFoundError):
            return BundleError(f"{self.endpoint} has no revision {called}", fix="name a commit that it lists")
        if isinstance(error, RepositoryNotFoundError):
            return BundleError(
                f"{self.endpoint} has no {called}, or shows it only to those with a token",
                fix=f"correct the name; for a private one: {_TOKEN}",
            )
        return BundleError(
            f"{self.endpoint} cannot be asked for {called}",
            got=str(error).splitlines()[0] if str(error) else type(error).__name__,
            fix="call this where the hub is reached (HF_ENDPOINT names another), or give --from FOLDER with the files",
        )


def folder_manifest(folder: Path, repository: str, revision: str) -> Manifest:
    """The files of a folder: a clone, a snapshot of the hub's cache, or a copy. Raises BundleError."""
    paths = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    files = {path: Entry((folder / path).stat().st_size, sha256_of(folder / path)) for path in chosen(paths)}
    if not {"config.json", ADAPTER_CONFIG} & files.keys():
        raise BundleError(
            f"{folder} is no model's folder: it has no config.json, and no adapter's: no {ADAPTER_CONFIG}",
            fix="name the folder of one revision, such as .../snapshots/COMMIT",
        )
    return Manifest(repository, revision, files)


def differences(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Each file that is missing, or another one than the lock lists, with what was got and expected."""
    for path, entry in sorted(manifest.files.items()):
        file = folder / path
        if not file.is_file():
            yield f"{path}: missing"
        elif file.stat().st_size != entry.size:
            yield f"{path}: {file.stat().st_size} bytes, expected {entry.size}"
        elif (digest := sha256_of(file)) != entry.sha256:
            yield f"{path}: sha256 {digest}, expected {entry.sha256}"


def _git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
