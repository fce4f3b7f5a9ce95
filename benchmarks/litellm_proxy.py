"""LiteLLM's proxy in front of a replica: what many sites put there for keys and budgets, as a yardstick.

Without its database, so that it compares one key and counts nothing. Its environment is made once, in the lab's cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from lab.errors import LabError
from lab.free_ports import free_port
from lab.paths import Lab

VERSION = "1.106.12"
WORKERS = os.cpu_count() or 1
"""Its documentation advises one a core."""
_KEY = "sk-bench"
_DONE = "complete"
_READY_S = 180.0


@contextmanager
def serving(lab: Lab, model: str, engine: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Base URL and headers of a proxy that leads to the engine at this base URL. Raises LabError."""
    litellm = _environment(lab) / "bin" / "litellm"
    engine_settings = {"model": f"openai/{model}", "api_base": engine, "api_key": "none"}
    settings = {
        "model_list": [{"model_name": model, "litellm_params": engine_settings}],
        "general_settings": {"master_key": _KEY},
        "litellm_settings": {"telemetry": False},
    }
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "output").open("w+") as output:
        file = Path(folder) / "config.yaml"
        file.write_text(json.dumps(settings))
        port = free_port()
        command = [str(litellm), "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]
        environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
        proxy = subprocess.Popen(
            [*command, "--num_workers", str(WORKERS)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            _wait(address, proxy, Path(output.name))
            yield f"{address}/v1", {"Authorization": f"Bearer {_KEY}"}
        finally:
            os.killpg(proxy.pid, 15)
            proxy.wait()


def _wait(address: str, proxy: subprocess.Popen[bytes], output: Path) -> None:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline and proxy.poll() is None:
        try:
            if httpx.get(f"{address}/health/liveliness").status_code == 200:
                return
        except httpx.HTTPError:
            pass
        # Its start imports for half a minute, and nothing but this look shows its end.
        time.sleep(0.5)
    raise LabError(
        f"LiteLLM's proxy does not start: {output.read_text()[-500:]}", fix="look for the error in its output"
    )


def _environment(lab: Lab) -> Path:
    folder = lab.cache / f"litellm-{VERSION}"
    if (folder / _DONE).exists():
        return folder
    venv.create(folder, clear=True, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.call([*pip, f"litellm[proxy]=={VERSION}"]) != 0:
        raise LabError(f"pip cannot install litellm {VERSION}", fix="let pip reach a package registry that has it")
    (folder / _DONE).touch()
    return folder
