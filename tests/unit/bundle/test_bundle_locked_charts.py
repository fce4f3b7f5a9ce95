"""Charts are what the project locked when it first fetched them, from wherever they come, and are kept by content."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from bundle.errors import BundleError
from bundle.fetching import Sources
from bundle.locked_charts import ChartFolder
from bundle.store import ContentStore
from components.addons.chart_lock import FILE, check_lock, read_lock
from components.addons.charts import chart_of
from floor.problems import SiteError
from stacks.facts import versions
from tests.unit.bundle.stand_in_helm import StandInHelm, packed

pytestmark = pytest.mark.row("C.05")

PINS = versions.load()
# Those that a site installs whose cluster has all else.
WANTED = {name: PINS.charts[name] for name in ("envoy_gateway", "ai_gateway")}
NAMES = [f"{pin.chart.rpartition('/')[2]}-{pin.version}.tgz" for pin in WANTED.values()]


@pytest.fixture
def helm(tmp_path: Path) -> StandInHelm:
    return StandInHelm.in_folder(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> ChartFolder:
    return ChartFolder(project=tmp_path, folder=tmp_path / "charts", store=ContentStore(tmp_path / "store"))


def fetched(folder: ChartFolder, helm: StandInHelm, mirror: str | None = None) -> list[str]:
    """The names of the files that are written."""
    sources = Sources(versions=PINS, helm=helm.helm(), mirror=mirror, wanted=tuple(WANTED))
    return [path.name for path in folder.write(sources, lambda _: None)]


def test_charts_are_pulled_and_locked_once(helm: StandInHelm, folder: ChartFolder) -> None:
    helm.has_charts(*NAMES)
    assert fetched(folder, helm) == [*NAMES, FILE]
    assert sorted(path.name for path in folder.folder.iterdir()) == sorted(NAMES)
    pin = PINS.charts["envoy_gateway"]
    assert helm.asked()[0][:4] == ["pull", pin.chart, "--version", pin.version]
    calls = len(helm.asked())
    assert fetched(folder, helm) == []
    assert len(helm.asked()) == calls


def test_a_chart_of_a_repository_is_asked_for_there(helm: StandInHelm, folder: ChartFolder) -> None:
    pin = PINS.charts["gpu_operator"]
    file = f"{pin.chart}-{pin.version}.tgz"
    helm.has_charts(file)
    sources = Sources(versions=PINS, helm=helm.helm(), wanted=("gpu_operator",))
    assert [path.name for path in folder.write(sources, lambda _: None)] == [file, FILE]
    asked = ["pull", pin.chart, "--version", pin.version, "--repo", pin.repository]
    assert helm.asked()[0][: len(asked)] == asked


def test_the_lock_is_what_sha256sum_reads(helm: StandInHelm, folder: ChartFolder) -> None:
    helm.has_charts(*NAMES)
    fetched(folder, helm)
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", FILE], cwd=folder.project, check=True)
    assert read_lock(folder.project) == {f"charts/{name}": hashlib.sha256(packed(name)).hexdigest() for name in NAMES}


def test_another_chart_of_the_same_version_is_refused_and_not_written(helm: StandInHelm, folder: ChartFolder) -> None:
    """As where a publisher, or the owner of its registry, packs a version again."""
    helm.has_charts(*NAMES)
    fetched(folder, helm)
    lock = (folder.project / FILE).read_text()
    (folder.folder / NAMES[0]).unlink()
    (folder.store.folder / hashlib.sha256(packed(NAMES[0])).hexdigest()).unlink()
    helm.program.with_name(f"helm.{NAMES[0]}").write_bytes(packed("another"))
    with pytest.raises(BundleError, match=r"gateway-helm v\S+ is not the chart that charts\.sha256 locks") as error:
        fetched(folder, helm)
    assert error.value.problem.got == f"sha256 {hashlib.sha256(packed('another')).hexdigest()}"
    assert error.value.problem.allowed == f"sha256 {hashlib.sha256(packed(NAMES[0])).hexdigest()}"
    assert "remove its line from charts.sha256" in error.value.problem.fix
    assert not (folder.folder / NAMES[0]).exists()
    assert (folder.project / FILE).read_text() == lock
    # The fix: the line is removed, and the chart that is fetched next is locked.
    (folder.project / FILE).write_text("".join(line for line in lock.splitlines(True) if NAMES[0] not in line))
    assert fetched(folder, helm) == [NAMES[0], FILE]
    assert read_lock(folder.project)[f"charts/{NAMES[0]}"] == hashlib.sha256(packed("another")).hexdigest()


def test_a_chart_that_was_fetched_before_comes_from_the_store(helm: StandInHelm, folder: ChartFolder) -> None:
    helm.has_charts(*NAMES)
    fetched(folder, helm)
    calls = len(helm.asked())
    (folder.folder / NAMES[0]).unlink()
    (folder.folder / NAMES[1]).write_bytes(packed("edited by hand"))
    assert fetched(folder, helm) == NAMES
    assert (folder.folder / NAMES[1]).read_bytes() == packed(NAMES[1])
    assert len(helm.asked()) == calls


def test_a_spoiled_file_of_the_store_is_not_taken(helm: StandInHelm, folder: ChartFolder) -> None:
    helm.has_charts(*NAMES)
    fetched(folder, helm)
    (folder.store.folder / hashlib.sha256(packed(NAMES[0])).hexdigest()).write_bytes(packed("spoiled"))
    (folder.folder / NAMES[0]).unlink()
    assert fetched(folder, helm) == [NAMES[0]]
    assert (folder.folder / NAMES[0]).read_bytes() == packed(NAMES[0])


def test_a_folder_from_before_the_lock_is_locked_as_it_is(helm: StandInHelm, folder: ChartFolder) -> None:
    folder.folder.mkdir()
    for name in NAMES:
        (folder.folder / name).write_bytes(packed(name))
    assert fetched(folder, helm) == [FILE]
    assert helm.asked() == []


def test_what_was_fetched_before_a_failure_is_locked(helm: StandInHelm, folder: ChartFolder) -> None:
    helm.has_charts(NAMES[0])
    with pytest.raises(BundleError, match="pulled no"):
        fetched(folder, helm)
    assert list(read_lock(folder.project)) == [f"charts/{NAMES[0]}"]


def test_charts_of_a_folder_are_copied_if_they_are_whole(helm: StandInHelm, folder: ChartFolder) -> None:
    mirror = folder.project / "mirrored"
    mirror.mkdir()
    with pytest.raises(BundleError, match=r"helm cannot take \./mirrored/gateway-helm-v.*\.tgz") as error:
        fetched(folder, helm, "mirrored")
    assert error.value.problem.fix.startswith("put the chart there")
    for name in NAMES:
        (mirror / name).write_bytes(packed(name))
    assert fetched(folder, helm, "mirrored") == [*NAMES, FILE]
    assert [(folder.folder / name).read_bytes() for name in NAMES] == [packed(name) for name in NAMES]


def test_a_chart_that_is_cut_short_is_never_locked(helm: StandInHelm, folder: ChartFolder) -> None:
    helm.has_charts(*NAMES)
    cut = helm.program.with_name(f"helm.{NAMES[0]}")
    cut.write_bytes(packed(NAMES[0])[:30])
    with pytest.raises(BundleError, match=r"gateway-helm v.* is cut short"):
        fetched(folder, helm)
    assert not (folder.project / FILE).exists()
    cut.write_bytes(packed(NAMES[0]))
    fetched(folder, helm)
    (folder.folder / NAMES[0]).write_bytes(packed(NAMES[0])[:30])
    assert fetched(folder, helm) == [NAMES[0]]
    assert (folder.folder / NAMES[0]).read_bytes() == packed(NAMES[0])


def test_a_line_that_is_no_digest_is_named_with_its_line(helm: StandInHelm, folder: ChartFolder) -> None:
    (folder.project / FILE).write_text(f"{'0' * 64}  charts/a.tgz\ndeadbeef  charts/b.tgz\n")
    with pytest.raises(SiteError, match=r"charts\.sha256:2: not a locked chart; got 'deadbeef  charts/b\.tgz'"):
        fetched(folder, helm)
    assert helm.asked() == []


def test_the_program_refuses_a_packed_chart_that_is_not_the_locked_one(helm: StandInHelm, folder: ChartFolder) -> None:
    helm.has_charts(*NAMES)
    fetched(folder, helm)
    charts = [chart_of(pin.chart, pin.version, "./charts/").chart for pin in WANTED.values()]
    fix = "python -m sitectl bundle berlin --charts"
    check_lock(charts, folder.project, fix)
    (folder.folder / NAMES[1]).write_bytes(packed("another"))
    with pytest.raises(SiteError, match=rf"charts/{NAMES[1]} is not the locked chart; got sha256:") as error:
        check_lock(charts, folder.project, fix)
    assert [problem.fix for problem in error.value.problems] == [fix]
    # One that is missing is for Helm to report, and one of a registry has no file.
    (folder.folder / NAMES[1]).unlink()
    check_lock(charts, folder.project, fix)
    check_lock([pin.chart for pin in WANTED.values()], folder.project, fix)
