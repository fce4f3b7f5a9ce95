"""What a machine does independently of its system: power, sessions, restarts, faults on request, and its screen.

What runs does so in threads of a session, which lasts from one power-on to the next reboot or loss of power; a
wait in it that outlasts it gets PowerLostError.
"""

from __future__ import annotations

import ssl
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from lab.errors import LabError
from lab.machines.failing import DiedError, PowerLostError
from lab.machines.faults import Faults
from lab.machines.front import Admission, Front, FrontLoop
from lab.machines.spec import MachineSpec, Speed
from lab.machines.state import Store

_ANSWERS_S = 10


class Session:
    """From one power-on to its end."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self.changed = threading.Event()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def end(self) -> None:
        """Everything that waits in it stops."""
        self._over.set()
        self.changed.set()

    def wait(self, seconds: float) -> None:
        """Let time pass; PowerLostError once the session is over."""
        if self._over.wait(seconds):
            raise PowerLostError

    def changes_within(self, seconds: float) -> bool:
        """Wait for another config; whether one came in this time."""
        has_changed = self.changed.wait(seconds)
        if has_changed:
            # Not otherwise: a change that came after the wait would be lost.
            self.changed.clear()
        self.wait(0)
        return has_changed


class PoweredMachine(ABC):
    """A machine that is switched off until `power_on`, whatever its state holds."""

    def __init__(self, spec: MachineSpec, folder: Path, loop: FrontLoop, speed: Speed) -> None:
        self.spec, self.speed = spec, speed
        self.name, self.address = spec.name, spec.address
        self.store = Store(folder)
        self.faults = Faults(self.store.faults)
        self.front = Front(loop, spec.address, spec.port)
        self._lock = threading.RLock()
        self._session: Session | None = None
        self.stage = "unknown"
        self.going_down = False
        self.clear()

    @abstractmethod
    def clear(self) -> None:
        """Forget what is not on disk."""

    @abstractmethod
    def boot(self, session: Session) -> None:
        """Run until the session ends."""

    @abstractmethod
    def lost(self, why: str) -> None:
        """Power is about to go, or a restart to begin: notify all who rely on the machine."""

    def session(self) -> Session:
        """The session that is on; PowerLostError without power."""
        session = self._session
        if session is None or session.is_over:
            raise PowerLostError
        return session

    def now(self) -> datetime:
        """By its own clock."""
        return datetime.now(UTC) + timedelta(seconds=self.faults.clock_skew_s())

    def log(self, text: str) -> None:
        """Print a line on the machine's screen."""
        with self._lock, self.store.console.open("a") as console:
            console.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} [emulated talos] {text}\n")

    def power_on(self) -> None:
        """Start it; nothing happens when it is on."""
        with self._lock:
            if self._session is None or self._session.is_over:
                self._begin(late_s=0)

    def resume(self) -> None:
        """The emulator is back: a machine that was on has been on, and did not boot meanwhile."""
        with self._lock:
            disks = self.store.disks
            if disks.powered and self._session is None:
                # A restart that the emulator's end cut off is made up for.
                self._begin(late_s=0, boots=not disks.boot_id or disks.next_boot is not None)

    def power_off(self, why: str = "the power was switched off") -> None:
        """Cut the power."""
        with self._lock:
            self.store.disks.powered = False
            self.store.save()
            self._end(why)

    def stop(self) -> None:
        """The emulator ends; the state on disk still has the machine on."""
        with self._lock:
            if self._session is not None:
                self._session.end()
        self.front.dispose()

    def restart(self, session: Session, *, by: Literal["firmware", "kexec"] = "firmware") -> None:
        """End this session and begin the next, unless another caller has ended it."""
        late_s = self.faults.late_s()
        with self._lock:
            session.wait(0)
            self._end("the machine restarts")
            self._begin(late_s, by=by)

    def job(self, what: Callable[[Session], None]) -> None:
        """Do something in the background, for as long as the session lasts."""
        session = self.session()
        threading.Thread(target=self._guarded, args=(what, session), name=f"{self.name}-job", daemon=True).start()

    def go_down(self, stage: str, then: Callable[[Session], None]) -> None:
        """Begin to reboot or so: no more configs are taken, and the answer to the call goes out first."""
        self.going_down = True
        self.stage = stage

        def down(session: Session) -> None:
            self.settle(session)
            then(session)

        self.job(down)

    def settle(self, session: Session) -> None:
        """Let the calls that came so far be answered and their connections end, before the front changes or goes."""
        session.wait(self.speed.going_down_s)
        self.front.calls.wait(_ANSWERS_S)
        session.wait(0)
        self.front.drain()
        session.wait(0)

    def enter(self, session: Session, stage: str) -> None:
        """Be in a stage, unless the session is over."""
        with self._lock:
            session.wait(0)
            self.stage = stage

    def listen(self, session: Session, tls: ssl.SSLContext, admit: Admission) -> None:
        """Open the front, as soon as its port is free and unless the session is over.

        A process that is just being started holds the port for a moment: until it has its program, it has our sockets.
        """
        failure = ""
        while True:
            try:
                with self._lock:
                    session.wait(0)
                    self.front.open(tls, admit)
                return
            except LabError as error:
                if str(error) != failure:
                    failure = str(error)
                    self.log(failure)
            session.wait(self.speed.retry_s)

    def point(self, name: str) -> None:
        """Die here if that was asked for."""
        fault = self.faults.death(name)
        if fault is None:
            return
        self.log(f"dies during {name}, on request")
        self.power_off(f"the machine died during {name}")
        if fault.seconds:
            timer = threading.Timer(fault.seconds, self.power_on)
            timer.daemon = True
            timer.start()
        raise DiedError

    def _begin(self, late_s: float, *, boots: bool = True, by: str = "power") -> None:
        disks = self.store.disks
        disks.powered = True
        if boots:
            disks.boot_id = str(uuid.uuid4())
            disks.boots = [*disks.boots, by]
            if disks.next_boot is not None:
                disks.installed, disks.next_boot = disks.next_boot, None
        self.store.save()
        self._forget()
        session = self._session = Session()

        def live(session: Session) -> None:
            session.wait(self.speed.boot_s + late_s)
            self.boot(session)

        threading.Thread(target=self._guarded, args=(live, session), name=self.name, daemon=True).start()

    def _end(self, why: str) -> None:
        if self._session is None or self._session.is_over:
            return
        self.lost(why)
        # A client that sees its connection break must not find the earlier stage.
        self.stage = "unknown"
        self._session.end()
        self.front.close()
        self._forget()

    def _forget(self) -> None:
        self.stage, self.going_down = "unknown", False
        self.clear()

    def _guarded(self, what: Callable[[Session], None], session: Session) -> None:
        try:
            what(session)
        except PowerLostError:
            pass
        except LabError as error:
            self.log(f"cannot go on: {error}")
