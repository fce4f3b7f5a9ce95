"""Rendered manifests: the real program without engine, the same bytes each time, no secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from policy.listing import RULES
from policy.model import HIDDEN, Resource, SiteFacts, violations
from sitectl.offline import checkout
from sitectl.offline.manifests_folder import contents, file_name, read, redacted, write
from sitectl.shell.errors import SitectlError
from tests.unit.sitectl.sites_to_work_on import really_declare, remembering, run

pytestmark = pytest.mark.row("C.05", "C.06")


@pytest.fixture(scope="module")
def declared(checkout_folder: Path) -> dict[str, checkout.Declared]:
    return remembering(checkout_folder, checkout.site_files(checkout_folder))


def secret(values: Any) -> Resource:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "n"}, "stringData": values}
    return Resource(type="kubernetes:core/v1:Secret", name="a", body=body)


BASE64 = re.compile(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}(==|[A-Za-z0-9+/]=))?")
SCALARS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "float": (int, float),
    "bytes": (str,),
    # Numbers or shares, and whole values of other kinds.
    "object": (int, str, dict),
}


def misfits(value: Any, type_: str, at: str = "") -> Iterator[str]:
    """Where a value is not as the API's definition of its type has it."""
    mapping, sequence = re.fullmatch(r"Dict\[str, (.+)\]", type_), re.fullmatch(r"List\[(.+)\]", type_)
    if mapping and isinstance(value, dict):
        for key, below in value.items():
            yield from misfits(below, mapping[1], f"{at}.{key}")
    elif sequence and isinstance(value, list):
        for place, below in enumerate(value):
            yield from misfits(below, sequence[1], f"{at}.{place}")
    elif (definition := getattr(client, type_, None)) and isinstance(value, dict) and type_ not in SCALARS:
        own = {wire: name for name, wire in definition.attribute_map.items()}
        for key, below in value.items():
            where = f"{at}.{key}".lstrip(".")
            yield from (
                misfits(below, definition.openapi_types[own[key]], where) if key in own else [f"{where}: unknown"]
            )
    elif type(value) not in SCALARS.get(type_, ()):
        yield f"{at}: not of type {type_}"
    elif type_ == "bytes" and not BASE64.fullmatch(value):
        yield f"{at}: not base64"


def _version(manifest: dict[str, Any]) -> str:
    return str(manifest["apiVersion"]).rpartition("/")[2].capitalize()


@pytest.mark.processes
def test_the_same_site_gives_the_same_bytes(
    declared: dict[str, checkout.Declared], checkout_folder: Path, tmp_path: Path
) -> None:
    """A diff of renders shows the change and nothing else. The second one runs in a process of its own."""
    again = really_declare(checkout_folder, checkout.site_files(checkout_folder))
    for site, rendered in declared.items():
        write(tmp_path / site, contents(again[site].resources))
        files = {
            str(path.relative_to(tmp_path / site)): path.read_bytes() for path in (tmp_path / site).rglob("*.yaml")
        }
        assert files == {name: text.encode() for name, text in contents(rendered.resources).items()}


def test_render_writes_a_folder_a_site(checkout_folder: Path, tmp_path: Path) -> None:
    result = run(checkout_folder, "render", "prod", "--out", str(tmp_path))
    assert result.status == 0
    assert [path.name for path in tmp_path.iterdir()] == ["prod"]
    assert f"prod: {len(list(tmp_path.rglob('*.yaml')))} files in" in result.out


def test_one_file_an_object_with_the_object_in_its_name(declared: dict[str, checkout.Declared]) -> None:
    files = contents(declared["lab"].resources)
    assert len(files) == len(declared["lab"].resources) > 30
    assert {
        "inference-models/deployment.apps_glm-5-1.yaml",
        "inference-gateway/gateway.gateway.networking.k8s.io_inference.yaml",
        "cluster/namespace_inference-models.yaml",
        "program/command-local-Command.access-acme-laptop.yaml",
    } <= set(files)
    manifest = yaml.safe_load(files["inference-models/deployment.apps_glm-5-1.yaml"])
    assert (manifest["kind"], manifest["spec"]["replicas"]) == ("Deployment", 2)
    assert list(manifest) == ["apiVersion", "kind", "metadata", "spec"]


