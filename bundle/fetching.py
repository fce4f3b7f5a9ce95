"""What a site installs of others: taken from publisher or mirror, compared with its pin, and written if it is that."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bundle import pod_network
from bundle.asking import Asking, NoAnswerError
from bundle.definitions import definitions_file
from bundle.errors import BundleError
from bundle.helm import Helm, named
from components.addons.charts import Chart, chart_of
from stacks.facts.versions import CrdSource, Versions
from talos.cni import cilium_values

SUMS = "SHA256SUMS"
DRAFT = ".pulled-"
"""How folders begin whose files are not whole yet; a killed run leaves one."""
_MOVED = (
    "take the pinned release from its publisher; to raise the pin, write the sum that was got into "
    "stacks/facts/versions.yaml, call this again, and read what `pulumi preview` shows"
)


@dataclass(frozen=True)
class PackedChart:
    """A file of a folder with charts: a packed chart, or a file of a release."""

    file: str
    chart: Chart | None
    address: str = ""
    """Of the release's file."""

    @property
    def release(self) -> str:
        """Version of the release whose file it is."""
        return self.file.removesuffix(".yaml").rpartition("-")[2]

    @property
    def published(self) -> str:
        """Its publisher's address, as far as the file has one."""
        return named(self.chart) if self.chart else self.address


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where files come from."""

    versions: Versions
    helm: Helm
    mirror: str | None = None
    """Registry, repository or folder of all charts, as `charts.mirror` of a site; None: each from its publisher."""
    wanted: Sequence[str] = ()
    """Names in versions.yaml of the charts that the site installs."""
    parts: Sequence[str] = ()
    """What the site has that needs definitions of its own."""
    defined: bool = True
    """Whether the program declares the definitions."""
    networked: bool = False
    """Whether the machines bring Cilium."""
    by_bgp: bool = False
    """Whether Cilium announces addresses by BGP."""
    measured: bool = False
    """Whether Cilium serves metrics."""
    asking: Asking = field(default_factory=Asking)
    """Shared by all sites of a run."""

    def definitions(self, file: str) -> str:
        """The content of one file of `versions.crds`. Raises BundleError, also for what is not as pinned."""
        source, release = self.versions.crd_sources[file], self.versions.crd_versions[file]
        origin, text = self._chart_of_definitions(source) if source.chart else self._file(str(source.file), release)
        return _pinned(definitions_file(text, origin), self.versions.crds[file], f"{file} out of {origin}")

    def pod_network(self) -> str:
        """Cilium's manifest. Raises BundleError, also for what is not as pinned."""
        pin = self.versions.cilium
        chart = chart_of(pin.chart, pin.version, self.mirror, pin.repository)
        values = cilium_values(bgp=self.by_bgp, measured=self.measured)
        return _pinned(
            pod_network.manifest(self.rendered(chart, "cilium", values, "kube-system"), chart.version),
            pin.digest(bgp=self.by_bgp, measured=self.measured),
            f"the manifest of Cilium {pin.version}",
        )

    def require_pinned(self) -> None:
        """Raises BundleError where definitions or pod network of the site are not as pinned."""
        for file in self.versions.crds_with(self.parts) if self.defined else ():
            self.definitions(file)
        if self.networked:
            self.pod_network()

    def charts(self) -> Iterator[tuple[str, Chart]]:
        """File name and chart of those that the site lets the program install."""
        for wanted in self.wanted:
            pin = self.versions.charts[wanted]
            name = pin.chart.rpartition("/")[2]
            yield f"{name}-{pin.version}.tgz", chart_of(pin.chart, pin.version, self.mirror, pin.repository)

    def packed(self) -> Iterator[PackedChart]:
        """Every file that a folder must hold to be the mirror of the site's charts, definitions and pod network."""
        yield from (PackedChart(file, chart) for file, chart in self.charts())
        for name in self.versions.crds_with(self.parts) if self.defined else ():
            source, release = self.versions.crd_sources[name], self.versions.crd_versions[name]
            if source.file:
                address = source.file.format(release=release)
                yield PackedChart(f"{_project_of(address)}-{release}.yaml", None, address)
            else:
                chart = self._definitions_chart(source)
                yield PackedChart(f"{source.chart}-{chart.version}.tgz", chart)
        if self.networked:
            pin = self.versions.cilium
            chart = chart_of(pin.chart, pin.version, self.mirror, pin.repository)
            yield PackedChart(f"{pin.chart}-{pin.version}.tgz", chart)

    def bring(self, packed: PackedChart, folder: Path) -> None:
        """Write the file into the folder, whole. Raises BundleError."""
        with tempfile.TemporaryDirectory(dir=folder, prefix=DRAFT) as drafts:
            draft = Path(drafts)
            if packed.chart:
                self.pulled(packed.chart, draft.resolve()).replace(folder / packed.file)
            else:
                _, text = self._file(packed.address, packed.release)
                (draft / packed.file).write_text(text, encoding="utf-8")
                (draft / packed.file).replace(folder / packed.file)

    def _definitions_chart(self, source: CrdSource) -> Chart:
        beside = self.versions.charts[str(source.next_to)]
        registry = beside.chart.rpartition("/")[0]
        return chart_of(f"{registry}/{source.chart}", beside.version, self.mirror)

    def _chart_of_definitions(self, source: CrdSource) -> tuple[str, str]:
        chart = self._definitions_chart(source)
        return f"{source.chart} {chart.version}", self.rendered(chart, "crds", source.values, "default")

    def pulled(self, chart: Chart, folder: Path) -> Path:
        """The packed chart, now in this empty folder. Raises BundleError."""
        packed = self.asking.once(
            ("pull", chart, folder),
            named(chart),
            place_of(chart),
            lambda limit_s: str(self.helm.pull(chart, folder, limit_s=limit_s)),
        )
        return Path(packed)

    def rendered(self, chart: Chart, release: str, values: Mapping[str, Any], namespace: str) -> str:
        """Objects of the chart as YAML. Raises BundleError."""
        kubernetes = self.versions.kubernetes

        def ask(limit_s: float) -> str:
            return self.helm.render(chart, release, values, namespace=namespace, kubernetes=kubernetes, limit_s=limit_s)

        question = ("render", chart, release, json.dumps(values, sort_keys=True), namespace, kubernetes)
        return self.asking.once(question, named(chart), place_of(chart), ask)

    def _file(self, address: str, release: str) -> tuple[str, str]:
        """From its address, or from the mirror's folder under the project's name and release."""
        address = address.format(release=release)
        project = _project_of(address)
        local = self.helm.folder / self.mirror / f"{project}-{release}.yaml" if self.mirror else None
        if local is not None and local.is_file():
            # Bytes that are no text are not as pinned either.
            return local.name, local.read_text(encoding="utf-8", errors="replace")
        missing = f"{project}-{release}.yaml"
        host = httpx.URL(address).host
        return address, self.asking.once(address, address, host, lambda limit_s: self._got(address, missing, limit_s))

    def _got(self, address: str, file: str, limit_s: float) -> str:
        try:
            answer = httpx.get(address, follow_redirects=True, timeout=limit_s)
            answer.raise_for_status()
        except httpx.TimeoutException:
            raise NoAnswerError(address, limit_s) from None
        # A proxy of the environment that httpx cannot use is one of the last three.
        except (httpx.HTTPError, httpx.InvalidURL, ImportError, ValueError) as error:
            fix = f"check the connection, or put the file as {file} into a folder: {self.helm.option} FOLDER"
            raise BundleError(f"{address} cannot be fetched", got=str(error), fix=fix) from None
        return answer.text


