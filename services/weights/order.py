"""What the site wants in a model's volume: a JSON file, and next to it the locks that the site has."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from services.weights.failure import Exit, WeightsError
from services.weights.manifest import Manifest, file_name, parse

FILE = "order.json"
# Left out where they are empty, so that an order stays what it was.
_OPTIONAL = frozenset({"ca_from", "region"})
Source = Literal["hub", "mirror", "bucket", "oci", "volume"]


@dataclass(frozen=True)
class Wanted:
    """One revision of a repository."""

    repository: str
    revision: str
    lock: str
    """The lock's text; empty where the site has none."""

    def manifest(self) -> Manifest | None:
        """What the lock lists. Raises WeightsError for a lock of another revision."""
        if not self.lock:
            return None
        name = file_name(self.repository, self.revision)
        manifest = parse(self.lock, name)
        if (manifest.repository, manifest.revision) != (self.repository, self.revision):
            raise WeightsError(
                Exit.ORDER,
                f"{name} is of another revision",
                got=f"{manifest.repository} at {manifest.revision}",
                allowed=f"{self.repository} at {self.revision}",
                fix="lock the model again: sitectl weights lock",
            )
        return manifest


@dataclass(frozen=True)
class WeightsOrder:
    """The volume of one model."""

    model: str
    source: Source
    endpoint: str
    """Address of the hub, mirror, bucket or registry."""
    bytes_per_s: float
    """Most that is downloaded per second."""
    parallel: int
    """Files at once."""
    keep: int
    """Revisions that stay when earlier ones are removed, the wanted ones among them."""
    token_from: str
    """Where the hub's token, the bucket's keys or the registry's login are, for messages; empty where the site names no
    Secret."""
    wanted: tuple[Wanted, ...]
    ca_from: str = ""
    """Where the site's own authorities are, for messages; empty where it names no ConfigMap."""
    region: str = ""
    """Of a bucket."""

    def files(self) -> dict[str, str]:
        """The order as files of one folder."""
        body = {key: value for key, value in vars(self).items() if key != "wanted" and (key not in _OPTIONAL or value)}
        body["wanted"] = [{"repository": entry.repository, "revision": entry.revision} for entry in self.wanted]
        locks = {file_name(entry.repository, entry.revision): entry.lock for entry in self.wanted if entry.lock}
        return {FILE: json.dumps(body, indent=1, sort_keys=True) + "\n", **_keys(locks)}

    @property
    def digest(self) -> str:
        """Changes with the order; 8 hex digits."""
        return hashlib.sha256(json.dumps(self.files(), sort_keys=True).encode()).hexdigest()[:8]


def read(folder: Path) -> WeightsOrder:
    """The order in a folder. Raises WeightsError for one that cannot be read."""
    try:
        body: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
        wanted = tuple(_wanted(folder, entry) for entry in body.pop("wanted"))
        return WeightsOrder(**body, wanted=wanted)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WeightsError(
            Exit.ORDER, f"{folder / FILE} is no order: {error}", fix="pulumi up writes it; it is a ConfigMap"
        ) from None


def _wanted(folder: Path, entry: dict[str, Any]) -> Wanted:
    lock = folder / _key(file_name(entry["repository"], entry["revision"]))
    text = lock.read_text(encoding="utf-8") if lock.exists() else ""
    return Wanted(str(entry["repository"]), str(entry["revision"]), text)


def _keys(locks: dict[str, str]) -> dict[str, str]:
    return {_key(name): text for name, text in locks.items()}


def _key(name: str) -> str:
    """A ConfigMap's key has no `@`."""
    return name.replace("@", ".")
