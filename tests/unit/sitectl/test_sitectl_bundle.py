"""`bundle`: what each site needs, from where it says, into the folder where its program and `doctor` look."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from bundle.definitions import definitions_file
from bundle.pod_network import manifest
from sitectl.commands.doctor import Check, OwnMachine, checks
from sitectl.shell.errors import Exit
from stacks.facts import versions
from stacks.facts.versions import CrdSource
from stacks.plan.charts import installed_charts
from stacks.plan.site_plan import plan_file
from tests import documented
from tests.unit.bundle.stand_in_helm import StandInHelm, packed
from tests.unit.bundle.test_bundle_definitions import FIRST
from tests.unit.bundle.test_bundle_pod_network import RENDERED
from tests.unit.sitectl.sites_to_work_on import ROOT, edit, make_checkout, really_declare, run

pytestmark = pytest.mark.row("C.05")

# Definitions and workloads at once: each reader takes its own.
EVERYTHING = f"{RENDERED}{FIRST}"


@pytest.fixture
def helm(tmp_path: Path) -> StandInHelm:
    return StandInHelm.in_folder(tmp_path)


@pytest.fixture
def own(helm: StandInHelm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of sites whose pins are what the stand-in renders."""
    helm.renders(EVERYTHING)
    pins = versions.load()
    sources = {file: source for file, source in pins.crd_sources.items() if source.chart}
    definitions = hashlib.sha256(definitions_file(EVERYTHING, "").encode()).hexdigest()
    text = manifest(EVERYTHING, pins.cilium.version)
    cilium = pins.cilium.model_copy(update={"manifest": hashlib.sha256(text.encode()).hexdigest()})
    crds = dict.fromkeys(sources, definitions)
    changed = pins.model_copy(update={"crds": crds, "crd_sources": sources, "cilium": cilium})
    monkeypatch.setattr("sitectl.commands.bundle.fetch.versions.load", lambda: changed)
    return make_checkout(tmp_path / "own")


def test_each_site_gets_what_it_needs_where_it_looks(own: Path, helm: StandInHelm) -> None:
    program, option, package, *words = documented.argv("python -m sitectl bundle")
    assert (program, option, package) == ("python", "-m", "sitectl")
    reported = run(own, *words, "--helm", str(helm.program))
    assert reported.status == Exit.OK, reported.out
    files = sorted(
        path.relative_to(own).as_posix() for path in own.rglob("*.bundle/**/*.*") if path.name != "SHA256SUMS"
    )
    assert files == [
        ".bundle/cilium/cilium.yaml",
        *(f".bundle/crds/{name}.json" for name in ("ai-gateway", "cert-manager", "envoy-gateway", "gateway-api")),
    ]
    # The lab's site has another folder, no pod network of ours, and a folder for a mirror.
    assert (own / ".lab" / "bundle" / "crds" / "gateway-api.json").is_file()
    assert not (own / ".lab" / "bundle" / "cilium").exists()
    charts = {call[2] for call in helm.asked()}
    assert "oci://registry.site.example/charts/gateway-crds-helm" in charts
    assert f"./.lab/bundle/charts/gateway-crds-helm-{versions.load().charts['envoy_gateway'].version}.tgz" in charts
    again = run(own, "bundle", "--helm", "/no/such/helm")
    assert (again.status, again.out.splitlines()[0]) == (Exit.OK, "all as pinned; nothing to fetch")


def test_one_site_with_a_mirror_of_the_command_line(own: Path, helm: StandInHelm) -> None:
    assert run(own, "init", "berlin").status == Exit.OK
    _, _, _, *words = documented.argv("python -m sitectl bundle berlin")
    reported = run(own, *words, "--helm", str(helm.program), "--from", "https://hub.example/charts", "--json")
    assert (reported.status, len(reported.data["written"])) == (Exit.OK, 3)
    assert all("https://hub.example/charts" in call for call in helm.asked())
    assert not (own / ".lab").exists()


def test_charts_are_pulled_for_a_site_without_a_registry(own: Path, helm: StandInHelm) -> None:
    pins = [versions.load().charts[name] for name in installed_charts(plan_file(own / "Pulumi.prod.yaml").site)]
    names = [f"{pin.chart.rpartition('/')[2]}-{pin.version}.tgz" for pin in pins]
    assert len(names) < len(list(versions.load().charts)), "no chart that no site installs"
    helm.has_charts(*names)
    reported = run(own, "bundle", "prod", "--charts", "--helm", str(helm.program))
    assert reported.status == Exit.OK
    assert sorted(path.name for path in (own / ".bundle" / "charts").iterdir()) == sorted(names)


