"""Rendering charts, with a small script in helm's place."""

from pathlib import Path

import pytest
import yaml

from lab.controllers import charts
from lab.controllers.charts import Release
from lab.errors import LabError
from lab.paths import Lab

RELEASE = Release(name="demo", chart="demo-helm", namespace="demo-system", values={"replicas": 2})


def lab_with_helm(folder: Path, script: str) -> Lab:
    lab = Lab(home=folder / "home", cache=folder / "cache")
    lab.bin.mkdir(parents=True)
    (lab.bundle / "charts" / RELEASE.chart).mkdir(parents=True)
    helm = lab.bin / "helm"
    helm.write_text(f"#!/bin/sh\n{script}\n")
    helm.chmod(0o755)
    return lab


def test_values_and_namespace_reach_helm(tmp_path: Path) -> None:
    echo = r"""
while [ $# -gt 0 ]; do
  case "$1" in --namespace) ns="$2";; --values) values="$2";; esac; shift
done
printf 'kind: ConfigMap\nmetadata: {name: seen, namespace: %s}\nvalues:\n' "$ns"
sed 's/^/  /' "$values"
"""
    (seen,) = charts.render(lab_with_helm(tmp_path, echo), RELEASE)
    assert seen["metadata"]["namespace"] == "demo-system"
    assert seen["values"] == {"replicas": 2}


def test_the_users_helm_home_takes_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELM_PLUGINS", "/somewhere")
    lab = lab_with_helm(tmp_path, 'printf \'kind: X\\nplugins: "%s"\\nhome: "%s"\\n\' "$HELM_PLUGINS" "$HOME"')
    (seen,) = charts.render(lab, RELEASE)
    assert seen["plugins"] == ""
    assert seen["home"] != str(Path.home())


def test_helms_refusal_is_one_error_with_its_reason(tmp_path: Path) -> None:
    lab = lab_with_helm(tmp_path, "echo 'values do not meet the schema' >&2; exit 1")
    with pytest.raises(LabError, match="cannot render demo-helm: values do not meet the schema"):
        charts.render(lab, RELEASE)


@pytest.mark.parametrize(("missing", "part"), [("bin/helm", "helm"), ("bundle/charts/demo-helm", "charts")])
def test_what_is_not_installed_is_named(tmp_path: Path, missing: str, part: str) -> None:
    lab = lab_with_helm(tmp_path, "true")
    path = lab.home / missing
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()
    with pytest.raises(LabError, match=f"is missing\n.*part {part}"):
        charts.render(lab, RELEASE)


def test_documents_without_an_object_are_left_out() -> None:
    assert charts.load("# only a comment\n---\nkind: Service\n---\n") == [{"kind": "Service"}]


def test_what_is_needed_comes_before_what_needs_it() -> None:
    kinds = ["Deployment", "Job", "MutatingWebhookConfiguration", "RoleBinding", "Namespace", "ServiceAccount", "Role"]
    ordered = [manifest["kind"] for manifest in charts.in_order([{"kind": kind} for kind in kinds])]
    assert ordered == ["Namespace", "ServiceAccount", "Role", "RoleBinding", *kinds[2:0:-1], "Deployment"]


def test_objects_of_one_kind_keep_their_order() -> None:
    documents = yaml.safe_load_all("{kind: Role, n: 2}\n---\n{kind: Role, n: 1}")
    assert [manifest["n"] for manifest in charts.in_order(list(documents))] == [2, 1]
