"""The platform's own programs in pods: a ConfigMap of each per namespace, run by the Python of the engine's image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from components.pod_security import CONTAINER_SECURITY

_SERVICES = Path(__file__).parents[2] / "services"
# Below a folder of Python's path, under the names that the programs' modules have in a checkout.
_PATH = "/opt/platform"
ENVIRONMENT = ({"name": "PYTHONPATH", "value": _PATH}, {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"})


def config_map(program: str, namespace: str) -> dict[str, Any]:
    """Text of each module of services/PROGRAM, by its file's name. Running pods keep what they have begun with."""
    files = sorted((_SERVICES / program).glob("*.py"))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": _name(program),
            "namespace": namespace,
            "labels": {"app.kubernetes.io/name": _name(program)},
        },
        "data": {path.name: path.read_text(encoding="utf-8") for path in files},
    }


def runs(image: str, program: str, *arguments: str) -> dict[str, Any]:
    """A container of the program, with what it needs of its host: nothing. As the image's user, root."""
    return {
        "image": image,
        "command": ["python3", "-m", f"services.{program}", *arguments],
        "env": [
            *ENVIRONMENT,
            # In the servers' runtime class, the image's own value would give it every GPU of the node.
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
        ],
        "securityContext": {**CONTAINER_SECURITY, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def mount(program: str) -> dict[str, Any]:
    """The mount of the program's files, where Python finds them."""
    return {"name": _name(program), "mountPath": f"{_PATH}/services/{program}", "readOnly": True}


def volume(program: str) -> dict[str, Any]:
    """The volume behind it."""
    return {"name": _name(program), "configMap": {"name": _name(program)}}


def _name(program: str) -> str:
    """Of the ConfigMap and of its volume."""
    return f"{program.replace('_', '-')}-program"
