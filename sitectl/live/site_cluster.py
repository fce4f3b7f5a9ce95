"""Asks a site's cluster by kubectl, with the kubeconfig of its stack or the one that its file names. Reads alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from floor.kubectl import kubeconfig_option
from sitectl.shell import programs
from sitectl.shell.errors import Exit, SitectlError, unusable_file
from stacks.plan.site_plan import plan_file

_KUBECTL = "install kubectl where pulumi runs, in the version of the cluster"
_REACH = "check that its API server can be reached from here, and that the kubeconfig is of this cluster"
# The first question finds out whether there is a cluster; a list of all objects takes longer.
_FIRST, _LIMIT = "--request-timeout=15s", "--request-timeout=60s"


@dataclass(frozen=True, kw_only=True)
class SiteCluster:
    """The API server of one site."""

    project: Path
    site: str
    kubeconfig: str = field(repr=False)

    def version(self) -> str:
        """Of the API server that answers. Raises SitectlError where none does."""
        answer = self._kubectl(
            ["get", "--raw", "/version", _FIRST], f"the cluster of {self.site} does not answer", _REACH
        )
        return str(answer["gitVersion"])

    def objects(self, what: str, kinds: Sequence[str], *options: str) -> list[dict[str, Any]]:
        """All objects of these kinds. Raises SitectlError, which calls them `what`."""
        words = ["get", ",".join(kinds), _LIMIT, "--all-namespaces", *options, "--output=json"]
        items: list[dict[str, Any]] = self._kubectl(words, f"kubectl could not list {what}", _KUBECTL)["items"]
        return items

    def _kubectl(self, words: Sequence[str], failure: str, fix: str) -> Any:
        with kubeconfig_option(self.kubeconfig) as (option, file):
            done = programs.run(["kubectl", option, *words], cwd=self.project, fix=_KUBECTL, pass_fds=(file,))
        if done.returncode != 0:
            lines = [line.removeprefix("error: ") for line in done.stderr.decode(errors="replace").splitlines()[-3:]]
            raise SitectlError(f"{failure}: " + " ".join(lines), fix=fix)
        return json.loads(done.stdout)


def of_site(project: Path, site: str, file: Path) -> SiteCluster:
    """The cluster of a stack. Raises SitectlError where there are no credentials for it."""
    named = plan_file(file).site.cluster.kubeconfig
    if named is None:
        kubeconfig = str(pulumi(project, site, "stack", "output", "kubeconfig", "--show-secrets", "--json"))
    else:
        kubeconfig = _text(project / named)
    return SiteCluster(project=project, site=site, kubeconfig=kubeconfig)


def of_file(project: Path, site: str, file: Path, kubeconfig: Path | None) -> SiteCluster:
    """The cluster of a site whose stack is not asked. Raises SitectlError where no kubeconfig is named."""
    named = kubeconfig or plan_file(file).site.cluster.kubeconfig
    if named is None:
        raise SitectlError(
            f"{site} has no kubeconfig in its file: this program made its cluster",
            fix="get one by `python -m talos kubeconfig --address CONTROL-PLANE`, and name it with --kubeconfig",
            status=Exit.USAGE,
        )
    return SiteCluster(project=project, site=site, kubeconfig=_text(project / named))


def pulumi(project: Path, site: str, *words: str) -> Any:
    """What pulumi prints as JSON about the stack. Raises SitectlError."""
    command = ["pulumi", *words, "--stack", site]
    done = programs.run(command, cwd=project, fix="https://www.pulumi.com/docs/install/")
    try:
        return json.loads(done.stdout)
    except ValueError:
        words_ = done.stderr.decode(errors="replace").strip().splitlines()[-3:]
        raise SitectlError(
            f"`{' '.join(command)}` ended with {done.returncode}: " + " ".join(words_),
            fix=f"pulumi login, pulumi stack select {site}, and a passphrase or key for its secrets",
        ) from None


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError as error:
        raise unusable_file(error) from None
    except UnicodeDecodeError:
        raise SitectlError(
            f"{file} is no text, so no kubeconfig", fix="name an administrator's with --kubeconfig", status=Exit.USAGE
        ) from None
