"""The runner: follows the API server's pods and gives each one on an emulated node a worker."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil

from lab.paths import Lab
from lab.runner import podspec, survivors
from lab.runner.api import KubeApi
from lab.runner.container import find_bwrap
from lab.runner.env import Lookup, service_links
from lab.runner.events import EventLog
from lab.runner.network import PodNetworks
from lab.runner.probes import Prober
from lab.runner.pulling import ImageSource
from lab.runner.state import Object
from lab.runner.survivors import SurvivingPod
from lab.runner.watch import Reflector
from lab.runner.worker import PodNode, PodWorker, Services

_LOG = logging.getLogger(__name__)
EMULATED_NODE_ANNOTATION = "kwok.x-k8s.io/node"
_TICK_S = 20.0


def is_on(node: Object) -> bool:
    """Whether an emulated machine that is on is behind the node."""
    return bool((node["metadata"].get("annotations") or {}).get(EMULATED_NODE_ANNOTATION) == "fake")


def boot_id(node: Object) -> str:
    """Another one after each boot of the machine."""
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get("bootID", ""))


def node_facts(node: Object) -> PodNode | None:
    """What pods need of the node; None while it is off, or has no address or podCIDR yet."""
    status = node.get("status") or {}
    addresses = [item["address"] for item in status.get("addresses") or [] if item["type"] == "InternalIP"]
    cidr = node["spec"].get("podCIDR")
    if not is_on(node) or not addresses or not cidr:
        return None
    return PodNode(boot=boot_id(node), host_ip=addresses[0], pod_cidr=cidr, allocatable=status.get("allocatable") or {})


class Runner:
    """All pods of the lab's nodes."""

    def __init__(self, lab: Lab, api: KubeApi, *, images: ImageSource, restart_base_s: float) -> None:
        self._lab = lab
        self._services = Services(
            lab=lab,
            api=api,
            networks=PodNetworks(lab),
            prober=Prober(),
            events=EventLog(api),
            images=images,
            bwrap=find_bwrap(),
            restart_base_s=restart_base_s,
        )
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[str, Object] = {}
        # Pods whose life here is over; late news of them must not start them again.
        self._ended: set[str] = set()
        # Boot id by node that is on: pods of a node that goes down, or was down unseen, end at once and begin again.
        self._boots: dict[str, str] = {}
        self._interrupted: set[str] = set()
        # Pods of an earlier runner that are not requested yet.
        self._survivors: dict[str, SurvivingPod] = {}
        self._nodes = Reflector(api, "/api/v1/nodes", self._on_node)
        self._secrets = Reflector(api, "/api/v1/secrets", self._on_source)
        self._config_maps = Reflector(api, "/api/v1/configmaps", self._on_source)
        self._service_objects = Reflector(api, "/api/v1/services", lambda *_: None)
        self._pods = Reflector(api, "/api/v1/pods", self._on_pod)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. Then every container ends at once; the Pod objects stay, as when a node goes down.

        A runner that fails or is killed leaves its pods to its successor.
        """
        await self._take_over()
        sources = [self._nodes, self._secrets, self._config_maps, self._service_objects]
        background = [asyncio.create_task(source.run()) for source in sources]
        background += [asyncio.create_task(self._services.events.run()), asyncio.create_task(self._tick())]
        try:
            stopping = asyncio.create_task(stop.wait())
            synced = asyncio.create_task(self._wait_synced(sources))
            await asyncio.wait([stopping, synced], return_when=asyncio.FIRST_COMPLETED)
            # Pods come last: a worker must find its node, Secrets and Services.
            background.append(asyncio.create_task(self._pods.run()))
            dropping = asyncio.create_task(self._drop_unclaimed())
            _LOG.info("lab pod runner is ready")
            ended, _ = await asyncio.wait([stopping, *background], return_when=asyncio.FIRST_COMPLETED)
            for task in ended - {stopping}:
                # None of them ends by itself: a runner that no longer follows the API server must not go on.
                task.result()
            dropping.cancel()
        except Exception:  # noqa: BLE001 - logged, and the process ends
            _LOG.exception("the pod runner fails")
            logging.shutdown()
            # Not unwound, which would end the pods.
            os._exit(1)
        finally:
            for task in background:
                task.cancel()
            await self._end_all()
            await self._services.prober.close()

    @staticmethod
    async def _wait_synced(sources: list[Reflector]) -> None:
        for source in sources:
            await source.synced.wait()

    async def _take_over(self) -> None:
        """Look after the pods of a killed runner, and remove what else it left behind."""
        self._lab.make_folders()
        self._survivors = survivors.find(self._lab)
        for uid, pod in self._survivors.items():
            self._services.networks.addresses.keep(uid, pod.record.address)
        survivors.end_all_but(self._lab, self._survivors)
        await self._services.networks.sweep({pod.record.network for pod in self._survivors.values()})
        if self._survivors:
            _LOG.info("%d pods of an earlier runner are still there", len(self._survivors))

    async def _drop_unclaimed(self) -> None:
        """End pods of an earlier runner that have been deleted since, or whose node is off."""
        await self._pods.synced.wait()
        await self._end_survivors(set(self._survivors))

    async def _end_survivors(self, uids: set[str]) -> None:
        for uid in uids:
            if self._survivors.pop(uid, None):
                survivors.end_pod(self._lab, uid)
                await self._services.networks.remove(uid)
                shutil.rmtree(self._lab.pods / uid, ignore_errors=True)

    async def _end_all(self) -> None:
        await self._end_survivors(set(self._survivors))
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            for worker in self._workers.values():
                worker.tick()

    def _on_node(self, node: Object, gone: bool) -> None:  # noqa: FBT001 - as a watch calls it
        name = node["metadata"]["name"]
        before, now = self._boots.get(name), None if gone or not is_on(node) else boot_id(node)
        if before is not None and before != now:
            self._interrupt_pods(name)
        if now is None:
            self._boots.pop(name, None)
            return
        self._boots[name] = now
        for uid, pod in list(self._waiting.items()):
            if podspec.node_name(pod) == name:
                self._waiting.pop(uid)
                self._on_pod(pod, gone=False)

    def _interrupt_pods(self, node: str) -> None:
        """The node's machine has lost its power: containers are killed without grace, the Pod objects stay."""
        for uid, worker in self._workers.items():
            if podspec.node_name(worker.pod) == node and uid not in self._interrupted:
                _LOG.info("pod %s ends with its node %s", podspec.full_name(worker.pod), node)
                self._interrupted.add(uid)
                self._tasks[uid].cancel()

    def _on_source(self, source: Object, gone: bool) -> None:  # noqa: FBT001 - as a watch calls it
        """A Secret or ConfigMap changed: pods that mount it see the new files. A deleted one stays as it was."""
        if gone:
            return
        key = (source.get("kind") or "", source["metadata"]["name"])
        for worker in self._workers.values():
            same_namespace = worker.pod["metadata"]["namespace"] == source["metadata"]["namespace"]
            if same_namespace and key in podspec.references(worker.pod):
                worker.refresh_volumes()

    def _on_pod(self, pod: Object, gone: bool) -> None:  # noqa: FBT001 - as a watch calls it
        uid = podspec.uid(pod)
        worker = self._workers.get(uid)
        if gone:
            self._waiting.pop(uid, None)
            self._ended.discard(uid)
            if worker:
                worker.removed()
        elif worker:
            worker.update(pod)
        elif uid in self._waiting:
            self._waiting[uid] = pod
        elif podspec.node_name(pod) and not podspec.is_finished(pod) and uid not in self._ended:
            self._begin(pod)

    def _begin(self, pod: Object) -> None:
        uid = podspec.uid(pod)
        node = self._nodes.get("", podspec.node_name(pod))
        facts = node_facts(node) if node else None
        if facts is None:
            self._waiting[uid] = pod
            return
        survivor = self._survivors.get(uid)
        if survivor and survivor.record.boot != facts.boot:
            # Its machine was switched off since; what it ran has ended with it.
            survivor = None
        verb = "goes on" if survivor else "starts"
        _LOG.info("pod %s %s on %s", podspec.full_name(pod), verb, podspec.node_name(pod))
        if survivor:
            self._survivors.pop(uid)
        worker = PodWorker(pod, facts, self._services, self._lookup(pod), self._links(pod), survivor)
        self._workers[uid] = worker
        task = asyncio.create_task(self._run(worker))
        self._tasks[uid] = task
        task.add_done_callback(lambda done: self._on_worker_end(uid, done))

    async def _run(self, worker: PodWorker) -> None:
        if (uid := podspec.uid(worker.pod)) in self._survivors:
            await self._end_survivors({uid})
        await worker.run()

    def _on_worker_end(self, uid: str, task: asyncio.Task[None]) -> None:
        worker = self._workers.pop(uid)
        self._tasks.pop(uid, None)
        known = self._pods.get(worker.pod["metadata"]["namespace"], worker.pod["metadata"]["name"])
        is_known = bool(known) and podspec.uid(known or {}) == uid
        if uid in self._interrupted:
            self._interrupted.discard(uid)
            if known and is_known:
                self._on_pod(known, gone=False)
        elif is_known:
            self._ended.add(uid)
        if not task.cancelled() and (error := task.exception()):
            _LOG.error("worker of pod %s failed", podspec.full_name(worker.pod), exc_info=error)

    def _lookup(self, pod: Object) -> Lookup:
        namespace = pod["metadata"]["namespace"]

        def lookup(kind: str, name: str) -> Object | None:
            return (self._secrets if kind == "Secret" else self._config_maps).get(namespace, name)

        return lookup

    def _links(self, pod: Object) -> dict[str, str]:
        api_server = self._service_objects.get("default", "kubernetes")
        services = [api_server] if api_server else []
        if pod["spec"].get("enableServiceLinks", True):
            services += self._service_objects.in_namespace(pod["metadata"]["namespace"])
        return service_links(services)
