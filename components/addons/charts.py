"""Where Helm charts come from: each from its publisher, or all from a mirror that the site sets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator

from floor.problems import WrongValueError
from floor.spec import Spec

# No credentials: the address is in the state and in previews.
_HOST = r"[A-Za-z0-9.-]+(:[0-9]{1,5})?"
_PATH = r"(/[A-Za-z0-9._~-]+)*/?"
_REGISTRY = re.compile(rf"oci://{_HOST}{_PATH}")
_REPOSITORY = re.compile(rf"https?://{_HOST}{_PATH}")
# As a host is written, or a host with a path.
_LIKE_A_HOST = re.compile(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(/.*)?")
_FOLDER = re.compile(r"[A-Za-z0-9._~/ -]*[A-Za-z0-9._~/-]")


def checked_mirror(address: str) -> str:
    """The address of a registry, repository or folder as it is. Raises WrongValueError for anything else."""
    form = next((form for form in (_REGISTRY, _REPOSITORY) if form.fullmatch(address)), None)
    if form is None and ("://" in address or not _FOLDER.fullmatch(address) or address.startswith(("-", " ", "~"))):
        raise WrongValueError(
            "this is no registry, repository or folder without credentials",
            allowed="oci://HOST/PATH, https://HOST/PATH, or a folder",
            fix="write it like oci://registry.site.example/charts, or .bundle/charts for a folder",
        )
    if form is None and _LIKE_A_HOST.fullmatch(address):
        raise WrongValueError(
            f"{address} is taken as a folder, and looks like a host",
            fix=f"write oci://{address} for a registry, or ./{address} for a folder",
        )
    return address


class ChartsSpec(Spec):
    """Where Helm charts come from."""

    mirror: Annotated[str, AfterValidator(checked_mirror)] | None = None
    """Every chart is taken from here, not from its publisher: `oci://HOST/PATH`, the https address of a repository, or
    a folder with `NAME-VERSION.tgz`, as `helm pull` and `sitectl bundle --charts` write it, relative to the project. A
    registry with a login needs `helm registry login HOST` on the machine that runs `up`: the logins of
    `cluster.machines.registries` are for the machines alone."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart as Helm takes it, and its exact version."""

    chart: str
    """OCI address, path, or name in the repository."""
    version: str
    repository: str | None = None
    """Address of the repository that has the chart of this name."""


def chart_of(published: str, version: str, mirror: str | None, repository: str | None = None) -> Chart:
    """The chart, out of the mirror where there is one.

    published: its publisher's OCI address, or its name in the publisher's repository.
    """
    if mirror is None:
        return Chart(chart=published, version=version, repository=repository)
    name = published.rpartition("/")[2]
    if _REGISTRY.fullmatch(mirror):
        return Chart(chart=f"{mirror.rstrip('/')}/{name}", version=version)
    if _REPOSITORY.fullmatch(mirror):
        return Chart(chart=name, version=version, repository=mirror)
    packed = PurePosixPath(mirror) / f"{name}-{version}.tgz"
    # Without the dot in front, Helm may take it for a chart of a repository of that name.
    return Chart(chart=str(packed) if packed.is_absolute() else f"./{packed}", version=version)
