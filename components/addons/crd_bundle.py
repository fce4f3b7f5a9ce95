"""The custom resource definitions that the platform's objects need, installed first and only from pinned sources."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pulumi
from pulumi_command import local

from components.component import Component
from components.objects import field_manager
from definitions.applying import lacking
from definitions.command import ApplyCommand
from floor.counts import counted
from floor.kubectl import VARIABLE

# More than the command's own limits together.
_LIMIT_S = 900


class CrdBundleError(pulumi.RunError):
    """The bundle on disk is missing or is not the pinned one."""


@dataclass(frozen=True, kw_only=True)
class CrdFile:
    """Definitions of one source, in a file that is the pinned one."""

    path: Path
    sha256: str
    release: str
    names: frozenset[str]
    """Of its definitions."""


def read_bundle(folder: Path, digests: Mapping[str, str], releases: Mapping[str, str], fix: str) -> list[CrdFile]:
    """The files of the bundle, by name.

    digests: file name -> sha256 in hex of each file that the platform was tested with, from `Versions.crds_with`, which
    leaves out what the site's parts do not need. A file that is missing or differs is an error, because a CRD of
    another version changes what the gateways accept. releases: file name -> its release. fix: the command that fetches
    the pinned files, for that error.
    """
    files: list[CrdFile] = []
    problems: list[str] = []
    for file, digest in sorted(digests.items()):
        path = folder / file
        if not path.is_file():
            problems.append(f"{path}: missing")
            continue
        content = path.read_bytes()
        got = hashlib.sha256(content).hexdigest()
        if got != digest:
            problems.append(f"{path}: sha256 is {got}, pinned is {digest}")
            continue
        names = frozenset(definition["metadata"]["name"] for definition in json.loads(content)["items"])
        files.append(CrdFile(path=path, sha256=digest, release=releases[file], names=names))
    if problems:
        raise CrdBundleError("the CRD bundle is not the pinned one:\n  " + "\n  ".join(problems) + f"\n  fix: {fix}")
    return files


@dataclass(frozen=True, kw_only=True)
class CrdBundleArgs:
    """What is installed, and where."""

    files: Sequence[CrdFile]
    kubeconfig: pulumi.Output[str] | None
    """Secret, of the cluster that the program makes; None where `kubeconfig_file` names an existing one's."""
    kubeconfig_file: str = ""
    needs: Sequence[pulumi.Resource] = ()
    """What must be there before the cluster answers."""


@dataclass(frozen=True, kw_only=True)
class CrdBundleHandle:
    """Wait for every one of `ready` before declaring an object of these kinds."""

    ready: list[pulumi.Resource]


class CrdBundle(Component, token="crd_bundle:CrdBundle"):
    """One command per source: the state holds each file's digest, and preview names the source that changes (ADR 7).

    No definition is ever deleted, as all objects of its kind would go with it: not what a newer release lacks, which
    the command names, and not by `destroy`.
    """

    def __init__(self, name: str, args: CrdBundleArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        self._args = args
        self._look()
        made: list[pulumi.Resource] = [self._applied(file) for file in args.files]
        self.handle = CrdBundleHandle(ready=made)
        self.finish(sources=[file.path.stem for file in args.files])

    def _applied(self, file: CrdFile) -> local.Command:
        args = self._args
        apply = ApplyCommand(
            file=file.path,
            release=file.release,
            sha256=file.sha256,
            manager=field_manager(),
            kubeconfig=args.kubeconfig_file,
        )
        return local.Command(
            f"{self.name}-{apply.source}",
            create=apply.text,
            update=apply.text,
            environment={VARIABLE: args.kubeconfig} if args.kubeconfig is not None else None,
            logging=local.Logging.STDERR,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(args.needs),
                custom_timeouts=pulumi.CustomTimeouts(create=f"{_LIMIT_S}s", update=f"{_LIMIT_S}s"),
            ),
        )

    def _look(self) -> None:
        """Warn of definitions that are gone; not before there is a cluster, nor where it cannot be asked."""
        kubeconfig = self._args.kubeconfig
        if kubeconfig is not None:
            kubeconfig.apply(self._warn)
        elif (path := Path(self._args.kubeconfig_file).expanduser()).is_file():
            self._warn(path.read_text(encoding="utf-8"))

    def _warn(self, kubeconfig: str) -> None:
        gone = lacking(kubeconfig, {file.sha256: file.names for file in self._args.files})
        if gone:
            pulumi.log.warn(
                f"the cluster lacks {counted(len(gone), 'definition')}, {min(gone)} first: deleted, with every object "
                f"of that kind, unless an `up` ended midway\n  fix: python -m sitectl drift --site {pulumi.get_stack()}"
            )
