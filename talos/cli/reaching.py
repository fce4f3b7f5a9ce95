"""Finds out the state of a machine: configured and ours, or in maintenance mode, or of another cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from floor.problems import WrongValueError
from talos.api.client import MachineClient, connect
from talos.api.errors import DeniedError, UntrustedError
from talos.api.tls import FirstContact, Pinned, Trust
from talos.cli import inputs
from talos.cli.failures import InputError, OtherOwnerError
from talos.cli.inputs import Address
from talos.cli.options import MachineOptions
from talos.cli.waiting import POLL_S, PendingError, Watch, pause_s, seconds
from talos.secrets import variables

# Commands wait and look again by themselves, so the client need not.
_ATTEMPTS = 2
State = Literal["configured", "maintenance"]
# Talos does something else with the machine already; what it is asked now would be lost or refused.
PASSING_STAGES = frozenset({"installing", "rebooting", "shutting down", "resetting", "upgrading"})


@dataclass(frozen=True)
class Contact:
    """A machine that answered, and how."""

    client: MachineClient
    state: State


@dataclass(frozen=True)
class Reach:
    """One machine, and whom we take it for."""

    name: str
    address: Address
    through: Address | None
    ours: Trust | None
    unconfigured: Trust | None
    """How to talk to it in maintenance mode; None: not at all."""
    call_timeout_s: float | None = None
    """No single call may take longer; None: each kind of call has its own limit alone."""
    poll_s: float = POLL_S
    """The pause between two looks, and the longest one before a call is repeated."""

    def watch(self, timeout_s: float) -> Watch:
        """A deadline for what a command waits for on this machine."""
        return Watch(self.name, timeout_s=timeout_s, poll_s=self.poll_s)

    def peer(self, name: str, address: Address, *, through: Address | None = None) -> Reach:
        """Another machine of the same cluster, by the same credentials and limit."""
        return replace(self, name=name, address=address, through=through, unconfigured=None)

    @contextmanager
    def contact(self, watch: Watch) -> Iterator[Contact]:
        """The machine, as soon as it answers; closes the connection afterwards.

        PendingError where it shows another certificate than when it answered in maintenance mode.
        """
        contact = watch.until("for an answer", self._look)
        try:
            yield contact
        except (UntrustedError, DeniedError):
            if contact.state == "configured":
                raise
            # Each call has a connection of its own, so a machine may leave maintenance mode between two calls.
            raise PendingError("it leaves maintenance mode") from None
        finally:
            contact.client.close()

    @contextmanager
    def configured(self) -> Iterator[MachineClient]:
        """A client for the machine with its config; asks nothing yet."""
        if self.ours is None:
            raise InputError("no talosconfig", fix=f"give one by --talosconfig or ${variables.TALOSCONFIG}")
        with self._client(self.ours, self.through) as client:
            yield client

    def in_maintenance(self, trust: Trust) -> bool:
        """Whether the machine answers in maintenance mode. MachineApiError while it does not answer at all."""
        return bool(self.maintenance_key(trust))

    def maintenance_key(self, trust: Trust) -> str:
        """The fingerprint of the key of a machine that answers in maintenance mode, or nothing; as `in_maintenance`."""
        with self._client(trust, None) as client:
            try:
                return client.shown_key if client.machine_status().stage == "maintenance" else ""
            except DeniedError:
                return ""

    def _client(self, trust: Trust, through: Address | None) -> MachineClient:
        to = through or self.address
        return connect(
            to.host,
            trust,
            node=self.name,
            port=to.port,
            forward_to=self.address.host if through else None,
            attempts=_ATTEMPTS,
            call_timeout_s=self.call_timeout_s,
            longest_pause_s=self.poll_s,
        )

    def _look(self) -> Contact:
        # Ours first: a machine that proves to be ours is never spoken to without proof.
        if self.ours is not None:
            try:
                return self._look_configured(self.ours)
            except UntrustedError:
                if self.unconfigured is None:
                    raise
        if self.unconfigured is None:
            raise InputError(
                "neither credentials nor a way into maintenance mode",
                fix=f"give --talosconfig or ${variables.TALOSCONFIG}; or --fingerprint or --insecure if new",
            )
        try:
            return self._look_unconfigured(self.unconfigured)
        except OtherOwnerError as verdict:
            if self.ours is None:
                raise
            other_owner = verdict
        # It may have booted its config between the two looks, which is no sign of another owner.
        try:
            return self._look_configured(self.ours)
        except UntrustedError:
            raise other_owner from None

    def _look_configured(self, ours: Trust) -> Contact:
        client = self._client(ours, self.through)
        try:
            client.version()
        except BaseException:
            client.close()
            raise
        return Contact(client, "configured")

    def _look_unconfigured(self, trust: Trust) -> Contact:
        client = self._client(trust, None)
        try:
            stage = client.machine_status().stage
        except UntrustedError as error:
            client.close()
            raise OtherOwnerError(
                f"{self.name}: {error.cause}; it is neither a machine of the talosconfig's cluster nor the one whose "
                "fingerprint was given",
                fix="compare the fingerprint on the machine's console (it changes at each boot), and the address",
            ) from None
        except DeniedError:
            client.close()
            raise OtherOwnerError(
                f"{self.name}: it has a config already, and not of the talosconfig's cluster",
                fix="check the address and the talosconfig; to take the machine over, reset it with its own cluster's",
            ) from None
        except BaseException:
            client.close()
            raise
        if stage != "maintenance":
            client.close()
            raise PendingError(f"it is {stage}, without a config of this cluster")
        return Contact(client, "maintenance")


def wait_up(machine: Reach, boot_before: str = "") -> str:
    """The boot id of a machine that has booted its config, after the boot of that id; PendingError until then."""
    with machine.configured() as client:
        stage = client.machine_status().stage
        if stage not in {"booting", "running"}:
            # A disk that Talos cannot make stops an install, and nothing else shows it.
            failed = [f"{volume.id} is failed: {volume.error}" for volume in client.volumes() if volume.error]
            raise PendingError("; ".join([f"it is {stage}", *failed]))
        boot_id = client.boot_id()
    if boot_id == boot_before:
        raise PendingError("it has not gone down yet")
    return boot_id


def reach(options: MachineOptions) -> Reach:
    """The machine that the options name."""
    credentials = inputs.talosconfig(options.talosconfig, options.context)
    return Reach(
        name=options.node,
        address=Address.parse(options.address),
        through=Address.parse(options.through) if options.through else None,
        ours=credentials.identity if credentials else None,
        unconfigured=_unconfigured(options),
        call_timeout_s=seconds(options.call_timeout) if options.call_timeout else None,
        poll_s=pause_s(options.poll),
    )


def _unconfigured(options: MachineOptions) -> Trust | None:
    if options.insecure and options.fingerprint is not None:
        raise InputError("--insecure: not allowed with --fingerprint", fix="leave one of them out")
    if options.insecure:
        return FirstContact()
    try:
        return Pinned(options.fingerprint) if options.fingerprint else None
    except WrongValueError as error:
        raise InputError(error.problem.sentence, fix=error.problem.fix) from None
