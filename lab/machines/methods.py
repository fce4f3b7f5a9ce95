"""The methods that an emulated machine serves: their messages, and the roles that may call them.

Who may call what is Talos v1.13.9's table of rules. Methods that are not here are answered as unimplemented.
"""

from __future__ import annotations

from dataclasses import dataclass

from talos.api import calls

ADMIN, OPERATOR, READER, BACKUP = "os:admin", "os:operator", "os:reader", "os:etcd:backup"
_EVERYBODY = frozenset({ADMIN, OPERATOR, READER})
_OPERATORS = frozenset({ADMIN, OPERATOR})
_ADMINS = frozenset({ADMIN})

# Services of which a reply can be the sum of several machines' replies.
_AGGREGATED = ("/machine.MachineService/", "/storage.StorageService/")


@dataclass(frozen=True, kw_only=True)
class Method:
    """One method by its full gRPC path."""

    path: str
    request: str
    reply: str
    streams: bool
    uploads: bool = False
    roles: frozenset[str]

    @property
    def name(self) -> str:
        """The method without its service, but `LifecycleService/Upgrade`, which is not MachineService's."""
        service, _, name = self.path.rpartition("/")
        return f"LifecycleService/{name}" if service.endswith("LifecycleService") else name

    @property
    def aggregates(self) -> bool:
        return self.path.startswith(_AGGREGATED)


_ROLES = {
    calls.VERSION: _EVERYBODY,
    calls.SERVICE_LIST: _EVERYBODY,
    calls.ETCD_MEMBER_LIST: _EVERYBODY | {BACKUP},
    calls.RESOURCE_GET: _EVERYBODY,
    calls.RESOURCE_LIST: _EVERYBODY,
    calls.KUBECONFIG: _ADMINS,
    calls.READ: _ADMINS,
    calls.ETCD_REMOVE_MEMBER: _ADMINS,
    calls.ETCD_SNAPSHOT: frozenset({ADMIN, OPERATOR, BACKUP}),
    # Readers only in maintenance mode, which the handler sees to.
    calls.APPLY_CONFIGURATION: frozenset({ADMIN, READER}),
    calls.BOOTSTRAP: _ADMINS,
    calls.ETCD_RECOVER: _ADMINS,
    calls.REBOOT: _OPERATORS,
    calls.RESET: _ADMINS,
    calls.UPGRADE_LEGACY: _ADMINS,
    calls.GENERATE_CLIENT_CONFIGURATION: _ADMINS,
    calls.IMAGE_PULL: _OPERATORS,
    calls.LIFECYCLE_UPGRADE: _ADMINS,
}

METHODS = {
    method.path: method
    for method in (
        *(
            Method(
                path=call.path,
                request=call.request,
                reply=call.reply,
                streams=call.streams,
                uploads=call.uploads,
                roles=roles,
            )
            for call, roles in _ROLES.items()
        ),
        Method(
            path="/storage.StorageService/Disks",
            request="machine.Empty",
            reply="storage.DisksResponse",
            streams=False,
            roles=_EVERYBODY,
        ),
    )
}
