"""Objects as programs declare them, for the driver and for the engine."""

from __future__ import annotations

from typing import Any

from tests.lab.provider_driver import Declared

NOWHERE: dict[str, Any] = {"nodeSelector": {"no": "where"}}


def declare(token: str, name: str, properties: dict[str, Any], **options: Any) -> Declared:
    """An object of a kind such as `apps/v1:Deployment`."""
    api_version, kind = token.split(":")
    inputs = {"apiVersion": api_version.removeprefix("core/"), "kind": kind, **properties}
    return Declared(type=f"kubernetes:{token}", name=name, inputs=inputs, **options)


def named(name: str, namespace: str = "default", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, **metadata}}


def config_map(name: str, data: dict[str, Any] | None = None, object_name: str = "", **metadata: Any) -> Declared:
    content = {**named(object_name or name, **metadata), **({"data": data} if data else {})}
    return declare("core/v1:ConfigMap", name, content)


def deployment(name: str, **changes: Any) -> Declared:
    """Spelt with what the server spells otherwise or leaves out."""
    container = {
        "name": "c",
        "image": "nginx",
        "args": ["a", "b", "c"],
        "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}},
        **changes.pop("container", {}),
    }
    labels = changes.pop("labels", {"app": name})
    metadata = named(name, annotations=changes.pop("annotations", {}))
    options = changes.pop("options", {})
    pod = {"hostNetwork": False, "volumes": [], "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template, **changes}
    return declare("apps/v1:Deployment", name, {**metadata, "spec": spec}, **options)


def workload(name: str, image: str = "nginx", **pod: Any) -> dict[str, Any]:
    """What specs of workloads have in common."""
    labels = {"app": name}
    spec = {"containers": [{"name": "c", "image": image}], **pod}
    return {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}
