"""One pod over its whole life on its node: network, volumes, containers in their order, status, and its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from lab.cluster import network
from lab.paths import Lab
from lab.runner import launch, podspec, probes
from lab.runner.adoption import initial_states
from lab.runner.api import TRANSIENT, ApiRefusedError, KubeApi
from lab.runner.backoff import RestartBackoff, RetryBackoff
from lab.runner.container import RUN_MARK, Instance, run_mark
from lab.runner.deadline import Deadline
from lab.runner.env import Lookup, MissingReferenceError, PodFacts, container_env
from lab.runner.events import EventLog
from lab.runner.lifecycle import ContainerLoop
from lab.runner.logs import LogSink
from lab.runner.network import AddressesExhaustedError, PodNetworks
from lab.runner.podfiles import PodFiles, VolumeError
from lab.runner.process import CommandError
from lab.runner.pulling import ImageSource
from lab.runner.records import PodRecord, Records
from lab.runner.sandbox import Mount
from lab.runner.state import ContainerState, Object, Terminated, timestamp
from lab.runner.status import Placement, pod_status
from lab.runner.survivors import SurvivingPod, end_pod

_LOG = logging.getLogger(__name__)
_FORCED_GRACE_S = 1.0
_NOT_FOUND = 404
_TERMINATION_MESSAGE_LIMIT = 4096


@dataclass(frozen=True, kw_only=True)
class PodNode:
    """What a pod needs of its node."""

    boot: str
    host_ip: str
    pod_cidr: str
    allocatable: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Services:
    """What all pods share."""

    lab: Lab
    api: KubeApi
    networks: PodNetworks
    prober: probes.Prober
    events: EventLog
    images: ImageSource
    bwrap: str
    restart_base_s: float


class PodWorker:
    """Makes one pod happen. `update` and `remove` notify it of the Pod object; `run` is its life."""

    def __init__(
        self,
        pod: Object,
        node: PodNode,
        services: Services,
        lookup: Lookup,
        links: dict[str, str],
        survivor: SurvivingPod | None = None,
    ) -> None:
        self.pod = pod
        self.prober = services.prober
        self._node = node
        self._services = services
        self._lookup = lookup
        self._links = links
        self._uid = podspec.uid(pod)
        self._files = PodFiles(services.lab, services.api, pod, lookup)
        self._records = Records(self._files.root)
        self._survivor = survivor
        runs = survivor.runs if survivor else {}
        self._states = initial_states(pod, {name: run.record for name, run in runs.items()})
        self._loops: dict[str, ContainerLoop] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stop = asyncio.Event()
        self._deadline = Deadline()
        self._dirty = asyncio.Event()
        self._refreshing: asyncio.Task[None] | None = None
        self._sent: Object | None = None
        self._object_gone = False
        self._over = False
        self._address = survivor.record.address if survivor else ""
        self._start_time = (pod.get("status") or {}).get("startTime") or timestamp()
        self._note_deletion()

    # What containers ask of their pod.

    @property
    def pod_ip(self) -> str:
        return self._address

    def changed(self) -> None:
        """Something in the status may be new."""
        self._dirty.set()

    def event(self, kind: str, reason: str, message: str) -> None:
        self._services.events.add(self.pod, kind, reason, message)

    def started(self, container: Object, instance: Instance, run: int, started_at: str) -> None:
        """A run has begun: write it down, and report it."""
        self._records.write_run(container["name"], instance.record(run, started_at))
        self.event("Normal", "Started", f"Started container {container['name']}")

    async def launch(self, container: Object, run: int) -> Instance:
        """Start one container.

        Raises ImageError, PullError, MissingReferenceError, VolumeError, KeyError or OSError when it cannot be started
        now.
        """
        program = launch.program_of(container["image"])
        image = await self._services.images.image(container["image"], program)
        self._state_of(container["name"]).image_id = image.id
        files = image.files + launch.added_files(program, container, self._services.lab)
        defaults = launch.default_env(self.pod, container, program)
        env = container_env(self.pod, container, self._facts(), self._lookup, self._links, defaults)
        mounts = self._files.mounts(container, env)
        message_path = container.get("terminationMessagePath", "/dev/termination-log")
        termination = self._files.termination_log(container["name"])
        mounts.append(Mount(source=str(termination), target=message_path))
        sandbox = launch.sandbox_of(self.pod, container, program, files, mounts, env)
        metadata = self.pod["metadata"]
        folder = self._services.lab.logs / "pods" / f"{metadata['namespace']}_{metadata['name']}_{self._uid}"
        log = LogSink(folder / container["name"] / f"{run}.log", self._records.output(container["name"]))
        enter = [] if podspec.uses_host_network(self.pod) else self._services.networks.enter_argv(self._uid)
        # By these, what the program starts is found again, whatever becomes of its parents.
        marks = {
            network.MARK: network.mark(self._services.lab),
            RUN_MARK: run_mark(self._services.lab, self._uid, container["name"], run),
        }
        return await Instance.start(
            sandbox,
            bwrap=self._services.bwrap,
            enter=enter,
            env={**env, **marks},
            log=log,
            status_file=self._records.status_file(container["name"]),
        )

    def _state_of(self, container: str) -> ContainerState:
        return next(state for state in self._states if state.name == container)

    def termination_message(self, container: Object) -> str:
        path = self._files.root / "termination" / container["name"]
        with suppress(OSError):
            return str(path.read_bytes()[:_TERMINATION_MESSAGE_LIMIT].decode(errors="replace"))
        return ""

    # What the runner gives the pod.

    def update(self, pod: Object) -> None:
        """A newer Pod object: labels, conditions of others, or its deletion."""
        if int(pod["metadata"]["resourceVersion"]) < int(self.pod["metadata"]["resourceVersion"]):
            return
        relabelled = any(
            pod["metadata"].get(field) != self.pod["metadata"].get(field) for field in ("labels", "annotations")
        )
        self.pod = pod
        self._note_deletion()
        self.changed()
        if relabelled:
            self.refresh_volumes()

    def removed(self) -> None:
        """The Pod object is gone from the API server; what still runs ends at once."""
        self._object_gone = True
        self._deadline.within(_FORCED_GRACE_S)
        self._stop.set()

    def refresh_volumes(self) -> None:
        """Rewrite content volumes in the background."""
        if self._address and not self._stop.is_set():
            self._refreshing = asyncio.create_task(self._refresh())

    def tick(self) -> None:
        """Now and then: replace tokens near their end."""
        if self._files.token_is_due():
            self.refresh_volumes()

    # Its life.

    async def run(self) -> None:
        """From placement to removal. Cancelled, it ends its containers at once and leaves the object alone.

        Of a pod that survived an earlier runner, the containers go on.
        """
        publisher = asyncio.create_task(self._publish())
        self._take_over()
        try:
            await self._live_until_stopped()
            await self._end_containers()
            self._over = True
            await self._services.networks.until_delivered(self._uid)
            await self._tear_down()
            await self._finish(publisher)
        except asyncio.CancelledError:
            # A node that loses its power reports nothing any more.
            publisher.cancel()
            await self._kill()
            raise
        finally:
            publisher.cancel()

    def _take_over(self) -> None:
        """Go on with the containers of an earlier runner at once: their end may be asked for first of all."""
        runs = self._survivor.runs if self._survivor else {}
        for state, (_, spec) in zip(self._states, podspec.containers(self.pod), strict=True):
            if state.running and state.name in runs:
                self._begin(state, spec, runs[state.name].instance)

    def _note_deletion(self) -> None:
        if podspec.is_deleting(self.pod):
            self._deadline.within(podspec.grace_seconds(self.pod))
            self._stop.set()

    def _facts(self) -> PodFacts:
        return PodFacts(pod_ip=self._address, host_ip=self._node.host_ip, allocatable=self._node.allocatable)

    async def _live_until_stopped(self) -> None:
        living = asyncio.create_task(self._live())
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({living, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if living.done() and (error := living.exception()):
                _LOG.error("pod %s failed in the runner", podspec.full_name(self.pod), exc_info=error)
                self.event("Warning", "Failed", f"the lab pod runner failed: {error!r}")
                await stopped
        finally:
            stopped.cancel()
            living.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await living
        if not podspec.is_deleting(self.pod):
            self._deadline.within(podspec.grace_seconds(self.pod))

    async def _live(self) -> None:
        """Bring everything up in order; return when every container is done for good."""
        self.changed()
        await self._prepare()
        self.changed()
        specs = podspec.containers(self.pod)
        if all(isinstance(state.current, Terminated) for state in self._states if state.kind == "main"):
            return
        for state, (kind, spec) in zip(self._states, specs, strict=True):
            if kind == "init":
                if not isinstance(state.current, Terminated):
                    await (self._tasks.get(state.name) or self._begin(state, spec))
                if not isinstance(state.current, Terminated) or state.current.exit_code != 0:
                    return
            elif kind == "sidecar":
                task = self._tasks.get(state.name) or self._begin(state, spec)
                started = asyncio.create_task(self._loops[state.name].started.wait())
                await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
                started.cancel()
        mains = [
            self._tasks.get(state.name) or self._begin(state, spec)
            for state, (kind, spec) in zip(self._states, specs, strict=True)
            if kind == "main" and not isinstance(state.current, Terminated)
        ]
        if mains:
            await asyncio.wait(mains)

    def _begin(self, state: ContainerState, spec: Object, surviving: Instance | None = None) -> asyncio.Task[None]:
        backoff = RestartBackoff(base_s=self._services.restart_base_s)
        loop = ContainerLoop(self, spec, state, backoff, surviving)
        self._loops[state.name] = loop
        task = asyncio.create_task(loop.run())
        self._tasks[state.name] = task
        return task

    async def _prepare(self) -> None:
        """Network and volumes, tried until they are there."""
        retry, reported_text = RetryBackoff(), ""
        while True:
            try:
                if not self._address:
                    await self._connect()
                    self.changed()
                await self._files.prepare(self._facts(), taken_over=self._survivor is not None)
                return
            except (MissingReferenceError, VolumeError) as error:
                reason, text = "FailedMount", str(error)
            except (CommandError, AddressesExhaustedError) as error:
                reason, text = "FailedCreatePodSandBox", str(error)
            except ApiRefusedError as error:
                reason, text = "FailedMount", f"the API server refused: {error}"
            except TRANSIENT as error:
                reason, text = "FailedMount", f"{type(error).__name__}: {error}"
            if text != reported_text:
                reported_text = text
                self.event("Warning", reason, text)
            await asyncio.sleep(retry.delay())

    async def _connect(self) -> None:
        networks, name = self._services.networks, ""
        if podspec.uses_host_network(self.pod):
            address = self._node.host_ip
        else:
            name, address = networks.name(self._uid), networks.addresses.take(self._uid, self._node.pod_cidr)
            await networks.create(self._uid, address)
        self._records.write_pod(PodRecord(boot=self._node.boot, address=address, network=name))
        self._address = address

    async def _refresh(self) -> None:
        try:
            await self._files.refresh(self.pod, self._facts())
        except (MissingReferenceError, ApiRefusedError, *TRANSIENT) as error:
            self.event("Warning", "FailedMount", f"volume not refreshed: {error}")

    async def _end_containers(self) -> None:
        """All main and init containers at once; sidecars after them, the last started first."""
        running = [loop for loop in self._loops.values() if not self._tasks[loop.name].done()]
        if podspec.is_deleting(self.pod) and running:
            self.event("Normal", "Killing", f"Stopping containers {', '.join(loop.name for loop in running)}")
        order = [loop for loop in running if loop.state.kind == "sidecar"]
        first = [loop for loop in running if loop.state.kind != "sidecar"]
        ends = [self._end(loop, []) for loop in first]
        ends += [self._end(loop, [*first, *order[index + 1 :]]) for index, loop in enumerate(order)]
        await asyncio.gather(*ends)

    async def _end(self, loop: ContainerLoop, before: Sequence[ContainerLoop]) -> None:
        async def turn() -> None:
            if waits := [self._tasks[other.name] for other in before]:
                await asyncio.wait(waits)

        await loop.stop(self._deadline, turn if before else None)
        await self._tasks[loop.name]

    async def _kill(self) -> None:
        """No grace: the runner itself ends."""
        self._deadline.within(0)
        await asyncio.gather(*(loop.stop(self._deadline) for loop in self._loops.values()), return_exceptions=True)
        for task in self._tasks.values():
            task.cancel()
        await self._tear_down()

    async def _tear_down(self) -> None:
        if self._refreshing:
            self._refreshing.cancel()
        end_pod(self._services.lab, self._uid)
        if not podspec.uses_host_network(self.pod):
            try:
                await self._services.networks.remove(self._uid)
            except CommandError:
                _LOG.exception("pod %s", podspec.full_name(self.pod))
        self._files.remove()

    async def _finish(self, publisher: asyncio.Task[None]) -> None:
        """The last status, and for a deleted pod the end of its object."""
        self.changed()
        publisher.cancel()
        await self._until_done(self._send_status)
        if podspec.is_deleting(self.pod) and not self._object_gone:
            await self._until_done(lambda: self._services.api.remove_pod(self.pod))

    async def _publish(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            await self._until_done(self._send_status)

    async def _until_done(self, call: Callable[[], Awaitable[None]]) -> None:
        retry = RetryBackoff()
        while not self._object_gone:
            try:
                await call()
                return
            except ApiRefusedError as refused:
                if refused.code == _NOT_FOUND:
                    return
                _LOG.warning("pod %s: %s", podspec.full_name(self.pod), refused)
            except TRANSIENT as error:
                _LOG.info("pod %s: API server away (%s)", podspec.full_name(self.pod), type(error).__name__)
            await asyncio.sleep(retry.delay())

    async def _send_status(self) -> None:
        placement = Placement(host_ip=self._node.host_ip, pod_ip=self._address, start_time=self._start_time)
        status = pod_status(self.pod, self._states, placement, now=timestamp(), over=self._over)
        if status == self._sent:
            return
        answer = await self._services.api.patch_pod_status(self.pod, status)
        self._sent = status
        if int(answer["metadata"]["resourceVersion"]) > int(self.pod["metadata"]["resourceVersion"]):
            self.pod = answer
            self._note_deletion()
