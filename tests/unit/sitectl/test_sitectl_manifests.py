"""Rendered manifests: the real program without engine, the same bytes each time, no secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from components.rules.listing import RULES
from components.rules.model import HIDDEN, Resource, SiteFacts, violations
from sitectl import checkout
from sitectl.errors import SitectlError
from sitectl.manifests_folder import contents, file_name, read, redacted, write
from tests.unit.sitectl.sites_to_work_on import really_declare, remembering, run

pytestmark = pytest.mark.row("C.05", "C.06")


@pytest.fixture(scope="module")
def declared(checkout_folder: Path) -> dict[str, checkout.Declared]:
    return remembering(checkout_folder, checkout.site_files(checkout_folder))


def secret(values: Any) -> Resource:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "n"}, "stringData": values}
    return Resource(type="kubernetes:core/v1:Secret", name="a", body=body)


def test_the_same_site_gives_the_same_bytes(
    declared: dict[str, checkout.Declared], checkout_folder: Path, tmp_path: Path
) -> None:
    """A diff of renders shows the change and nothing else. The second one runs in a process of its own."""
    again = really_declare(checkout_folder, checkout.site_files(checkout_folder))
    for site, one in declared.items():
        write(tmp_path / site, contents(again[site].resources))
        files = {
            str(path.relative_to(tmp_path / site)): path.read_bytes() for path in (tmp_path / site).rglob("*.yaml")
        }
        assert files == {name: text.encode() for name, text in contents(one.resources).items()}


def test_render_writes_a_folder_a_site(checkout_folder: Path, tmp_path: Path) -> None:
    said = run(checkout_folder, "render", "prod", "--out", str(tmp_path))
    assert said.status == 0
    assert [path.name for path in tmp_path.iterdir()] == ["prod"]
    assert f"prod: {len(list(tmp_path.rglob('*.yaml')))} files in" in said.out


def test_one_file_an_object_with_the_object_in_its_name(declared: dict[str, checkout.Declared]) -> None:
    files = contents(declared["lab"].resources)
    assert len(files) == len(declared["lab"].resources) > 30
    assert {
        "inference-models/deployment.apps_glm-5-1.yaml",
        "inference-gateway/gateway.gateway.networking.k8s.io_inference.yaml",
        "cluster/namespace_inference-models.yaml",
        "program/command-local-Command.access-acme-laptop.yaml",
    } <= set(files)
    found = yaml.safe_load(files["inference-models/deployment.apps_glm-5-1.yaml"])
    assert (found["kind"], found["spec"]["replicas"]) == ("Deployment", 2)
    assert list(found) == ["apiVersion", "kind", "metadata", "spec"]


def test_secrets_are_words_and_what_only_up_knows_too(declared: dict[str, checkout.Declared]) -> None:
    files = contents(declared["lab"].resources)
    found = yaml.safe_load(files["inference-gateway/secret_keys-acme.yaml"])
    assert found["stringData"] == HIDDEN
    assert "sk-" not in "".join(text for name, text in files.items() if not name.startswith("program/command"))


@pytest.mark.parametrize("values", [{"key": "sk-plain"}, HIDDEN, {"key": HIDDEN}])
def test_a_secret_that_the_program_forgot_to_mark_is_hidden_all_the_same(values: Any) -> None:
    shown = redacted(secret(values))["stringData"]
    assert shown in (HIDDEN, {"key": HIDDEN})
    assert "sk-plain" not in "".join(contents([secret(values)]).values())


def test_committed_sites_keep_the_rules(declared: dict[str, checkout.Declared]) -> None:
    """The rules as a test over what is declared."""
    for site, one in declared.items():
        assert one.resources
        errors = [found for found in violations(one.resources, SiteFacts(name=site), RULES) if found.level == "error"]
        assert errors == []


def test_a_folder_reads_back_as_it_was_written(declared: dict[str, checkout.Declared], tmp_path: Path) -> None:
    files = contents(declared["prod"].resources)
    write(tmp_path / "prod", files)
    assert contents(read(tmp_path / "prod")) == files


def test_an_object_that_is_gone_leaves_no_file(tmp_path: Path) -> None:
    write(tmp_path / "a", {"n/one.yaml": "a: 1\n", "n/two.yaml": "a: 2\n"})
    write(tmp_path / "a", {"n/one.yaml": "a: 3\n"})
    assert [path.name for path in (tmp_path / "a").rglob("*.yaml")] == ["one.yaml"]


def test_files_of_others_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "notes.yaml").write_text("mine")
    with pytest.raises(SitectlError, match="files that were not rendered"):
        write(tmp_path, {})
    assert (tmp_path / "notes.yaml").read_text() == "mine"


def test_two_resources_for_one_object_are_refused() -> None:
    with pytest.raises(SitectlError, match="two resources are the same object: Secret n/a"):
        contents([secret({}), secret({})])


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "a\\b c", ".."])
def test_no_name_leads_out_of_the_folder(name: str, tmp_path: Path) -> None:
    """A site's file comes from a pull request."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": name}}
    one = Resource(type="kubernetes:core/v1:ConfigMap", name=name, body=body)
    assert (tmp_path / file_name(one)).resolve().is_relative_to(tmp_path.resolve())


def test_a_program_that_fails_says_why_and_the_others_go_on(checkout_folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "Pulumi.broken.yaml"
    broken.write_text("config: {'inference-platform:site': {name: broken}}\n")
    files = {"broken": broken, "lab": checkout_folder / "Pulumi.lab.yaml"}
    found = checkout.declare(checkout_folder, files)
    assert "cluster" in found["broken"].error
    assert "Traceback" not in found["broken"].error
    assert found["lab"].resources
