"""What is taken for a secret, and what is not although it looks like one at first sight."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest

from floor.problems import SiteError
from floor.secret_texts import (
    HIDDEN,
    PlainSecret,
    is_secret_name,
    looks_secret,
    masked,
    shown_without_secrets,
    without_secrets,
)
from stacks.facts import feature_gates, kubelet_fields, program_flags
from stacks.plan.site_plan import plan_values
from talos.secrets.bundle import SecretsBundle, generate, utc_now
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import M, changed
from tests.unit.talos.talos_examples import entropy

PEM = """\
-----BEGIN RSA PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-256-CBC,0123

MIICsecretsecret/secret+secret=
-----END RSA PRIVATE KEY-----
"""
HARMLESS = (
    "registry.k8s.io/pause@sha256:" + "0123456789abcdef" * 4,
    "https://github.com/NVIDIA/gpu-operator/blob/v25.3.0/deployments/gpu-operator/values.yaml",
    "models.glm-5-1.server.longest_stream_s",
    "floor/reading/document.py:123",
    "https://10.5.0.10:6443",
    "10.5.0.0/24",
    "disk.bus_path == '/pci0000:3a/0000:3a:00.0/nvme'",
    "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8",
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t",
    "docker.io/library",
    "kubelet_config.shutdownGracePeriodByPodPriority",
    "featureGates.UnauthenticatedHTTP2DOSMitigation",
    "sk-bratislava-inference-1",
    "https://rack01.datacenterberlin:6443",
)


def test_no_gate_flag_or_field_of_a_program_is_taken_for_a_secret() -> None:
    names = [*feature_gates.load().names(), *kubelet_fields.load().kinds, *kubelet_fields.load().decisions]
    names += [flag for program in program_flags.load().programs.values() for flag in program.kinds]
    assert [name for name in names if is_secret_name(name)] == []


@pytest.mark.parametrize("text", HARMLESS)
def test_what_people_have_to_read_is_shown(text: str) -> None:
    assert shown_without_secrets(text) == text


def test_a_private_key_is_hidden_with_all_its_lines() -> None:
    for text in (PEM, PEM.replace("\n", "\\n"), PEM.partition("-----END")[0]):
        shown = without_secrets(f"key: {text} and on")
        assert "MII" not in shown and "secretsecret" not in shown and HIDDEN in shown


def test_random_bytes_in_base64_are_hidden_wherever_their_slashes_are() -> None:
    draw = random.Random(7)  # noqa: S311 - a test's own bytes
    keys = [base64.b64encode(draw.randbytes(32)).decode() for _ in range(2_000)]
    assert [key for key in keys if not is_secret_name(key)] == []


@pytest.mark.parametrize(
    "name", ["/var/lib/kubelet/pki/kubeletClientCurrent1", "meta-llama/Llama3Instruct70BQuantisedVersion2"]
)
def test_a_path_and_a_product_are_no_secret(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize("seed", range(5))
def test_every_field_of_a_secrets_bundle_is_hidden(seed: int) -> None:
    """The forms that Talos itself gives them, in plain and in the file."""
    bundle: SecretsBundle = generate(entropy(seed), utc_now)
    values = [value for value in vars(bundle).values() if isinstance(value, str) and value != bundle.cluster_id]
    assert len(values) >= 4
    for value in values:
        assert is_secret_name(value), "a field of the bundle"
        assert value.strip().splitlines()[0][:12] not in shown_without_secrets(f"got '{value}'").replace(HIDDEN, "")
    pair = bundle.talos
    assert looks_secret(pair.key) and looks_secret(base64.b64encode(pair.key.encode()).decode())


def test_a_masked_value_holds_nothing_that_was_found() -> None:
    value: Any = {"a": ["sk-0123456789abcdef", 1], "sk-0123456789abcdefg": {"b": PEM}, "patches": {"x": {"token": "t"}}}
    secrets: list[PlainSecret] = []
    clean = masked(value, secrets)
    assert clean == {"a": [HIDDEN, 1], f"{HIDDEN} 2": {"b": HIDDEN}, "patches": {"x": {"token": HIDDEN}}}
    assert [secret.written for secret in secrets] == [
        ("a", "0"),
        ("sk-0123456789abcdefg",),
        ("sk-0123456789abcdefg", "b"),
        ("patches", "x", "token"),
    ]
    assert masked(clean, []) == clean


@pytest.mark.parametrize("part", ["-----BEGIN PRIVATE KEY-----", "eyJ", "A1b/", "0", "abcdef.a", "sk-", "://a:b", "-"])
def test_a_long_text_is_read_once(part: str) -> None:
    """A pattern that starts over at each character would read this for hours."""
    assert shown_without_secrets(part * (600_000 // len(part))) is not None


@pytest.mark.parametrize(
    "value",
    [
        {"models": {"m": {"server": {"extra_args": ['--default-chat-template-kwargs={"api_key": "hunter2"}']}}}},
        {"cluster": {"machines": {"registries": {"auth": {"registry.site.example": {"password": "hunter2"}}}}}},
        {"cluster": {"machines": {"registries": {"auth": {"registry.site.example": {"identity_token": "hunter2"}}}}}},
        {"cluster": {"machines": {"patches": {"siderolink": {"apiUrl": "https://omni.example/join?token=hunter2"}}}}},
        {"charts": {"mirror": "https://charts.example/?access_token=hunter2"}},
    ],
    ids=["JSON of a flag", "password of a registry", "token of a registry", "query of a patch", "query of a mirror"],
)
def test_what_a_name_calls_a_secret_is_one(value: dict[str, Any]) -> None:
    secrets: list[PlainSecret] = []
    assert "hunter2" not in str(masked(value, secrets))
    (secret,) = secrets
    assert secret.got == HIDDEN and "revoke it" in secret.fix


def test_a_key_that_names_where_a_secret_is_holds_none() -> None:
    value = {"cluster": {"machines": {"registries": {"auth": {"r": {"password_secret": "registry-password"}}}}}}
    secrets: list[PlainSecret] = []
    assert masked(value, secrets) == value
    assert not secrets


def test_a_password_in_the_place_of_its_name_is_hidden() -> None:
    auth = {"registry.site.example": {"username": "puller", "password_secret": "s3cr3tPassw0rd!xyz"}}
    with pytest.raises(SiteError) as caught:
        plan_values(changed(prod(), {f"{M}.registries.auth": auth}), "site.yaml")
    assert "s3cr3t" not in str(caught.value)
    assert HIDDEN in str(caught.value) and "revoke it" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "fix"),
    [
        (f"{M}.kernel_args", ["ipmi_password=canary1"], "keep it in a Secret"),
        (f"{M}.patches", {"vpn": {"kind": "ExtensionServiceConfig", "environment": ["TS_AUTHKEY=canary1"]}}, "take it"),
        (f"{M}.registries.mirrors.*.endpoints", ["https://talos:canary1@registry.site.example"], "registries.auth, by"),
        (f"{M}.system_volumes.STATE.encryption.0", {"kind": "static", "slot": 0, "passphrase_secret": "a canary1"}, ""),
    ],
)
def test_secrets_of_machines_are_refused_and_not_shown(key: str, value: Any, fix: str) -> None:
    with pytest.raises(SiteError) as caught:
        plan_values(changed(prod(), {key: value}), "site.yaml")
    assert "canary1" not in str(caught.value)
    assert any(fix in problem.fix and HIDDEN in problem.got for problem in caught.value.problems)