def test_a_folder_without_sites_gets_the_definitions(own: Path, helm: StandInHelm) -> None:
    for file in own.glob("Pulumi.*.yaml"):
        file.unlink()
    assert run(own, "bundle", "--helm", str(helm.program)).status == Exit.OK
    assert (own / ".bundle" / "crds" / "gateway-api.json").is_file()


def test_what_cannot_be_fetched_is_one_error_with_the_way_out(own: Path, helm: StandInHelm) -> None:
    reported = run(own, "bundle", "prod", "--helm", "/no/such/helm")
    assert reported.status == Exit.UNABLE
    assert "error: there is no /no/such/helm\n  fix: install helm 3.8 or later" in reported.err
    helm.program.with_name("helm.rendered").write_text("kind: List")
    reported = run(own, "bundle", "prod", "--helm", str(helm.program))
    assert "error: ai-gateway-crds-helm v1.0.0 holds no CustomResourceDefinition" in reported.err
    assert not (own / ".bundle").exists()


@pytest.mark.parametrize(
    ("address", "what", "fix"),
    [
        ("oci://user:hunter2@hub.example/charts", "without credentials", "oci://"),
        ("https://user:hunter2@hub.example/charts", "without credentials", "oci://"),
        ("", "without credentials", "oci://"),
        ("hub.example/charts", "looks like a host", "write oci://hub.example/charts"),
        ("nowhere", "nowhere is no folder here", "name a folder"),
        ("Pulumi.prod.yaml", "is a file, not a folder", "name a folder"),
    ],
)
def test_an_address_that_is_none_is_refused_before_anything_is_asked(
    own: Path, helm: StandInHelm, monkeypatch: pytest.MonkeyPatch, address: str, what: str, fix: str
) -> None:
    monkeypatch.chdir(own)
    asked = len(helm.asked())
    reported = run(own, "bundle", "prod", "--helm", str(helm.program), f"--from={address}", "--json")
    assert reported.status == Exit.USAGE
    assert what in reported.data["error"]["what"]
    assert fix in reported.data["error"]["fix"]
    assert "hunter2" not in reported.out + reported.err
    assert len(helm.asked()) == asked


def test_paths_of_the_command_line_count_from_where_the_user_is(
    own: Path, helm: StandInHelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own / "below" / "mirrored").mkdir(parents=True)
    monkeypatch.chdir(own / "below")
    reported = run(own, "bundle", "prod", "--helm", "../../helm", "--from", "mirrored")
    assert reported.status == Exit.OK, reported.err
    assert helm.asked()[0][2].startswith(f"{own}/below/mirrored/ai-gateway-crds-helm-v")


def test_a_folder_outside_of_the_project_is_named_whole(own: Path, helm: StandInHelm, tmp_path: Path) -> None:
    edit(own, "prod", crds={"folder": str(tmp_path / "shared")})
    reported = run(own, "bundle", "prod", "--helm", str(helm.program), "--json")
    assert reported.status == Exit.OK, reported.err
    assert f"{tmp_path}/shared/gateway-api.json" in reported.data["written"]


def test_the_folder_that_it_fills_is_no_source_of_definitions(own: Path, helm: StandInHelm) -> None:
    """A site that installs the charts out of it needs definitions before there are any."""
    edit(own, "prod", charts={"mirror": "./.bundle/charts/"})
    helm.has_charts(*(f"{pin.chart.rpartition('/')[2]}-{pin.version}.tgz" for pin in versions.load().charts.values()))
    reported = run(own, "bundle", "prod", "--charts", "--helm", str(helm.program))
    assert reported.status == Exit.OK, reported.err
    assert helm.asked()[0][2] == "oci://docker.io/envoyproxy/ai-gateway-crds-helm"