def _project_of(address: str) -> str:
    """Of a release's file on GitHub."""
    return address.split("/releases/")[0].rpartition("/")[2]


def place_of(chart: Chart) -> str:
    """Who has the chart: a repository's address, a registry's host, or a folder."""
    registry, separator, path = (chart.repository or chart.chart).partition("://")
    return f"{registry}://{path.partition('/')[0]}" if separator else str(Path(registry).parent)


def _pinned(content: str, digest: str, what: str) -> str:
    got = hashlib.sha256(content.encode()).hexdigest()
    if got != digest:
        raise BundleError(f"{what} is not the pinned one", got=f"sha256 {got}", allowed=f"sha256 {digest}", fix=_MOVED)
    return content


def is_pinned(file: Path, digest: str) -> bool:
    return file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == digest


def write_crds(sources: Sources, folder: Path, note: Callable[[str], None]) -> list[Path]:
    """Bring the folder to the pins; the files that were missing or others. Nothing is written unless all are right."""
    pins = sources.versions.crds_with(sources.parts)
    wrong = [file for file, digest in sorted(pins.items()) if not is_pinned(folder / file, digest)]
    contents = {}
    for file in wrong:
        note(f"{folder / file}: definitions of {sources.versions.crd_versions[file]}")
        contents[file] = sources.definitions(file)
    sums = "".join(f"{digest}  {file}\n" for file, digest in sorted(pins.items()))
    _write(folder, {**contents, SUMS: sums} if contents else {})
    return [folder / file for file in contents]


def write_pod_network(sources: Sources, file: Path, note: Callable[[str], None]) -> list[Path]:
    """Bring Cilium's manifest to its pin; the file, if it was missing or another."""
    pin = sources.versions.cilium
    if is_pinned(file, pin.digest(bgp=sources.by_bgp, measured=sources.measured)):
        return []
    note(f"{file}: Cilium {pin.version}")
    _write(file.parent, {file.name: sources.pod_network()})
    return [file]


def _write(folder: Path, contents: Mapping[str, str]) -> None:
    """All or, where the disk is full, none; each by a rename, so that a reader finds the old file or the new one."""
    drafts = {folder / f".{file}.{os.getpid()}": folder / file for file in contents}
    place = folder
    try:
        if contents:
            folder.mkdir(parents=True, exist_ok=True)
        for draft, place in drafts.items():
            draft.write_text(contents[place.name], encoding="utf-8")
        for draft, place in drafts.items():
            draft.replace(place)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(place)) from None
    finally:
        for draft in drafts:
            with suppress(OSError):
                draft.unlink()