def test_secrets_have_no_values(declared: dict[str, checkout.Declared]) -> None:
    """And no placeholder: if applied, every client could use the placeholder as a key."""
    files = contents(declared["lab"].resources)
    (name,) = (name for name in files if name.startswith("inference-gateway/secret_keys-acme-"))
    manifest = yaml.safe_load(files[name])
    assert set(manifest) == {"apiVersion", "immutable", "kind", "metadata", "type"}
    assert (
        "`pulumi up` makes the values" in manifest["metadata"]["annotations"]["inference-platform/values-not-rendered"]
    )
    assert "sk-" not in "".join(text for name, text in files.items() if not name.startswith("program/command"))


@pytest.mark.parametrize("values", [{"key": "sk-plain"}, HIDDEN, {"key": HIDDEN}])
def test_a_secret_that_the_program_forgot_to_mark_is_hidden_all_the_same(values: Any) -> None:
    shown = redacted(secret(values))
    assert "stringData" not in shown
    reported = shown["metadata"]["annotations"]["inference-platform/values-not-rendered"]
    assert reported.startswith("stringData (key): " if values != HIDDEN else "stringData: ")
    assert "sk-plain" not in "".join(contents([secret(values)]).values())


@pytest.mark.parametrize("site", ["lab", "prod"])
def test_rendered_objects_have_the_structure_of_their_kind(declared: dict[str, checkout.Declared], site: str) -> None:
    """As a strict validator reads them: no unknown field, and each of its type, by the API's own definition."""
    checked = set()
    for name, text in contents(declared[site].resources).items():
        manifest = yaml.safe_load(text)
        if name.startswith("program/"):
            continue
        core = "." not in str(manifest["apiVersion"]) or str(manifest["apiVersion"]).partition("/")[0].endswith(
            ".k8s.io"
        )
        model = f"{_version(manifest)}{manifest['kind']}" if core else ""
        if hasattr(client, model):
            assert list(misfits(manifest, model)) == [], name
            checked.add(manifest["kind"])
        else:
            assert set(manifest) <= {"apiVersion", "kind", "metadata", "spec"}, name
            assert list(misfits(manifest["metadata"], "V1ObjectMeta")) == [], name
    assert checked >= {"Secret", "PersistentVolumeClaim", "Deployment", "Service", "RoleBinding", "PodDisruptionBudget"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"stringData": HIDDEN}, "stringData: not of type Dict[str, str]"),
        ({"data": {"key": HIDDEN}}, "data.key: not base64"),
        ({"x-pulumi": {"protect": True}}, "x-pulumi: unknown"),
        ({"metadata": {"labels": {"a": 1}}}, "metadata.labels.a: not of type str"),
    ],
)
def test_a_wrong_structure_is_seen(change: dict[str, Any], says: str) -> None:
    assert says in list(misfits({**secret({}).body, **change}, "V1Secret"))


def test_committed_sites_keep_the_rules(declared: dict[str, checkout.Declared]) -> None:
    """The rules as a test over what is declared."""
    for site, rendered in declared.items():
        assert rendered.resources
        errors = [
            violation
            for violation in violations(rendered.resources, SiteFacts(name=site), RULES)
            if violation.level == "error"
        ]
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
    config_map = Resource(type="kubernetes:core/v1:ConfigMap", name=name, body=body)
    assert (tmp_path / file_name(config_map)).resolve().is_relative_to(tmp_path.resolve())


@pytest.mark.processes
def test_a_program_that_fails_says_why_and_the_others_go_on(checkout_folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "Pulumi.broken.yaml"
    broken.write_text("config: {'inference-platform:site': {name: broken}}\n")
    files = {"broken": broken, "lab": checkout_folder / "Pulumi.lab.yaml"}
    rendered = checkout.declare(checkout_folder, files)
    assert "cluster" in rendered["broken"].error
    assert "Traceback" not in rendered["broken"].error
    assert rendered["lab"].resources