def test_a_site_that_fails_leaves_the_others_theirs(own: Path, helm: StandInHelm) -> None:
    """A job of CI goes on to the previews, where each such site has its own error."""
    edit(own, "lab", replicas="many")
    reported = run(own, "bundle", "--helm", str(helm.program))
    assert reported.status == Exit.REFUSED
    assert "Pulumi.lab.yaml: 1 error in the site" in reported.err
    assert (own / ".bundle" / "crds" / "gateway-api.json").is_file()
    shutil.rmtree(own / ".bundle")
    helm.program.with_name("helm.rendered").unlink()
    reported = run(own, "bundle", "--helm", str(helm.program))
    assert reported.err.count("error: ") == 1
    assert reported.err.splitlines()[-1] == "also failed: prod"
    shutil.copy(ROOT / "Pulumi.lab.yaml", own)
    reported = run(own, "bundle", "--helm", str(helm.program), "--json")
    assert reported.status == Exit.UNABLE
    assert reported.data["error"]["what"].startswith("lab: helm cannot take ./.lab/bundle/charts/")
    assert reported.data["error"]["what"].endswith("; also failed: prod")


def test_doctor_looks_for_definitions_where_the_sites_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or its note stays, whatever `bundle` fetches."""
    own = make_checkout(tmp_path / "own", sites=["lab"])
    tables = {
        "crds": {"a.json": hashlib.sha256(b"a").hexdigest()},
        "crd_versions": {"a.json": "v1.0.0"},
        "crd_sources": {"a.json": CrdSource(file="https://a.example")},
    }
    pins = versions.load().model_copy(update=tables)
    monkeypatch.setattr("sitectl.commands.doctor.versions.load", lambda: pins)
    bare = OwnMachine(environment={}, which=lambda _: None, say=lambda _: "")

    def bundle() -> Check:
        return next(check for check in checks(own, bare) if check.name == "CRD bundle")

    assert bundle().result == "1 file of .lab/bundle/crds missing or not as pinned; `plan` needs them"
    (own / ".lab" / "bundle" / "crds").mkdir(parents=True)
    (own / ".lab" / "bundle" / "crds" / "a.json").write_text("a")
    assert bundle().state == "ok"
    edit(own, "lab", crds={"owner": "external"})
    assert bundle().state == "ok"
    (own / "Pulumi.lab.yaml").unlink()
    assert bundle().result.startswith("1 file of .bundle/crds missing")


@pytest.mark.processes
def test_a_chart_that_was_packed_again_is_refused_by_command_and_program(
    own: Path, helm: StandInHelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each run of the program looks at the files that are there now.
    monkeypatch.setattr("sitectl.offline.checkout.declare", really_declare)
    edit(own, "prod", charts={"mirror": ".bundle/charts"})
    names = [f"{pin.chart.rpartition('/')[2]}-{pin.version}.tgz" for pin in versions.load().charts.values()]
    helm.has_charts(*names)
    words = ["bundle", "prod", "--charts", "--helm", str(helm.program)]
    assert run(own, *words, "--json").data["written"][-1] == "charts.sha256"
    packed_again = own / ".bundle" / "charts" / names[0]
    packed_again.write_bytes(b"of the same version")
    refused = run(own, "rules", "prod")
    assert refused.status == Exit.REFUSED
    assert f".bundle/charts/{names[0]} is not the locked chart; got sha256:" in refused.out
    assert "fix: python -m sitectl bundle prod --charts" in refused.out
    assert run(own, *words).status == Exit.OK
    assert run(own, "rules", "prod").status == Exit.OK
    shutil.rmtree(own / ".bundle" / "store")
    packed_again.unlink()
    helm.program.with_name(f"helm.{names[0]}").write_bytes(packed("of the same version"))
    reported = run(own, *words, "--json")
    assert reported.status == Exit.UNABLE
    assert set(reported.data["error"]) == {"what", "got", "allowed", "fix"}


def test_sites_wait_for_a_silent_registry_once(own: Path, helm: StandInHelm) -> None:
    assert run(own, "init", "berlin").status == Exit.OK
    edit(own, "prod", charts={"mirror": "oci://docker.io/envoyproxy"})
    helm.program.write_text('#!/bin/sh\necho "$2" >>"$0.calls"\nexec sleep 600\n')
    reported = run(own, "bundle", "berlin", "prod", "--helm", str(helm.program), "--timeout", "2")
    assert reported.status == Exit.UNABLE
    assert "gave no answer within" in reported.err
    assert "also failed: prod" in reported.err
    assert helm.program.with_name("helm.calls").read_text().count("\n") == 1
    wrong = run(own, "bundle", "--timeout", "0")
    assert (wrong.status, "--timeout" in wrong.err) == (Exit.USAGE, True)
