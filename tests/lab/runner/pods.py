"""Pods for the runner to execute, and ways to watch what becomes of them."""

from __future__ import annotations

import http.client
import json
import textwrap
from typing import Any

from kubernetes import client

from lab.paths import Lab
from tests.lab.waiting import eventually

SERVER = textwrap.dedent(
    """
    import http.server, json, os, signal, threading, time

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            if self.path == "/stream":
                self.send_response(200)
                self.send_header("Connection", "close")
                self.end_headers()
                for number in range(12):
                    self.wfile.write(b"%d\\n" % number)
                    time.sleep(0.25)
                self.close_connection = True
                return
            body = json.dumps(
                {"env": dict(os.environ), "secret": open("/secret/key").read(), "uid": os.getuid(), "pid": os.getpid()}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("", 8000), Handler)
    server.daemon_threads = False
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print("serving", flush=True)
    server.serve_forever()
    server.server_close()
    print("ended", flush=True)
    """
)
Container = dict[str, Any]


def run_pod(core: client.CoreV1Api, namespace: str, name: str, *containers: Container, **spec: Any) -> None:
    for container in (*containers, *spec.get("initContainers", [])):
        container.setdefault("image", "python:3.11")
        container.setdefault("name", "main")
    manifest = {"metadata": {"name": name}, "spec": {"containers": list(containers), **spec}}
    core.create_namespaced_pod(namespace, client.V1Pod.model_validate(manifest))


def python(code: str, **fields: Any) -> Container:
    return {"command": ["python3", "-u", "-c", textwrap.dedent(code)], **fields}


def web(**fields: Any) -> tuple[Container, list[Container]]:
    """A container that serves HTTP on 8000, and the volumes it mounts."""
    container = {
        "command": ["python3", "-u", "/code/server.py"],
        "ports": [{"name": "http", "containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1},
        "volumeMounts": [{"name": "code", "mountPath": "/code"}, {"name": "secret", "mountPath": "/secret"}],
        **fields,
    }
    volumes = [{"name": "code", "configMap": {"name": "code"}}, {"name": "secret", "secret": {"secretName": "secret"}}]
    return container, volumes


def read(core: client.CoreV1Api, namespace: str, name: str) -> Any:
    return core.read_namespaced_pod(name, namespace)


def wait_phase(core: client.CoreV1Api, namespace: str, name: str, phase: str) -> Any:
    def reached() -> Any:
        pod = read(core, namespace, name)
        return pod if pod.status.phase == phase else None

    return eventually(reached)


def main_status(core: client.CoreV1Api, namespace: str, name: str) -> Any:
    """Status of the pod's first container; LookupError while there is none."""
    return (read(core, namespace, name).status.container_statuses or [])[0]


def is_ready(pod: Any) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or [])


def wait_ready(core: client.CoreV1Api, namespace: str, name: str) -> Any:
    def ready() -> Any:
        pod = read(core, namespace, name)
        return pod if is_ready(pod) else None

    return eventually(ready)


def wait_gone(core: client.CoreV1Api, namespace: str, name: str) -> None:
    def gone() -> bool:
        try:
            read(core, namespace, name)
        except client.ApiException as error:
            return bool(error.status == 404)
        return False

    eventually(gone)


def get(address: str, path: str = "/") -> Any:
    connection = http.client.HTTPConnection(address, 8000, timeout=10)
    connection.request("GET", path)
    return json.loads(connection.getresponse().read())


def log_of(lab: Lab, namespace: str, pod: str, container: str = "main", run: int = 0) -> str:
    folder = next((lab.logs / "pods").glob(f"{namespace}_{pod}_*"))
    return (folder / container / f"{run}.log").read_text()


def component_pid(lab: Lab, name: str) -> int:
    return int(json.loads((lab.home / "status.json").read_text())["components"][name]["pid"])
