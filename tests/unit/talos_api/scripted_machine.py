"""A machine with a life: maintenance mode, install, boots, etcd, upgrades; for what the commands do over several calls.

Only as much of Talos as the commands look at. An answer in `lost` is cut off after its effect. A machine that reboots
lingers for `lingers_s` and until `may_go_down`, answers the calls that it has, and is away for `down_s`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from lab.machines.front import Outstanding
from talos.api.messages import new
from tests.unit.talos_api.machine_certificates import cluster, self_signed
from tests.unit.talos_api.machine_server import Machine, data, fail, serving

STAGES = {"installing": 2, "maintenance": 3, "running": 4, "rebooting": 5}
_LONG_S = 60


class ScriptedMachine:
    """One machine of the cluster `owner`."""

    def __init__(self, owner: str = "lab", *, configured: bool = False, down_s: float = 0.15) -> None:
        self.owner = cluster(owner)
        self.machine = Machine()
        self.configured = configured
        self.down_s, self.lingers_s = down_s, 0.1
        self.config = b"version: v1alpha1\n" if configured else b""
        self.boot_id = str(uuid.uuid4())
        self.version, self.schematic = "v1.13.8", "a" * 64
        self.installed: tuple[str, str] | None = None
        self.boots_installed = self.installs = self.erases = True
        self.legacy = False
        self.etcd = ""
        self.stage = "maintenance"
        self.lost: set[str] = set()
        self.refuses = ""
        self.busy = 0
        self.boots = 0
        self.may_go_down = threading.Event()
        self.may_go_down.set()
        self._calls = Outstanding()
        for name in [
            "Version",
            "ApplyConfiguration",
            "Bootstrap",
            "Reboot",
            "Reset",
            "Upgrade",
            "Pull",
            "ServiceList",
            "EtcdMemberList",
            "Read",
            "Get",
            "List",
        ]:
            handler: Callable[[Any, Any], Any] = getattr(self, f"_{name.lower()}")
            self.machine.answers[name] = self._guarded(name, handler)
        self._up()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.machine.port}"

    @contextmanager
    def serving(self) -> Iterator[ScriptedMachine]:
        with serving(self.machine):
            yield self

    def reboot(self, after: Callable[[], None] = lambda: None) -> None:
        """Go down soon, and come back `down_s` later with `after` done."""
        self.stage = "rebooting"
        threading.Thread(target=self._go_down, args=(after,), daemon=True).start()

    def _go_down(self, after: Callable[[], None]) -> None:
        time.sleep(self.lingers_s)
        self.may_go_down.wait(_LONG_S)
        self._power_off()
        time.sleep(self.down_s)
        self.boot_id = str(uuid.uuid4())
        self.boots += 1
        after()
        if self.installed and self.boots_installed:
            self.version, self.schematic = self.installed
        self.installed = None
        self._up()

    def _up(self) -> None:
        self.machine.clients_of = self.owner.ca if self.configured else None
        self.machine.identity = self.owner.machine() if self.configured else self_signed()
        self.stage = "running" if self.configured else "maintenance"

    def _break(self) -> None:
        if self.machine.front:
            self.machine.front.break_connections()

    def _guarded(self, name: str, handler: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def answer(request: Any, context: Any) -> Any:
            self._calls.add(context)
            if not context.add_callback(lambda: self._calls.remove(context)):
                self._calls.remove(context)
            reply = handler(request, context)
            if name in self.lost and not getattr(request, "dry_run", False):
                self.lost.remove(name)
                self._break()
            return reply

        return answer

    def _version(self, _request: Any, _context: Any) -> Any:
        return new("machine.VersionResponse", messages=[{"version": {"tag": self.version}}])

    def _applyconfiguration(self, request: Any, context: Any) -> Any:
        if self.refuses:
            fail(context, grpc.StatusCode.INVALID_ARGUMENT, self.refuses)
        needs_reboot = b"reboot" in request.data
        same = self.config == request.data
        if request.dry_run:
            diff = "No changes." if same else "+    token: canary-token"
            details = f"Dry run summary:\nnothing done\nConfig diff:\n\n{diff}\n"
            mode = 1 if not self.configured else 0 if needs_reboot and not same else 2
            return self._applied(mode, details)
        if self.busy:
            self.busy -= 1
            fail(context, grpc.StatusCode.FAILED_PRECONDITION, "another apply is running")
        self.config = request.data
        if not self.configured:
            self.configured = self.installs
            self.reboot()
        elif request.mode == 0:
            self.reboot()
        return self._applied(request.mode, "")

    def _applied(self, mode: int, details: str) -> Any:
        return new("machine.ApplyConfigurationResponse", messages=[{"mode": mode, "mode_details": details}])

    def _bootstrap(self, _request: Any, context: Any) -> Any:
        if self.busy:
            self.busy -= 1
            fail(context, grpc.StatusCode.FAILED_PRECONDITION, "time is not in sync yet")
        if self.etcd == "Running":
            fail(context, grpc.StatusCode.ALREADY_EXISTS, "etcd data directory is not empty")
        self.etcd = "Running"
        return new("machine.BootstrapResponse", messages=[{}])

    def _reboot(self, _request: Any, _context: Any) -> Any:
        self.reboot()
        return new("machine.RebootResponse", messages=[{"actor_id": "a"}])

    def _reset(self, request: Any, _context: Any) -> Any:
        def erase() -> None:
            if not self.erases:
                self.erases = True
                return
            self.configured, self.config, self.etcd = False, b"", ""

        if request.reboot:
            self.reboot(erase)
        else:
            threading.Thread(target=self._power_off, daemon=True).start()
        return new("machine.ResetResponse", messages=[{"actor_id": "a"}])

    def _power_off(self) -> None:
        self._calls.wait(_LONG_S)
        self.machine.identity = None
        if self.machine.front:
            self.machine.front.drain()

    def _pull(self, request: Any, context: Any) -> Iterator[Any]:
        if self.legacy:
            fail(context, grpc.StatusCode.UNIMPLEMENTED, "unknown service machine.ImageService")
        return iter([new("machine.ImageServicePullResponse", name=f"{request.image_ref}@sha256:00")])

    def _upgrade(self, request: Any, _context: Any) -> Any:
        image = request.image if self.legacy else request.source.image_name
        path, _, version = image.rpartition(":")
        self.installed = version, path.rpartition("/")[2]
        if self.legacy:
            self.reboot()
            return new("machine.UpgradeResponse", messages=[{"ack": "ok", "actor_id": "a"}])
        kind = "machine.LifecycleServiceUpgradeResponse"
        return iter([new(kind, progress={"message": "writing the slot"}), new(kind, progress={"exit_code": 0})])

    def _servicelist(self, _request: Any, _context: Any) -> Any:
        healthy = {"healthy": True, "last_message": ""}
        services = [{"id": "apid", "state": "Running", "health": healthy}]
        if self.etcd:
            services.append({"id": "etcd", "state": self.etcd, "health": healthy})
        return new("machine.ServiceListResponse", messages=[{"services": services}])

    def _etcdmemberlist(self, _request: Any, _context: Any) -> Any:
        members = [{"id": 1, "hostname": "cp-1", "is_learner": False}]
        return new("machine.EtcdMemberListResponse", messages=[{"members": members}])

    def _read(self, _request: Any, _context: Any) -> Any:
        return data(self.boot_id.encode())

    def _get(self, _request: Any, _context: Any) -> Any:
        status = {"stage": STAGES[self.stage], "status": {"ready": True}}
        spec = new("runtime.MachineStatusSpec", **status).SerializeToString()
        return new("cosi.resource.GetResponse", resource={"spec": {"proto_spec": spec}})

    def _list(self, request: Any, _context: Any) -> Any:
        if not request.type.startswith("ExtensionStatuses"):
            return iter([])
        spec = new("runtime.ExtensionStatusSpec", metadata={"name": "schematic", "version": self.schematic})
        resource = {"spec": {"proto_spec": spec.SerializeToString()}}
        return iter([new("cosi.resource.ListResponse", resource=resource)])
