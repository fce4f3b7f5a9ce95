"""Faults on request: what an emulated machine does wrong until the fault is cleared.

They are a JSON list in the machine's `faults.json`, read again at each use, so that any program can set them and they
outlive the emulator. A fault with `times` ends after as many uses.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from lab.errors import LabError
from talos.api.errors import Code

Kind = Literal[
    "slow", "refuse", "late", "die", "clock-skew", "installer-fails", "service-down", "module-missing", "disk-used"
]
KINDS: tuple[str, ...] = get_args(Kind)
CONNECT = "connect"
NAMING: tuple[Kind, ...] = ("service-down", "module-missing", "disk-used")
"""Faults of what `names` lists."""
# Where a machine can be made to die: half-way through each of these.
POINTS = ("apply", "install", "upgrade", "reboot", "bootstrap", "reset")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault.

    - slow: every call, or those in `calls`, takes `seconds` longer
    - refuse: calls get the status `code` with `message`; a call named `connect` means the whole port
    - late: a reboot takes `seconds` longer
    - die: the power goes half-way through `at`; it comes back after `seconds`, or never where that is 0
    - clock-skew: the machine's clock is `seconds` ahead (or behind), and never in sync
    - installer-fails: installing and upgrading end with an error
    - service-down: Talos's services in `names`, such as ext-nvidia-fabricmanager, do not run
    - disk-used: the disks of the user volumes in `names` are not blank, so none is made there
    - module-missing: the kernel modules in `names` are not loaded; the node follows when the machine boots
    """

    kind: Kind
    seconds: float = 0.0
    calls: tuple[str, ...] = ()
    code: str = "UNAVAILABLE"
    message: str = "refused on request"
    at: str = ""
    names: tuple[str, ...] = ()
    times: int | None = None

    def __post_init__(self) -> None:
        """LabError for a kind, code or point that does not exist."""
        for what, got, allowed in (
            ("kind", self.kind, KINDS),
            ("code", self.code, tuple(Code.__members__)),
            ("at", self.at, (*POINTS, "") if self.kind != "die" else POINTS),
        ):
            if got not in allowed:
                raise LabError(f"fault: {what} is {got!r}", fix=f"allowed: {', '.join(filter(None, allowed))}")
        if (self.kind in NAMING) != bool(self.names):
            raise LabError(
                f"fault: {self.kind} with names {', '.join(self.names) or 'of nothing'}",
                fix=f"{' and '.join(NAMING)} take names of services, modules or volumes, other faults none",
            )

    def meets(self, call: str) -> bool:
        return call in self.calls or (not self.calls and call != CONNECT)


def parse_fault(fields: dict[str, Any]) -> Fault:
    """A fault of its JSON form; LabError for a key that faults do not have."""
    known = {field.name for field in dataclasses.fields(Fault)}
    if unknown := set(fields) - known or ("kind" not in fields and {"kind"}):
        raise LabError(
            f"fault: wrong or missing key {', '.join(sorted(unknown))}", fix=f"keys: {', '.join(sorted(known))}"
        )
    lists = {key: tuple(fields.get(key, ())) for key in ("calls", "names")}
    return Fault(**{**fields, **lists})


class Faults:
    """The faults of one machine, in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()

    def all(self) -> tuple[Fault, ...]:
        """What is in force; a file that is no list of faults counts as none."""
        try:
            return tuple(parse_fault(fault) for fault in json.loads(self._file.read_text()))
        except (FileNotFoundError, ValueError, TypeError, LabError):
            return ()

    def set(self, faults: tuple[Fault, ...]) -> None:
        """Replace them all."""
        draft = self._file.with_suffix(".draft")
        draft.write_text(json.dumps([dataclasses.asdict(fault) for fault in faults], indent=2))
        draft.replace(self._file)

    def slow_s(self, call: str) -> float:
        """By how much a call is held up."""
        return sum(fault.seconds for fault in self._use("slow", lambda fault: fault.meets(call)))

    def refusal(self, call: str) -> Fault | None:
        """The fault that refuses a call, if one does."""
        return next(iter(self._use("refuse", lambda fault: fault.meets(call))), None)

    def late_s(self) -> float:
        return sum(fault.seconds for fault in self._use("late"))

    def death(self, point: str) -> Fault | None:
        """The fault that kills the machine at a point, if one does."""
        return next(iter(self._use("die", lambda fault: fault.at == point)), None)

    def installer_fails(self) -> bool:
        return bool(self._use("installer-fails"))

    def services_down(self) -> frozenset[str]:
        return self._named("service-down")

    def modules_missing(self) -> frozenset[str]:
        return self._named("module-missing")

    def disks_used(self) -> frozenset[str]:
        return self._named("disk-used")

    def _named(self, kind: Kind) -> frozenset[str]:
        return frozenset(name for fault in self.all() if fault.kind == kind for name in fault.names)

    def clock_skew_s(self) -> float:
        return sum(fault.seconds for fault in self.all() if fault.kind == "clock-skew")

    def _use(self, kind: Kind, fits: Any = lambda _: True) -> list[Fault]:
        with self._lock:
            everything = self.all()
            used = [fault for fault in everything if fault.kind == kind and fits(fault)]
            if any(fault.times is not None for fault in used):
                left = [
                    dataclasses.replace(fault, times=fault.times - 1)
                    if fault in used and fault.times is not None
                    else fault
                    for fault in everything
                ]
                self.set(tuple(fault for fault in left if fault.times is None or fault.times > 0))
            return used
