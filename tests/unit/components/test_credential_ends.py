"""A preview warns before the stack's own credentials end, and reads nothing but what the state has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import pulumi
import pytest
import yaml

from components.machines import cluster
from components.machines.credential_ends import authority_ends, credential_ends, ends_in_unix_s, first_end, warn_of_ends
from talos.secrets import pki, talosconfig
from talos.secrets.pki import base64_of
from tests.unit.components.test_cluster_component import declare, machine
from tests.unit.pulumi_runtime import EchoingMocks, in_own_runtime
from tests.unit.talos import talos_examples as examples

BUNDLE = examples.bundle()
YEAR = timedelta(days=365)


def talos() -> str:
    return talosconfig.issue(BUNDLE, context="prod", endpoints=("10.5.0.11",), now=lambda: examples.NOW).render()


def kubeconfig() -> str:
    source = examples.entropy(5)
    pair = pki.client_certificate(
        BUNDLE.talos, organizations=("system:masters",), now=examples.NOW, lifetime=YEAR, entropy=source
    )
    user = {"client-certificate-data": base64_of(pair.certificate), "client-key-data": base64_of(pair.key)}
    cluster = {"certificate-authority-data": base64_of(BUNDLE.kubernetes.certificate)}
    return yaml.safe_dump(
        {"clusters": [{"name": "prod", "cluster": cluster}], "users": [{"name": "admin", "user": user}]}
    )


@pytest.mark.parametrize(("name", "text"), [("talosconfig", talos), ("kubeconfig", kubeconfig)])
def test_a_credential_is_named_two_months_before_its_end(name: str, text: Callable[[], str]) -> None:
    end = examples.NOW + YEAR
    assert list(credential_ends(name, text(), end - timedelta(days=61))) == []
    (line,) = credential_ends(name, text(), end - timedelta(days=59, hours=1))
    assert line.startswith(f"the stack's {name} ends on {end:%Y-%m-%d}, in 59 days\n  fix: increase ")
    (line,) = credential_ends(name, text(), end)
    assert line.startswith(f"the stack's {name} ended on {end:%Y-%m-%d}\n")


def test_each_authority_is_named_a_year_before_its_end() -> None:
    end = examples.NOW + pki.CA_LIFETIME
    assert list(authority_ends(BUNDLE.export(), end - YEAR - timedelta(days=1))) == []
    lines = list(authority_ends(BUNDLE.export(), end - YEAR))
    assert [line.split(" ends ")[0] for line in lines] == [
        f"the cluster's authority {name}" for name in ("etcd", "k8s", "k8saggregator", "os")
    ]


def test_what_is_no_certificate_is_no_warning() -> None:
    for text in ("", "kubeconfig", "a: [", "users: [{user: {client-certificate-data: x}}]"):
        assert list(credential_ends("kubeconfig", text, examples.NOW)) == []


def test_ends_are_known_to_the_second_and_no_secret() -> None:
    async def run() -> dict[str, dict[str, tuple[int | None, bool]]]:
        texts = {"kubeconfig": kubeconfig(), "talosconfig": talos(), "bundle": BUNDLE.export()}
        made = ends_in_unix_s(**{name: pulumi.Output.secret(text) for name, text in texts.items()})
        return {
            kind: {name: (await end.future(), await end.is_secret()) for name, end in ends.items()}
            for kind, ends in made.items()
        }

    issued = (int((examples.NOW + YEAR).timestamp()), False)
    signed = (int((examples.NOW + pki.CA_LIFETIME).timestamp()), False)
    assert in_own_runtime(EchoingMocks(), run) == {
        "credential": {"kubeconfig": issued, "talosconfig": issued},
        "authority": dict.fromkeys(("etcd", "k8s", "k8saggregator", "os"), signed),
    }


def test_what_cannot_be_read_counts_as_ended() -> None:
    assert [first_end(text) for text in ("", "a: [", "users: [{user: {client-certificate-data: x}}]")] == [0, 0, 0]
    assert first_end(BUNDLE.export(), "no authority") == 0


def warned(monkeypatch: pytest.MonkeyPatch, at: datetime, *, preview: bool) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", lines.append)

    async def run() -> None:
        texts = {"kubeconfig": kubeconfig(), "talosconfig": talos(), "bundle": BUNDLE.export()}
        outputs = {name: pulumi.Output.secret(text) for name, text in texts.items()}
        warn_of_ends(**outputs, clock=lambda: at)
        await asyncio.gather(*(output.future() for output in outputs.values()))
        await asyncio.sleep(0)

    in_own_runtime(EchoingMocks(), run, preview=preview)
    return lines


def test_a_preview_warns_and_up_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    at = examples.NOW + YEAR - timedelta(days=30)
    lines = warned(monkeypatch, at, preview=True)
    assert [line.split(" ends ")[0] for line in lines] == ["the stack's kubeconfig", "the stack's talosconfig"]
    assert not any(secret in line for line in lines for secret in (BUNDLE.trustd_token, "BEGIN", "LS0t"))
    assert warned(monkeypatch, at, preview=False) == []


def test_a_cluster_watches_the_credentials_that_it_gives_out(monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[set[str]] = []
    monkeypatch.setattr(cluster, "warn_of_ends", lambda **outputs: watched.append(set(outputs)))
    declare(machine("cp-1"), preview=True)
    assert watched == [{"kubeconfig", "talosconfig", "bundle"}]
