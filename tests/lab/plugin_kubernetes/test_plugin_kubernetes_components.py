"""Components that unfold into children: YAML files and charts; functions; rendering to files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.lab.plugin_kubernetes.conftest import Plane, Site

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


def write_chart(site: Site, folder: str) -> None:
    for name, text in CHART.items():
        path = site.folder / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def declare(site: Site, program: str) -> None:
    (site.folder / "__main__.py").write_text("import pulumi\nimport pulumi_kubernetes as k8s\n" + program)


def test_a_config_group_orders_and_names_its_children(site: Site, plane: Plane) -> None:
    (site.folder / "bundle.yaml").write_text(BUNDLE)
    program = """
objects = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "object"}, "data": {"x": "%s"}}]
group = k8s.yaml.v2.ConfigGroup("group", files=["bundle*.yaml"], objs=objects)
single = k8s.yaml.v2.ConfigFile("single", file="one.json", resource_prefix="p", skip_await=True)
pulumi.export("count", group.resources.apply(len))
"""
    one = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
    (site.folder / "one.json").write_text(json.dumps(one))
    declare(site, program % "1")
    assert "+ 9 to create" in site.pulumi("preview")
    site.up()
    for name in ("group:bundle", "group:bundle/widget", "group:default/listed", "group:default/object"):
        assert site.state(name), name
    assert site.state("group:bundle/widget")["type"] == "kubernetes:example.net/v1:Widget"
    one_made = plane.get("configmap", "one")["metadata"]["annotations"]
    assert one_made["pulumi.com/skipAwait"] == "true" and site.state("p:default/one")
    site.unchanged()
    (site.folder / "bundle.yaml").write_text(BUNDLE.replace("size: 3", "size: 4"))
    declare(site, program % "2")
    steps = site.steps()
    assert set(steps["group:bundle/widget"]["detailedDiff"]) == {"spec.size"}
    assert set(steps["group:default/object"]["detailedDiff"]) == {"data.x"}
    site.up()
    site.unchanged()


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_chart_is_rendered_into_children(site: Site, plane: Plane, mirrored: bool) -> None:
    write_chart(site, "mirror/demo-0.1.0" if mirrored else "chart")
    source = 'chart="oci://registry.example.com/charts/demo", version="0.1.0"' if mirrored else 'chart="./chart"'
    site.environment["LAB_CHART_MIRROR"] = str(site.folder / "mirror")
    program = f'k8s.helm.v4.Chart("chart", {source}, name="rel", namespace="default", values={{"greeting": "%s"}})'
    declare(site, program % "hello")
    said = site.pulumi("preview", "--diff") + site.up("--diff")
    assert "canary" not in said
    assert plane.get("configmap", "rel-map")["data"] == {"greeting": "hello", "apps": "true"}
    assert site.state("chart:things.example.net") and site.state("chart:default/rel-map")
    assert not site.state("chart:default/hook"), "hooks are not run"
    site.unchanged()
    declare(site, program % "bye")
    assert set(site.steps()["chart:default/rel-map"]["detailedDiff"]) == {"data.greeting"}
    site.up()
    site.pulumi("destroy", "--yes", "--skip-preview")
    assert "secret/rel-secret" in plane.names("secret"), "its resource policy is to keep it"
    plane.kubectl("delete", "secret", "rel-secret")


def test_a_chart_that_cannot_be_had_says_where_it_was_looked_for(site: Site) -> None:
    declare(site, 'k8s.helm.v4.Chart("chart", chart="oci://registry.example.com/demo", version="1")')
    assert "LAB_CHART_MIRROR" in site.pulumi("preview", check=False)


def test_unknown_inputs_of_a_component_leave_the_preview_open(site: Site) -> None:
    declare(
        site,
        """
made = k8s.core.v1.ConfigMap("made", metadata={"name": "made", "namespace": "default"})
late = "{apiVersion: v1, kind: ConfigMap, metadata: {name: late}, data: {u: %s}}"
text = made.metadata.uid.apply(lambda uid: late % uid)
k8s.yaml.v2.ConfigGroup("late", yaml=text)
""",
    )
    site.pulumi("preview")
    site.up()
    assert site.state("late:default/late")
    site.unchanged()


def test_objects_are_rendered_to_files(site: Site, plane: Plane) -> None:
    declare(
        site,
        """
provider = k8s.Provider("files", render_yaml_to_directory="out")
options = pulumi.ResourceOptions(provider=provider)
k8s.core.v1.ConfigMap("map", metadata={"name": "map", "namespace": "n"}, data={"k": "v"}, opts=options)
""",
    )
    site.environment["KUBECONFIG"] = "/nowhere"
    site.up()
    rendered: dict[str, Any] = {}
    for path in (site.folder / "out" / "1-manifest").iterdir():
        rendered[path.name] = path.read_text()
    assert list(rendered) == ["v1-configmap-n-map.yaml"]
    site.unchanged()
    site.pulumi("destroy", "--yes", "--skip-preview")
    assert list((site.folder / "out" / "1-manifest").iterdir()) == []


def test_another_context_replaces_the_provider_only_if_it_is_another_cluster(site: Site, plane: Plane) -> None:
    program = """
import pathlib
content = pathlib.Path(%r).read_text()
provider = k8s.Provider("given", kubeconfig=content.replace("%s", "%s"), namespace="default")
k8s.core.v1.ConfigMap("map", metadata={"name": "given"}, opts=pulumi.ResourceOptions(provider=provider))
"""
    path = str(plane.kubeconfig)
    declare(site, program % (path, "-", "-"))
    site.up()
    # Another name of the user, the same cluster: nothing of ours has moved.
    declare(site, program % (path, "kind: Config", "kind: Config\\npreferences: {colors: true}"))
    assert site.steps()["given"]["op"] == "update"
    site.up()
    declare(site, program % (path, "server: https://127.0.0.1", "server: https://localhost"))
    assert "replace" in site.steps()["given"]["op"]
    declare(site, program % (path, "-", "-"))
    site.up()
