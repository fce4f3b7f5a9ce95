"""What restarts a replica that hangs: a container beside the engine that sees whether it takes steps (ADR 48)."""

from __future__ import annotations

from typing import Any

from components.models import own_program
from components.models.engines import PORT, Engine
from components.models.weights import WeightsPlan

WATCH_PORT = 8001
"""Where the container beside the engine answers the kubelet; no policy lets anyone else in."""
_PERIOD_S = 2
# In a row: one would restart an engine whose watching container is itself being restarted.
_FAILURES = 3
# The least that the kubelet gives. A hang does not end by SIGTERM, and streams of one are lost.
_END_S = 2
NOTICED_S = 2 + _FAILURES * _PERIOD_S + _END_S
"""From the end of the time without a step to the end of the engine, at most: a look, probes, SIGKILL."""
PROGRAM = "liveness"
"""Its name in services/."""


def image_of(engine: Engine, store: WeightsPlan | None) -> str:
    """Whose Python watches: that of vLLM's image, which a simulator's node has where its weights are brought too.

    Empty for a simulator without weights: no image of its pod has a Python.
    """
    return store.image if store else engine.image if engine.has_python else ""


def volume() -> dict[str, Any]:
    """The volume with the program."""
    return own_program.volume(PROGRAM)


def container(image: str, engine: Engine) -> dict[str, Any]:
    """Starts before the engine and ends after it. If it cannot start, no engine does, and a rollout ends there."""
    return {
        **own_program.runs(image, PROGRAM),
        "name": PROGRAM,
        "restartPolicy": "Always",
        "args": [
            f"--engine=http://127.0.0.1:{PORT}",
            f"--health={engine.ready_path}",
            f"--stall-s={engine.stall_s}",
            f"--port={WATCH_PORT}",
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "startupProbe": {**_asked(WATCH_PORT), "periodSeconds": 1, "failureThreshold": 60},
        "volumeMounts": [own_program.mount(PROGRAM)],
    }


def probe() -> dict[str, Any]:
    """The engine's liveness probe. The kubelet begins with it once the startup probe has passed: never while it loads.

    An own grace period: by that of the pod, a hung engine would hold its streams for as long as the longest may take.
    """
    return {
        **_asked(WATCH_PORT),
        "periodSeconds": _PERIOD_S,
        "failureThreshold": _FAILURES,
        "terminationGracePeriodSeconds": _END_S,
    }


def _asked(port: int) -> dict[str, Any]:
    return {"httpGet": {"path": "/", "port": port}, "timeoutSeconds": 5}
