"""ApplyConfiguration: validation, what a change requires, and the five modes.

Order of the checks, codes and texts are those of Talos v1.13.9's handler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lab.machines.checker import MachineChange
from lab.machines.config_view import Config
from lab.machines.failing import NOT_AUTHORIZED, refusal
from lab.machines.methods import ADMIN
from talos.api.errors import Code
from talos.api.messages import new
from talos.api.results import ApplyMode

if TYPE_CHECKING:
    from lab.machines.machine import Machine

_TRY_TIMEOUT_S = 60.0
_LIVE = "Applied configuration without a reboot"
_REBOOT = "Applied configuration with a reboot"
_STAGED = "Staged configuration to be applied after the next reboot"


def apply_configuration(machine: Machine, request: Any, roles: frozenset[str]) -> Any:
    """Handle one request; RpcError for a refusal."""
    if not machine.applying.acquire(blocking=False):
        raise refusal(Code.FAILED_PRECONDITION, "another apply configuration is already in progress")
    try:
        if machine.going_down:
            raise refusal(
                Code.FAILED_PRECONDITION,
                "configuration was already applied and node is rebooting, "
                "cannot apply more configuration changes until next reboot",
            )
        return _apply(machine, request, roles)
    finally:
        machine.applying.release()


def _apply(machine: Machine, request: Any, roles: frozenset[str]) -> Any:
    in_maintenance = machine.in_maintenance
    if not in_maintenance and ADMIN not in roles:
        raise refusal(Code.PERMISSION_DENIED, NOT_AUTHORIZED)
    if request.mode not in list(ApplyMode):
        raise refusal(Code.UNKNOWN, f"incorrect mode '{request.mode}' specified for the apply config call")
    asked = ApplyMode(request.mode)
    if asked is not ApplyMode.TRY:
        machine.stop_trying()
    warnings = _validated(machine, request.data, in_maintenance=in_maintenance)
    before = machine.config.source if machine.config is not None else b""
    change = machine.site.checker.change(before, request.data)
    mode, details, because = _settled(asked, change, in_maintenance=in_maintenance)
    if request.dry_run:
        text = f"Dry run summary:\n{details} (skipped in dry-run).\nConfig diff:\n\n{change.diff or 'No changes.'}"
        return _reply(mode, text)
    machine.log(f"apply config request: mode {asked.name.lower()}, as {mode.name.lower()}")
    config = Config(request.data)
    if in_maintenance:
        machine.point("apply")
        machine.take_first_config(config)
    elif mode is ApplyMode.TRY:
        timeout = request.try_mode_timeout
        timeout_s = timeout.seconds + timeout.nanos / 1e9 if request.HasField("try_mode_timeout") else _TRY_TIMEOUT_S
        details += (
            "\nThe config is applied in 'try' mode and will be automatically reverted back in "
            f"{_go_duration(timeout_s)}"
        )
        machine.keep_trying(config, timeout_s)
    else:
        machine.store.save_config(request.data)
        machine.point("apply")
        if mode is ApplyMode.NO_REBOOT:
            machine.take_live(config)
        elif mode is ApplyMode.REBOOT:
            machine.go_down("rebooting", lambda session: machine.restart(session, by=machine.restarts_by()))
    return _reply(mode, details + because, warnings)


def _validated(machine: Machine, config: bytes, *, in_maintenance: bool) -> tuple[str, ...]:
    verdict = machine.site.checker.validate(config)
    if verdict.errors:
        count = len(verdict.errors)
        listed = "".join(f"\n\t* {error}" for error in verdict.errors)
        text = f"{count} error{'s' if count > 1 else ''} occurred:{listed}\n\n"
        raise refusal(Code.INVALID_ARGUMENT, text)
    if not verdict.complete and not in_maintenance:
        raise refusal(
            Code.INVALID_ARGUMENT,
            "the applied machine configuration doesn't contain v1alpha1 config, "
            "did you mean to patch the machine config instead?",
        )
    return verdict.warnings


def _settled(asked: ApplyMode, change: MachineChange, *, in_maintenance: bool) -> tuple[ApplyMode, str, str]:
    """The mode that applies, its message, and the reason for that mode."""
    live = change.live or in_maintenance
    if asked is ApplyMode.STAGED:
        return asked, _STAGED, ""
    if asked is ApplyMode.REBOOT:
        return (ApplyMode.NO_REBOOT, _LIVE, "") if in_maintenance else (asked, _REBOOT, "")
    if asked is ApplyMode.AUTO:
        return (ApplyMode.NO_REBOOT, _LIVE, "") if live else (ApplyMode.REBOOT, _REBOOT, f": {change.why}")
    if not live:
        raise refusal(Code.INVALID_ARGUMENT, change.why)
    return asked, _LIVE, ""


def _reply(mode: ApplyMode, details: str, warnings: tuple[str, ...] = ()) -> Any:
    message = {"mode": mode.value, "mode_details": details, "warnings": list(warnings)}
    return new("machine.ApplyConfigurationResponse", messages=[message])


def _go_duration(seconds: float) -> str:
    """As Go prints a duration of at most hours: 1m0s."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    start = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{start}{rest:g}s"
