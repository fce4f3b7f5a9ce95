"""The folder of one pod on this machine: its volumes, its /etc files, and which of them a container mounts."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lab.paths import Lab
from lab.runner import podspec, volumes
from lab.runner.api import ApiRefusedError, KubeApi
from lab.runner.env import Lookup, PodFacts, expand
from lab.runner.sandbox import Mount, etc_files, on_host, resolv_conf
from lab.runner.state import Object, parse_timestamp

# A token is replaced when four fifths of its life are over, as the kubelet does.
_ROTATE_AT = 0.8


class VolumeError(Exception):
    """A volume cannot be served in the lab; the pod waits, and an event shows why."""


@dataclass(frozen=True, kw_only=True)
class _Token:
    text: str
    rotate_at: datetime


class PodFiles:
    """Folders and files of one pod, below the lab's pods folder."""

    def __init__(self, lab: Lab, api: KubeApi, pod: Object, lookup: Lookup) -> None:
        self._lab = lab
        self._api = api
        self._pod = pod
        self._lookup = lookup
        self._tokens: dict[tuple[str, int], _Token] = {}
        self._sources: dict[str, tuple[Path, bool]] = {}
        self.root = lab.pods / podspec.uid(pod)
        group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
        self._owner = volumes.Owner(gid=None if group is None else on_host(int(group)))

    async def prepare(self, facts: PodFacts, *, taken_over: bool = False) -> None:
        """Make every folder and file again; of a pod that was taken over, what it wrote to its emptyDirs stays.

        Raises VolumeError, MissingReferenceError or ApiRefusedError when a source is missing; calling again goes on.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        self._write_etc(facts)
        for volume in self._pod["spec"].get("volumes") or []:
            await self._prepare(volume, facts, taken_over=taken_over)

    async def refresh(self, pod: Object, facts: PodFacts) -> None:
        """Bring content volumes up to date: changed Secrets and ConfigMaps, changed labels, tokens near their end."""
        self._pod = pod
        for volume in pod["spec"].get("volumes") or []:
            if volumes.kind_of(volume) in volumes.CONTENT_KINDS:
                await self._write_content(volume, facts)

    def token_is_due(self) -> bool:
        now = datetime.now(UTC)
        return any(token.rotate_at <= now for token in self._tokens.values())

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def termination_log(self, container: str) -> Path:
        """The container's termination message file, made empty."""
        path = self.root / "termination" / container
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        path.chmod(0o666)
        return path

    def mounts(self, container: Object, env: dict[str, str]) -> list[Mount]:
        """What the container mounts: the pod's /etc files and its volumeMounts.

        Raises VolumeError for a mount that leaves its volume or names none.
        """
        mounts = [Mount(source=str(path), target=f"/etc/{path.name}") for path in sorted((self.root / "etc").iterdir())]
        for mount in container.get("volumeMounts") or []:
            if mount["name"] not in self._sources:
                raise VolumeError(f"container {container['name']} mounts volume {mount['name']}, which is not declared")
            folder, read_only = self._sources[mount["name"]]
            sub_path = mount.get("subPath") or expand(mount.get("subPathExpr", ""), env)
            source = self._inside(folder, sub_path) if sub_path else folder
            mounts.append(
                Mount(
                    source=str(source),
                    target=mount["mountPath"],
                    read_only=read_only or bool(mount.get("readOnly", False)),
                )
            )
        return mounts

    @staticmethod
    def _inside(folder: Path, sub_path: str) -> Path:
        target = (folder / sub_path).resolve()
        if not target.is_relative_to(folder.resolve()):
            raise VolumeError(f"subPath {sub_path!r} leads out of its volume")
        if not target.exists():
            target.mkdir(parents=True)
            target.chmod(0o777)
        return target

    def _write_etc(self, facts: PodFacts) -> None:
        spec, folder = self._pod["spec"], self.root / "etc"
        folder.mkdir(exist_ok=True)
        texts = etc_files(podspec.hostname(self._pod), facts.pod_ip, spec.get("hostAliases") or [])
        dns = str(self._lab.network.dns_address)
        texts["resolv.conf"] = resolv_conf(spec, self._pod["metadata"]["namespace"], dns)
        for name, text in texts.items():
            (folder / name).write_text(text)

    async def _prepare(self, volume: Object, facts: PodFacts, *, taken_over: bool) -> None:
        name, kind = volume["name"], volumes.kind_of(volume)
        if name in self._sources:
            return
        folder, read_only = self.root / "volumes" / name, False
        if kind == "emptyDir":
            if not (taken_over and folder.is_dir()):
                volumes.make_empty_dir(folder, self._owner)
        elif kind in volumes.CONTENT_KINDS:
            await self._write_content(volume, facts)
            read_only = True
        elif kind == "hostPath":
            folder = self._host_folder(volume["hostPath"]["path"], f"volume {name}: hostPath")
        elif kind == "persistentVolumeClaim":
            folder, read_only = await self._claim(volume["persistentVolumeClaim"])
        else:
            raise VolumeError(f"volume {name}: the lab cannot serve a volume of kind {kind}")
        self._sources[name] = (folder, read_only)

    async def _write_content(self, volume: Object, facts: PodFacts) -> None:
        tokens = {key: await self._token(*key) for key in volumes.token_requests(volume)}
        files = volumes.payload(self._pod, volume, facts, self._lookup, tokens)
        volumes.write_payload(self.root / "volumes" / volume["name"], files, self._owner)

    async def _token(self, audience: str, lifetime_s: int) -> str:
        now = datetime.now(UTC)
        known = self._tokens.get((audience, lifetime_s))
        if known is None or known.rotate_at <= now:
            text, expires = await self._api.service_account_token(self._pod, audience, lifetime_s)
            known = _Token(text=text, rotate_at=now + (parse_timestamp(expires) - now) * _ROTATE_AT)
            self._tokens[audience, lifetime_s] = known
        return known.text

    async def _claim(self, source: Object) -> tuple[Path, bool]:
        claim = source["claimName"]
        try:
            volume = await self._api.claim_volume(self._pod["metadata"]["namespace"], claim)
        except ApiRefusedError as refused:
            if refused.code in (404, 409):
                raise VolumeError(str(refused)) from refused
            raise
        read_only = bool(source.get("readOnly"))
        if local := volume["spec"].get("local"):
            return self._node_folder(local["path"], volume["metadata"]["name"]), read_only
        backing = volume["spec"].get("hostPath")
        if not backing:
            raise VolumeError(
                f'persistentvolume "{volume["metadata"]["name"]}" is neither local nor a hostPath; the lab serves no '
                "other"
            )
        return self._host_folder(backing["path"], f'persistentvolumeclaim "{claim}"'), read_only

    def _node_folder(self, path: str, volume: str) -> Path:
        """The folder of the pod's own node. As the kubelet, this makes none: the node's machine mounts a disk there."""
        disks = self._lab.node_folder(podspec.node_name(self._pod), "/").resolve()
        folder = (disks / path.lstrip("/")).resolve()
        if not folder.is_relative_to(disks) or not folder.is_dir():
            raise VolumeError(f'MountVolume.NewMounter failed for volume "{volume}": path "{path}" does not exist')
        return folder

    def _host_folder(self, path: str, what: str) -> Path:
        """A folder of this machine; only the lab's own volumes are given to pods."""
        allowed, folder = self._lab.volumes.resolve(), Path(path).resolve()
        if not folder.is_relative_to(allowed):
            raise VolumeError(f"{what} {path} is refused: the lab serves only folders below {allowed}")
        if not folder.exists():
            folder.mkdir(parents=True)
            os.chmod(folder, 0o777)  # noqa: PTH101, S103
        return folder
