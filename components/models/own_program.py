"""The platform's own programs in pods: their files in a ConfigMap, run by the Python of the engine's image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from components.pod_security import CONTAINER_SECURITY

_SERVICES = Path(__file__).parents[2] / "services"
# Below a folder of Python's path, under the names that the programs' modules have in a checkout.
_PATH = "/opt/platform"


def modules(program: str) -> dict[str, str]:
    """Text of each module of services/PROGRAM, by its file's name."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted((_SERVICES / program).glob("*.py"))}


def runs(image: str, program: str, *arguments: str) -> dict[str, Any]:
    """A container of the program, with what it needs of its host: nothing. As the image's user, root."""
    return {
        "image": image,
        "command": ["python3", "-m", f"services.{program}", *arguments],
        "env": [
            {"name": "PYTHONPATH", "value": _PATH},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
            # In the servers' runtime class, the image's own value would give it every GPU of the node.
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
        ],
        "securityContext": {**CONTAINER_SECURITY, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def mount(program: str) -> dict[str, Any]:
    """The mount of the program's files, where Python finds them."""
    return {"name": f"{program}-program", "mountPath": f"{_PATH}/services/{program}", "readOnly": True}


def volume(program: str, config_map: str) -> dict[str, Any]:
    """The volume behind it."""
    return {"name": f"{program}-program", "configMap": {"name": config_map}}
