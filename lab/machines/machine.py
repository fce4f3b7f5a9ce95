"""One emulated Talos machine: boot, maintenance mode, install, and running with its config."""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
import threading
from collections.abc import Callable
from pathlib import Path

from lab.errors import LabError
from lab.machines import certificates, kernel
from lab.machines import volumes as made
from lab.machines.cluster_hooks import ControlPlane
from lab.machines.config_view import Config
from lab.machines.disks import MachineWithDisks
from lab.machines.failing import PowerLostError
from lab.machines.faults import CONNECT
from lab.machines.front import FrontLoop, Roles
from lab.machines.images import pinned
from lab.machines.methods import READER
from lab.machines.node_facts import node_facts, pod_cidr_problem
from lab.machines.node_object import NodeFacts
from lab.machines.power import Session
from lab.machines.spec import MachineSpec
from lab.machines.surroundings import Site
from talos.api.errors import RpcError
from talos.secrets.pki import KeyPair


class Machine(MachineWithDisks):
    """Talos on a machine. What must last is in its Store."""

    def __init__(self, spec: MachineSpec, folder: Path, site: Site, loop: FrontLoop) -> None:
        self.site = site
        self.applying, self.installing = threading.Lock(), threading.Lock()
        self._try_serial = 0
        self._last_failures: dict[str, str] = {}
        super().__init__(spec, folder, loop, site.speed)

    def clear(self) -> None:
        """As PoweredMachine.clear."""
        self.config = None
        self.cri_up = self.etcd_up = self.kubelet_up = self.node_is_ready = False
        self.is_signed = self.running_system.signed
        self._serving_mutual = False

    def lost(self, why: str) -> None:
        """As PoweredMachine.lost: the node is not ready any more, nor the control plane if it was its last."""
        if self.node_is_ready:
            node = self.hostname
            self._done("node", lambda: self.site.cluster.node_not_ready(node, why))
        if self.etcd_up:
            self.etcd_up = False
            self._leave_control_plane()

    def _leave_control_plane(self) -> None:
        if not self.site.has_quorum(self._configured().cluster_id):
            self._done("control plane", self.site.cluster.control_plane_down)

    @property
    def forwards_calls(self) -> bool:
        """Whether it passes calls on: only control planes do."""
        return self.config is not None and self.config.is_control_plane and self._serving_mutual

    @property
    def in_maintenance(self) -> bool:
        return self.config is None or not self.config.complete

    @property
    def hostname(self) -> str:
        """The config's name, also while it is off; or the one that Talos makes of the machine's identity."""
        config = self.config
        if config is None and (stored := self.store.config) is not None:
            config = Config(stored)
        digest = hashlib.sha256(self.spec.name.encode()).hexdigest()
        return (config.hostname if config else None) or f"talos-{digest[:3]}-{digest[3:6]}"

    @property
    def plane(self) -> ControlPlane:
        """The control plane that its config describes."""
        config = self._configured()
        return ControlPlane(
            cluster_name=str(config.cluster("clusterName", "")),
            endpoint=str(config.cluster("controlPlane.endpoint", "")),
            kubernetes_version=config.api_server_version,
            pod_subnets=tuple(config.cluster("network.podSubnets", ())),
            service_subnets=tuple(config.cluster("network.serviceSubnets", ())),
            kubernetes_ca=config.kubernetes_ca,
            api_server_names=tuple(config.cluster("apiServer.certSANs", ())),
            inline_manifests=tuple(manifest["contents"] for manifest in config.cluster("inlineManifests", ())),
        )

    def unreachable_for(self, other: Machine) -> str:
        """Why another machine's API cannot call it; empty where it can."""
        if self._session is None or self._session.is_over or self.stage == "unknown":
            return f"Error while dialing: dial tcp {self.address}:{self.spec.port}: connect: connection refused"
        mine, theirs = self.config, other.config
        if not self._serving_mutual or mine is None or theirs is None:
            return (
                "authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by "
                "unknown authority"
            )
        return "" if mine.machine_ca.certificate in theirs.trusted_cas else "authentication handshake failed"

    def boot(self, session: Session) -> None:
        """As PoweredMachine.boot."""
        if self.spec.secure_boot and not self.is_signed:
            self.log("firmware: Secure Boot violation: the image is not signed; nothing is started")
            return
        self.enter(session, "booting")
        self.log(f"booting Talos {self.running_system.talos_version}, boot id {self.store.disks.boot_id}")
        config = self.store.config
        if self.store.disks.installed is not None and config is not None:
            self._run(session, Config(config))
            return
        identity = certificates.self_signed([self.address, self.hostname], self.now())
        self.listen(session, certificates.maintenance_tls(identity), self._admit_reader)
        self.enter(session, "maintenance")
        self.log(f"this machine is reachable at: {self.address}")
        self.log(f'server certificate issued {{"fingerprint": "{identity.fingerprint}"}}')
        self.log("maintenance mode: upload a configuration")

    def _admit_reader(self, _: bytes | None) -> Roles | None:
        return None if self.faults.refusal(CONNECT) else frozenset({READER})

    def _admit(self, certificate: bytes | None) -> Roles | None:
        return None if self.faults.refusal(CONNECT) else certificates.client_roles(certificate, self.now())

    def take_first_config(self, config: Config) -> None:
        """Leave maintenance mode with this config: install, reboot, and boot from the disk."""
        self.config = config
        if not config.complete:
            return
        self.going_down = True

        def install(session: Session) -> None:
            self.settle(session)
            self.going_down = False
            if self.store.disks.installed is not None:
                self.wait_volume(session, made.STATE)
                self.store.save_config(config.source)
                self._run(session, config)
                return
            if self._authority(config) is not None:
                self._serve(session, config)
            else:
                self.front.close()
            self.enter(session, "installing")
            self._install(session, config)
            self.enter(session, "rebooting")
            self.restart(session, by=self.restarts_by())

        self.job(install)

    def _install(self, session: Session, config: Config) -> None:
        image = str(config.machine("install.image", ""))
        self.log(f"installing from {image}")
        try:
            pulled = self.site.puller.pull(image, config.mirrors)
        except RpcError as error:
            self.log(f"install failed: {error.message}; rebooting")
            session.wait(self.speed.boot_s)
            return
        session.wait(self.speed.install_s / 2)
        self.point("install")
        session.wait(self.speed.install_s / 2)
        if self.faults.installer_fails():
            self.log("install failed: the installer ended with status 1, on request; rebooting")
            return
        with self._lock:
            session.wait(0)
            self.store.disks.installed = dataclasses.replace(pulled.system, image=image)
            self.store.save()
        # The config is kept on STATE, which the system of the boot medium makes (controllers/config/persistence.go).
        if problem := self.make_volume(made.STATE):
            self.log(f"volume STATE failed: {problem}; rebooting")
            session.wait(self.speed.boot_s)
            return
        self.store.save_config(config.source)
        self.log("installed")

    def _run(self, session: Session, config: Config) -> None:
        self.config = config
        self.enter(session, "booting")
        self.wait_volume(session, made.STATE)
        while self._authority(config) is None:
            session.wait(self.speed.retry_s)
        self._serve(session, config)
        session.wait(self.speed.services_s)
        self.wait_volume(session, made.EPHEMERAL)
        self.cri_up = True
        if config.is_control_plane:
            self._run_control_plane(session)
        self.kubelet_up = True
        self.enter(session, "running")
        self.log("the machine runs")
        self._keep_node(session)

    def _serve(self, session: Session, config: Config) -> None:
        authority = self._authority(config)
        if authority is None:
            raise PowerLostError
        sans = [str(name) for name in config.machine("certSANs", ())]
        identity = certificates.signed_by(authority, [self.address, self.hostname, *sans], self.now())
        self.listen(session, certificates.mutual_tls(identity, config.trusted_cas), self._admit)
        self._serving_mutual = True

    def _authority(self, config: Config) -> KeyPair | None:
        """Who signs the machine's certificate: a control plane has the CA's key, a worker must ask one that runs."""
        if config.machine_ca.key:
            return config.machine_ca
        source = self.site.trustd(config)
        return source.config.machine_ca if source is not None and source.config is not None else None

    def _run_control_plane(self, session: Session) -> None:
        cluster_id = self._configured().cluster_id
        if self.store.disks.etcd_removed:
            self.log("etcd does not start: the member has been permanently removed from the cluster")
        while self.store.disks.etcd is None or self.store.disks.etcd_removed:
            session.wait(self.speed.retry_s)
            if self.store.disks.etcd_removed:
                continue
            if any(member.etcd_up for member in self.site.etcd_members(cluster_id)):
                self.join_etcd()
        self.etcd_up = True
        self.log("etcd runs")
        while not self._done("control plane", lambda: self.site.cluster.control_plane_up(self.plane)):
            session.wait(self.speed.retry_s)
        if session.is_over and not self.site.has_quorum(cluster_id):
            # The power went while it was on its way up.
            self.site.cluster.control_plane_down()

    def join_etcd(self) -> None:
        """Become a member: the first one by Bootstrap, later ones by themselves."""
        self.store.disks.etcd = secrets.randbits(63)
        self.store.save()

    def _keep_node(self, session: Session) -> None:
        if self._configured().machine("kubelet.skipNodeRegistration"):
            return
        while True:
            while not self._done("node", self._register):
                session.wait(self.speed.retry_s)
            # A refused update is repeated for ever, and a node that others change is looked at again.
            pause_s = 0.0
            while not session.changes_within(pause_s):
                applied = self._done("k8s.NodeApplyController", lambda: self.site.cluster.node_settings(self._node()))
                pause_s = self.speed.notices_s if applied else self.speed.retry_s

    def _node(self) -> NodeFacts:
        boot_id, missing = self.store.disks.boot_id, self.faults.modules_missing()
        return node_facts(
            self._configured(),
            self.running_system,
            self.spec,
            name=self.hostname,
            boot_id=boot_id,
            missing=missing,
            mounts=made.mounts(self._configured(), self.volumes),
        )

    def _register(self) -> None:
        if not self.site.cluster.is_up():
            raise LabError("the Kubernetes API does not answer", fix="bootstrap the cluster")
        if problem := pod_cidr_problem(self._configured(), self.spec):
            raise LabError(problem, fix="give the machine a pod network of the config's, in the rack's description")
        if failure := kernel.failure(self._configured()):
            self.log(failure)
        for name, state in self.volumes.items():
            if problem := self.make_volume(name):
                self.log(f"volume {name} {state.phase}: {problem}")
        node = self._node()
        if node.no_gpus_because:
            self.log(f"no GPUs: {node.no_gpus_because}")
        self.site.cluster.node_ready(node)
        self.node_is_ready = True
        if self.store.disks.cordoned:
            self.site.cluster.cordon(self.hostname, unschedulable=False)
            self.store.disks.cordoned = False
            self.store.save()

    def _done(self, what: str, act: Callable[[], None]) -> bool:
        """Whether it worked; a failure is shown once on the screen, and the caller retries."""
        try:
            act()
        except PowerLostError:
            raise
        except Exception as error:  # noqa: BLE001 - the machine tries again, whatever it was
            failure = f"{what}: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
            if failure != self._last_failures.get(what):
                self.log(failure)
                self._last_failures[what] = failure
            return False
        self._last_failures.pop(what, None)
        return True

    def take_live(self, config: Config) -> None:
        """Bring a config into effect while the machine runs."""
        before, self.config = self.config, config
        if before is not None and _front_settings(before) != _front_settings(config):

            def serve_anew(session: Session) -> None:
                self.settle(session)
                self._serve(session, config)

            self.job(serve_anew)
        self.session().changed.set()

    def keep_trying(self, config: Config, timeout_s: float) -> None:
        """Bring a config into effect, and the earlier one back after a while, unless another config comes."""
        before = self.config
        self.take_live(config)
        with self._lock:
            self._try_serial += 1
            serial = self._try_serial

        def revert(session: Session) -> None:
            session.wait(timeout_s)
            if serial == self._try_serial and before is not None:
                self.log("the tried configuration is reverted")
                self.take_live(before)

        self.job(revert)

    def stop_trying(self) -> None:
        """A config that was tried stays until the next one."""
        with self._lock:
            self._try_serial += 1

    def pull(self, reference: str) -> str:
        """Pull an image into the machine's store; its name by digest. Raises RpcError."""
        disks = self.store.disks
        if reference not in disks.images:
            image = self.site.puller.pull(reference, self._configured().mirrors)
            named = pinned(reference, image.digest)
            disks.images |= {reference: image, named: image}
            self.store.save()
        return pinned(reference, disks.images[reference].digest)

    def cordon(self) -> None:
        """Keep pods off its node until it has booted again."""
        if self.node_is_ready:
            self._done("cordon", lambda: self.site.cluster.cordon(self.hostname, unschedulable=True))
            self.store.disks.cordoned = True
            self.store.save()

    def remove_from_etcd(self) -> None:
        """The other members have voted this one out; what runs of it ends."""
        self.store.disks.etcd_removed = True
        self.store.save()
        self.etcd_up = False

    def forget_members(self) -> None:
        """What etcd is recovered from has no other members: theirs were of the cluster that is lost."""
        for member in self.site.etcd_members(self._configured().cluster_id):
            member.remove_from_etcd()

    def wipe(self, *, state: bool, ephemeral: bool, system: bool) -> None:
        """Erase what a reset names: the config, etcd's data and pulled images, the installed system."""
        disks = self.store.disks
        if (ephemeral or system) and disks.etcd is not None:
            self._leave_etcd()
        if state or system:
            self.store.save_config(None)
        if ephemeral or system:
            disks.images, disks.cordoned = {}, False
        wiped = {made.STATE: state or system, made.EPHEMERAL: ephemeral or system}
        disks.volumes = {name: held for name, held in disks.volumes.items() if not wiped.get(name)}
        if system:
            disks.installed = disks.next_boot = None
        self.store.save()

    def _leave_etcd(self) -> None:
        """Its member's data goes; with the last member goes the cluster."""
        cluster_id = self.config.cluster_id if self.config is not None else ""
        was_removed = self.store.disks.etcd_removed
        self.store.disks.etcd, self.store.disks.etcd_removed, self.etcd_up = None, False, False
        if was_removed:
            return
        if not self.site.etcd_members(cluster_id):
            self.node_is_ready = False
            self._done("etcd", self.site.cluster.etcd_wiped)
        elif not self.site.has_quorum(cluster_id):
            self._done("control plane", self.site.cluster.control_plane_down)

    def _configured(self) -> Config:
        if self.config is None:
            raise PowerLostError
        return self.config


def _front_settings(config: Config) -> object:
    return config.machine_ca.certificate, config.trusted_cas, config.machine("certSANs", [])
