"""A checkout whose stack has a kubeconfig, and a stand-in for kubectl with an API server in front of one service."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.unit.sitectl.sites_to_work_on import CommandResult, make_checkout, run

# `kubectl proxy`, with an API server that has the Secret and the Service of one service, and drops Authorization.
KUBECTL = """#!{python}
import base64, http.client, json, pathlib, socketserver, sys
from http.server import BaseHTTPRequestHandler
options = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:] if word.startswith("--"))
settings = json.loads(pathlib.Path({settings!r}).read_text())
if "proxy" not in sys.argv or not pathlib.Path(options["kubeconfig"]).read_text():
    sys.exit("error: no such thing here")
if settings.get("refuses"):
    sys.exit("error: " + settings["refuses"])
GATEWAY = "/api/v1/namespaces/inference-gateway"
PROXY = "/api/v1/namespaces/" + settings["namespace"] + "/services/http:" + settings["at"] + "/proxy"
class Handler(BaseHTTPRequestHandler):
    def answer(self):
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        if self.path == GATEWAY + "/secrets/" + settings["service"] + "-secrets" and settings["token"]:
            token = base64.b64encode(settings["token"].encode()).decode()
            return self.send(200, json.dumps({{"data": {{"operator-token": token}}}}).encode())
        if self.path.startswith(PROXY) and settings["port"]:
            to = http.client.HTTPConnection("127.0.0.1", settings["port"])
            headers = {{name: value for name, value in self.headers.items() if name.lower() != "authorization"}}
            path = self.path.removeprefix(PROXY).replace(*settings.get("replaced", ["", ""]))
            to.request(self.command, path, body, headers)
            answer = to.getresponse()
            return self.send(answer.status, answer.read())
        code = 503 if self.path.startswith(PROXY) else 404
        status = {{"kind": "Status", "message": "no endpoints available for service" if code == 503 else "not found"}}
        self.send(code, json.dumps(status).encode())
    do_GET = do_POST = do_DELETE = answer
    def send(self, status, body):
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def address_string(self):
        return ""
    def log_message(self, *_):
        pass
with socketserver.ThreadingUnixStreamServer(options["unix-socket"], Handler) as server:
    print("Starting to serve on", options["unix-socket"], flush=True)
    server.serve_forever()
"""


class AskedSite:
    """A checkout whose stack has a kubeconfig, and whose cluster is as `settings` state."""

    def __init__(
        self,
        folder: Path,
        service: str,
        port: int,
        token: str,
        namespace: str = "inference-gateway",
        service_port: int = 8080,
    ) -> None:
        self.project, self._file = folder / "project", folder / "settings.json"
        self._settings = {"service": service, "port": port, "token": token, "refuses": ""}
        self._settings |= {"namespace": namespace, "at": f"{service}:{service_port}"}
        programs = folder / "bin"
        programs.mkdir()
        self.set()
        kubectl = KUBECTL.format(python=sys.executable, settings=str(self._file))
        for name, text in (("pulumi", "#!/bin/sh\necho '\"kubeconfig\"'\n"), ("kubectl", kubectl)):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.path = f"{programs}:/usr/bin:/bin"
        make_checkout(self.project, sites=("lab",))

    def set(self, **values: object) -> None:
        self._file.write_text(json.dumps(self._settings | values))

    def run(self, *words: str) -> CommandResult:
        return run(self.project, *words)
