"""One container of a pod over its whole life: start, hooks, probes, restarts with back-off, and its end."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

import aiohttp

from lab.runner import podspec, probes
from lab.runner.backoff import RestartBackoff, RetryBackoff
from lab.runner.container import Instance
from lab.runner.deadline import Deadline
from lab.runner.env import MissingReferenceError
from lab.runner.podfiles import VolumeError
from lab.runner.state import ContainerState, Object, Running, Terminated, Waiting, timestamp

# A container whose Secret or ConfigMap is missing is tried again this often.
_START_RETRY_S = 2.0
# After a preStop hook used up the grace, SIGTERM still gets this long before SIGKILL.
_LEAST_GRACE_S = 2.0
_SHORTEST_GRACE_S = 0.05
_MESSAGE_LIMIT = 4096


class ImageError(Exception):
    """No local program for the image; waiting does not help."""


class PullError(Exception):
    """The registry does not give the image, but may do so later."""


class PodContext(Protocol):
    """What a container needs of its pod."""

    pod: Object
    prober: probes.Prober

    @property
    def pod_ip(self) -> str: ...

    def changed(self) -> None: ...

    def event(self, kind: str, reason: str, message: str) -> None: ...

    def started(self, container: Object, instance: Instance, run: int, started_at: str) -> None: ...

    async def launch(self, container: Object, run: int) -> Instance: ...

    def termination_message(self, container: Object) -> str: ...


class ContainerLoop:
    """Runs one container until it is done or stopped. `started` is set once its startup probe has passed."""

    def __init__(
        self,
        context: PodContext,
        spec: Object,
        state: ContainerState,
        backoff: RestartBackoff,
        surviving: Instance | None = None,
    ) -> None:
        self._context = context
        self._spec = spec
        self.state = state
        self._backoff = backoff
        self._run_number = state.restarts
        self.started = asyncio.Event()
        self._stopping = asyncio.Event()
        self._instance = surviving
        self._surviving = surviving
        self._liveness_end: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self.state.name

    async def run(self) -> None:
        """Until the container needs no further run."""
        policy = podspec.restart_policy(self._context.pod)
        while self._surviving or not self._stopping.is_set():
            begun = time.monotonic()
            code = await self._one_run()
            if code is None or self._stopping.is_set() or not podspec.should_restart(policy, self.state.kind, code):
                return
            await self._back_off(time.monotonic() - begun)
            self._run_number += 1

    async def stop(self, deadline: Deadline, turn: Callable[[], Awaitable[None]] | None = None) -> None:
        """End the container for good: preStop, its turn, SIGTERM, and SIGKILL at the deadline."""
        self._stopping.set()
        if self._instance:
            await self._end(self._instance, deadline, turn)

    async def _back_off(self, ran_s: float) -> None:
        delay = self._backoff.delay(ran_s)
        if delay <= 0:
            return
        if isinstance(self.state.current, Terminated):
            self.state.last = self.state.current
        text = f"back-off {delay:g}s restarting failed container={self.name}"
        self.state.current = Waiting(reason="CrashLoopBackOff", message=text)
        self._context.changed()
        self._context.event("Warning", "BackOff", text)
        await self._pause(delay)

    async def _one_run(self) -> int | None:
        surviving, self._surviving = self._surviving, None
        instance = surviving or await self._start()
        if instance is None:
            return None
        if surviving and isinstance(self.state.current, Running):
            started_at = self.state.current.started_at
        else:
            started_at = self._note_start(instance)
        self.state.container_id = f"lab://{podspec.uid(self._context.pod)}/{self.name}/{self.state.restarts}"
        self._context.changed()
        watching = asyncio.create_task(self._after_start(instance, is_new=surviving is None))
        try:
            code = await instance.exited
        finally:
            watching.cancel()
        self._instance = None
        self.state.ready = self.state.started = False
        if self.state.kind == "init":
            self.state.ready = code == 0
        self.state.current = Terminated(
            exit_code=code,
            reason="Completed" if code == 0 else "Error",
            message=self._message(instance, code),
            started_at=started_at,
            finished_at=timestamp(),
            container_id=self.state.container_id,
        )
        self._context.changed()
        return code

    def _note_start(self, instance: Instance) -> str:
        if self._stopping.is_set():
            # The pod's end came while the program was being started: nothing of it has begun yet.
            instance.kill()
        started_at = timestamp()
        if isinstance(self.state.current, Terminated):
            self.state.last = self.state.current
        self.state.current = Running(started_at=started_at)
        self.state.restarts = self._run_number
        self._context.started(self._spec, instance, self._run_number, started_at)
        return started_at

    def _message(self, instance: Instance, code: int) -> str:
        text = self._context.termination_message(self._spec)
        if not text and code != 0 and self._spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            text = instance.log_tail()
        return text[-_MESSAGE_LIMIT:]

    async def _start(self) -> Instance | None:
        """Start the program, as often as it takes; None when the pod stops first."""
        pulls = RetryBackoff(base_s=self._backoff.base_s, cap_s=self._backoff.cap_s)
        while not self._stopping.is_set():
            try:
                self._instance = await self._context.launch(self._spec, self._run_number)
                return self._instance
            except PullError as error:
                self._wait("ErrImagePull", str(error))
                await self._pause(self._backoff.base_s)
                self._wait("ImagePullBackOff", f'Back-off pulling image "{self.state.image}": ErrImagePull: {error}')
                await self._pause(pulls.delay())
                continue
            except ImageError as error:
                self._wait("ErrImagePull", str(error))
            except MissingReferenceError as error:
                self._wait("CreateContainerConfigError", str(error))
            except (VolumeError, OSError, KeyError) as error:
                self._wait("RunContainerError", f"{type(error).__name__}: {error}")
            await self._pause(_START_RETRY_S)
        return None

    def _wait(self, reason: str, text: str) -> None:
        """Show what the start waits for; the same again is no news."""
        waiting = Waiting(reason=reason, message=text)
        if self.state.current == waiting:
            return
        if isinstance(self.state.current, Terminated):
            self.state.last = self.state.current
        self.state.current = waiting
        self._context.changed()
        self._context.event("Warning", "BackOff" if reason == "ImagePullBackOff" else "Failed", text)

    async def _pause(self, seconds: float) -> None:
        """So long, or until the pod stops."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _after_start(self, instance: Instance, *, is_new: bool) -> None:
        """The postStart hook, then the probes, until the run ends."""
        hook = (self._spec.get("lifecycle") or {}).get("postStart")
        if hook and is_new:
            outcome = await self._hook(hook, instance, float("inf"))
            if not outcome.ok:
                self._context.event("Warning", "FailedPostStartHook", outcome.message)
                self._restart_after_failure(instance, f"postStart hook of {self.name} failed", None)
                return
        if self.state.kind == "init":
            return
        startup = self._spec.get("startupProbe")
        if startup and not self.state.started:
            await self._watch("Startup", startup, instance, until_ok=True)
        self.state.started = True
        self.started.set()
        if not self._spec.get("readinessProbe"):
            self.state.ready = True
        self._context.changed()
        loops = [
            self._watch(kind, self._spec[field], instance, until_ok=False)
            for kind, field in (("Readiness", "readinessProbe"), ("Liveness", "livenessProbe"))
            if self._spec.get(field)
        ]
        await asyncio.gather(*loops)

    async def _watch(self, kind: str, probe: Object, instance: Instance, *, until_ok: bool) -> None:
        """Check over and over; a new verdict is acted on."""
        count = probes.threshold(probe)
        period = float(probe.get("periodSeconds", 10))
        await asyncio.sleep(float(probe.get("initialDelaySeconds", 0)))
        while True:
            if kind != "Readiness" and self._stopping.is_set():
                # A pod that ends is not restarted any more, but stays ready for as long as it answers.
                return
            began = time.monotonic()
            outcome = await self._context.prober.check(probe, self._spec, self._context.pod_ip, instance)
            if not outcome.ok:
                self._context.event("Warning", "Unhealthy", f"{kind} probe failed: {outcome.message}")
            if count.add(ok=outcome.ok):
                if kind == "Readiness":
                    self.state.ready = outcome.ok
                    self._context.changed()
                elif not outcome.ok:
                    text = f"Container {self.name} failed {kind.lower()} probe, will be restarted"
                    self._restart_after_failure(instance, text, probe.get("terminationGracePeriodSeconds"))
                    return
                if until_ok and outcome.ok:
                    return
            await asyncio.sleep(max(0.0, period - (time.monotonic() - began)))

    def _restart_after_failure(self, instance: Instance, text: str, grace_s: float | None) -> None:
        self._context.event("Normal", "Killing", text)
        deadline = Deadline()
        spec_grace = self._context.pod["spec"].get("terminationGracePeriodSeconds", 30)
        deadline.within(float(spec_grace if grace_s is None else grace_s))
        # Kept, so that the task is not collected; it outlives the probe that started it.
        self._liveness_end = asyncio.create_task(self._end(instance, deadline, None))

    async def _end(self, instance: Instance, deadline: Deadline, turn: Callable[[], Awaitable[None]] | None) -> None:
        hook = (self._spec.get("lifecycle") or {}).get("preStop")
        if hook and deadline.remaining_s() > 0 and not instance.exited.done():
            outcome = await deadline.limit(self._hook(hook, instance, deadline.remaining_s()))
            if outcome is None or not outcome.ok:
                text = outcome.message if outcome else "grace period is over"
                self._context.event("Warning", "FailedPreStopHook", f"preStop hook of {self.name}: {text}")
        if turn is not None:
            await deadline.limit(turn())
        instance.signal(signal.SIGTERM)
        used_up = deadline.remaining_s() <= 0
        with suppress(TimeoutError):
            if used_up:
                async with asyncio.timeout(_LEAST_GRACE_S if hook else _SHORTEST_GRACE_S):
                    await asyncio.shield(instance.exited)
        await deadline.limit(asyncio.shield(instance.exited))
        instance.kill()
        # The next start must not meet the old program: its socket, its port, its lock.
        await asyncio.shield(instance.exited)

    async def _hook(self, hook: Object, instance: Instance, limit_s: float) -> probes.Outcome:
        """Run a postStart or preStop hook."""
        timeout = min(limit_s, 3600.0)
        try:
            if action := hook.get("exec"):
                finished = await instance.execute(list(action["command"]), timeout)
                return probes.Outcome(ok=finished.code == 0, message=f"exit {finished.code}: {finished.output[-500:]}")
            if action := hook.get("httpGet"):
                return await self._context.prober.http_get(action, self._spec, self._context.pod_ip, timeout)
            if action := hook.get("sleep"):
                await asyncio.sleep(float(action["seconds"]))
        except TimeoutError:
            return probes.Outcome(ok=False, message=f"not done within {timeout:g} s")
        except (OSError, aiohttp.ClientError, KeyError) as error:
            return probes.Outcome(ok=False, message=f"{type(error).__name__}: {error}")
        return probes.Outcome(ok=True)
