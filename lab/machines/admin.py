"""Controls a running rack: a Unix socket in its folder, one JSON request and one JSON answer per connection."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.machines.faults import parse_fault
from lab.machines.machine import Machine
from lab.machines.rack import Rack

SOCKET = "admin.sock"
_TIMEOUT_S = 30


class AdminServer:
    """Serves a rack's socket; only its owner can reach it, because the folder is the owner's alone."""

    def __init__(self, rack: Rack) -> None:
        path = rack.folder / SOCKET
        path.unlink(missing_ok=True)

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                try:
                    answer: dict[str, Any] = {"ok": True, "machines": obey(rack, json.loads(self.rfile.readline()))}
                except LabError as error:
                    answer = {"ok": False, "what": error.what, "fix": error.fix}
                except (ValueError, TypeError, KeyError) as error:
                    answer = {"ok": False, "what": f"no request: {error}", "fix": "send {machine, action, ...}"}
                self.wfile.write(json.dumps(answer).encode() + b"\n")

        with _short(path) as address:
            self._server = socketserver.ThreadingUnixStreamServer(address, Handler)
        self._server.daemon_threads = True
        path.chmod(0o600)
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def obey(rack: Rack, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Carry out `show`, `on`, `off`, `cycle`, `fault` (adds `fault`) or `clear` (drops faults) on a machine or all."""
    name, action = request.get("machine", "all"), request.get("action", "show")
    if name != "all" and name not in rack.machines:
        raise LabError(f"no machine is called {name!r}", fix=f"machines: {', '.join(rack.machines)}, or all")
    chosen = list(rack.machines.values()) if name == "all" else [rack.machines[name]]
    for machine in chosen:
        if action in {"off", "cycle"}:
            machine.power_off()
        if action in {"on", "cycle"}:
            machine.power_on()
        if action == "fault":
            machine.faults.set((*machine.faults.all(), parse_fault(request["fault"])))
        if action == "clear":
            machine.faults.set(())
    if action not in {"show", "on", "off", "cycle", "fault", "clear"}:
        raise LabError(f"action is {action!r}", fix="allowed: show, on, off, cycle, fault, clear")
    return [shown(machine) for machine in chosen]


def shown(machine: Machine) -> dict[str, Any]:
    """A machine for people and tests: no secret is in it."""
    disks = machine.store.disks
    return {
        "name": machine.name,
        "emulated": True,
        "address": machine.address,
        "power": "on" if disks.powered else "off",
        "stage": machine.stage,
        "hostname": machine.hostname,
        "configured": machine.store.config is not None,
        "boot_id": disks.boot_id,
        "talos": machine.running_system.talos_version,
        "schematic": machine.running_system.schematic,
        "etcd": machine.etcd_up,
        "node_ready": machine.node_is_ready,
        "faults": [dataclasses.asdict(fault) for fault in machine.faults.all()],
        "console": str(machine.store.console),
    }


def ask(folder: Path, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Send a request to the rack of a folder; LabError where none runs or it refuses."""
    path = folder / SOCKET
    try:
        with _short(path) as address, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.connect(address)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile() as reader:
                answer = json.loads(reader.readline())
    except OSError as error:
        raise LabError(
            f"no rack answers at {path}: {error.strerror}",
            fix="bring the lab up: python -m lab up; a rack of its own: python -m lab.machines run",
        ) from None
    if not answer["ok"]:
        raise LabError(answer["what"], fix=answer["fix"])
    machines: list[dict[str, Any]] = answer["machines"]
    return machines


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Another name of a socket, by its folder's descriptor: an address has room for 107 bytes alone."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
