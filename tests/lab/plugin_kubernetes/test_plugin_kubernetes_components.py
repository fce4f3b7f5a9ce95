"""Components that unfold into children, which takes the real engine: YAML files and charts; and functions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lab.plugin_kubernetes.conftest import Plane, Site
from tests.lab.provider_driver import Driver, FailedError

BUNDLE = """
apiVersion: example.net/v1
kind: Widget
metadata: {name: widget, namespace: bundle}
spec: {size: 3}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: listed}, data: {day: "2024-01-01"}}
---
apiVersion: v1
kind: Namespace
metadata: {name: bundle}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.net}
spec:
  group: example.net
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: integer}, color: {type: string, default: red}}}}
"""

CHART = {
    "Chart.yaml": "apiVersion: v2\nname: demo\nversion: 0.1.0\n",
    "values.yaml": "greeting: hi\nkept: yes\n",
    "crds/crd.yaml": BUNDLE.split("---")[-1].replace("widgets", "things").replace("Widget", "Thing"),
    "templates/all.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-map"}
data: {greeting: "{{ .Values.greeting }}", apps: "{{ .Capabilities.APIVersions.Has "apps/v1" }}"}
---
apiVersion: v1
kind: Secret
metadata: {name: "{{ .Release.Name }}-secret", annotations: {helm.sh/resource-policy: keep}}
stringData: {p: canary-3}
---
apiVersion: v1
kind: Pod
metadata: {name: hook, annotations: {helm.sh/hook: pre-install}}
spec: {containers: [{name: a, image: b}]}
""",
}


def write_chart(folder: Path) -> None:
    for name, text in CHART.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_config_group_orders_and_names_its_children(site: Site, plane: Plane) -> None:
    (site.folder / "bundle.yaml").write_text(BUNDLE)
    program = """
objects = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "object"}, "data": {"x": "%s"}}]
group = k8s.yaml.v2.ConfigGroup("group", files=["bundle*.yaml"], objs=objects)
single = k8s.yaml.v2.ConfigFile("single", file="one.json", resource_prefix="p", skip_await=True)
pulumi.export("count", group.resources.apply(len))
"""
    config_map_one = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
    (site.folder / "one.json").write_text(json.dumps(config_map_one))
    site.write(program % "1")
    assert "+ 9 to create" in site.pulumi("preview")
    site.up()
    kept = site.state()
    assert kept.keys() >= {"group:bundle", "group:bundle/widget", "group:default/listed", "group:default/object"}
    assert kept["group:bundle/widget"]["type"] == "kubernetes:example.net/v1:Widget"
    assert "p:default/one" in kept
    assert plane.get("configmap", "one")["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"
    site.unchanged()
    (site.folder / "bundle.yaml").write_text(BUNDLE.replace("size: 3", "size: 4"))
    site.write(program % "2")
    changes = site.differences()
    assert changes["group:bundle/widget"].keys() == {"spec.size"}
    assert changes["group:default/object"].keys() == {"data.x"}
    site.up()
    site.unchanged()


def test_a_chart_is_rendered_into_children(site: Site, plane: Plane) -> None:
    write_chart(site.folder / "demo")
    source = 'chart="./demo"'
    program = f'k8s.helm.v4.Chart("chart", {source}, name="rel", namespace="default", values={{"greeting": "%s"}})'
    site.write(program % "hello")
    output = site.pulumi("preview", "--diff") + site.up("--diff")
    assert "canary" not in output
    assert plane.get("configmap", "rel-map")["data"] == {"greeting": "hello", "apps": "true"}
    kept = site.state()
    assert kept.keys() >= {"chart:things.example.net", "chart:default/rel-map"}
    assert "chart:default/hook" not in kept, "hooks are not run"
    site.unchanged()
    site.write(program % "bye")
    assert site.differences()["chart:default/rel-map"].keys() == {"data.greeting"}
    site.up()
    site.pulumi("destroy", "--yes", "--skip-preview")
    assert "secret/rel-secret" in plane.names("secret"), "its resource policy is to keep it"
    plane.kubectl("delete", "secret", "rel-secret")


def test_a_chart_is_local_or_says_so(driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_chart(tmp_path / "chart")
    monkeypatch.chdir(tmp_path)
    options = {"releaseName": "rel", "namespace": "default", "values": {"greeting": "hello"}}
    rendered = driver.invoke("kubernetes:helm:template", {"chart": "./chart", **options})["result"]
    assert [rendered_object["kind"] for rendered_object in rendered] == [
        "CustomResourceDefinition",
        "Secret",
        "ConfigMap",
    ]
    with pytest.raises(FailedError, match="is not a local path"):
        driver.invoke("kubernetes:helm:template", {"chart": "oci://registry.example.com/demo", "version": "1"})


def test_unknown_inputs_of_a_component_leave_the_preview_open(site: Site) -> None:
    site.write(
        """
made = k8s.core.v1.ConfigMap("made", metadata={"name": "made", "namespace": "default"})
late = "{apiVersion: v1, kind: ConfigMap, metadata: {name: late}, data: {u: %s}}"
text = made.metadata.uid.apply(lambda uid: late % uid)
k8s.yaml.v2.ConfigGroup("late", yaml=text)
""",
    )
    site.pulumi("preview")
    site.up()
    assert "late:default/late" in site.state()
    site.unchanged()
