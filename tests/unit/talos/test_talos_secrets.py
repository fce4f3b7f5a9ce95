"""Secrets bundle and talosconfig: format, kinds of keys, determinism, import's errors, and that nothing leaks."""

from __future__ import annotations

import base64
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from talos.documents.patches import Patch
from talos.documents.problems import ConfigError
from talos.documents.v1alpha1 import Install
from talos.machine_config import MachineConfig
from talos.secrets import bundle as secrets
from talos.secrets import pki, talosconfig
from talos.secrets.pki import Entropy, KeyPair
from tests.unit.talos import talos_examples as examples

CANARY = examples.CANARY


def exported() -> Any:
    return yaml.safe_load(examples.bundle().export())


def certificate(pair: KeyPair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate.encode())


def test_the_export_has_talos_shape() -> None:
    content = exported()
    assert list(content) == ["cluster", "secrets", "trustdinfo", "certs"]
    assert list(content["certs"]) == ["etcd", "k8s", "k8saggregator", "k8sserviceaccount", "os"]
    assert list(content["secrets"]) == ["bootstraptoken", "secretboxencryptionsecret"]
    assert len(base64.urlsafe_b64decode(content["cluster"]["id"])) == 32
    for secret in (content["cluster"]["secret"], content["secrets"]["secretboxencryptionsecret"]):
        assert len(base64.b64decode(secret)) == 32


def test_keys_have_the_labels_and_kinds_that_talos_makes() -> None:
    bundle = examples.bundle()
    labels = {
        "os": (bundle.talos.key, "ED25519 PRIVATE KEY", ed25519.Ed25519PrivateKey),
        "k8s": (bundle.kubernetes.key, "EC PRIVATE KEY", ec.EllipticCurvePrivateKey),
        "etcd": (bundle.etcd.key, "EC PRIVATE KEY", ec.EllipticCurvePrivateKey),
        "k8saggregator": (bundle.aggregator.key, "EC PRIVATE KEY", ec.EllipticCurvePrivateKey),
        "k8sserviceaccount": (bundle.service_account_key, "RSA PRIVATE KEY", rsa.RSAPrivateKey),
    }
    for name, (text, label, kind) in labels.items():
        assert text.startswith(f"-----BEGIN {label}-----\n"), name
        assert text.endswith(f"-----END {label}-----\n")
        assert isinstance(pki.load_private_key(text, name), kind)


def test_authorities_are_made_as_talos_makes_them() -> None:
    bundle = examples.bundle()
    organizations = {
        "etcd": bundle.etcd,
        "kubernetes": bundle.kubernetes,
        "talos": bundle.talos,
        None: bundle.aggregator,
    }
    for organization, pair in organizations.items():
        made = certificate(pair)
        named = [attribute.value for attribute in made.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
        assert named == ([organization] if organization else [])
        assert made.not_valid_before_utc == examples.NOW
        assert made.not_valid_after_utc == examples.NOW + timedelta(hours=87600)
        usage = made.extensions.get_extension_for_class(x509.KeyUsage)
        assert usage.critical
        assert usage.value.key_cert_sign
        assert usage.value.digital_signature
        assert made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert len(made.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest) == 20
        extended = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(extended) == [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        made.verify_directly_issued_by(made)


def test_the_real_service_account_key_has_4096_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def note(public_exponent: int, key_size: int) -> rsa.RSAPrivateKey:
        asked.append(key_size)
        return examples.rsa_key()

    monkeypatch.setattr(rsa, "generate_private_key", note)
    secrets.generate()
    assert asked == [4096]


def test_the_same_sources_give_the_same_bundle_and_others_another() -> None:
    once = secrets.generate(examples.entropy(5), lambda: examples.NOW)
    again = secrets.generate(examples.entropy(5), lambda: examples.NOW)
    other = secrets.generate(examples.entropy(6), lambda: examples.NOW)
    assert once.export() == again.export()
    shared = {field.name for field in fields(once) if getattr(once, field.name) == getattr(other, field.name)}
    assert shared == {"service_account_key", "aescbc_encryption_secret"}


def test_real_bundles_differ() -> None:
    first, two = (secrets.generate(replace(secrets.system_entropy(), rsa_key=examples.rsa_key)) for _ in range(2))
    assert first.talos.key != two.talos.key
    assert first.cluster_secret != two.cluster_secret


def test_tokens_favour_no_character() -> None:
    drawn = Counter("".join(secrets._token(examples.entropy(seed)).replace(".", "") for seed in range(2000)))
    assert len(drawn) == 36
    assert max(drawn.values()) < 1.2 * min(drawn.values())


def test_what_is_exported_comes_back() -> None:
    assert secrets.load(examples.bundle().export()) == examples.bundle()


def test_a_bundle_of_an_old_contract_keeps_its_encryption() -> None:
    content = exported()
    content["secrets"]["aescbcencryptionsecret"] = content["secrets"].pop("secretboxencryptionsecret")
    loaded = secrets.load(yaml.safe_dump(content))
    assert loaded.secretbox_encryption_secret is None
    assert yaml.safe_load(loaded.export()) == content
    cluster = replace(examples.plain_cluster(), secrets=loaded).control_plane(Install(disk="/dev/sda")).document()
    assert "aescbcEncryptionSecret" in cluster["cluster"]
    assert "secretboxEncryptionSecret" not in cluster["cluster"]


Change = Callable[[Any], object]


def pem_of(content: Any, name: str) -> str:
    return base64.b64decode(content["certs"][name]["key"]).decode()


def relabel(content: Any, name: str, label: str) -> None:
    text = pem_of(content, name)
    old = text.split("-----")[1].removeprefix("BEGIN ")
    content["certs"][name]["key"] = base64.b64encode(text.replace(old, label).encode()).decode()


SPOILED: dict[str, tuple[Change, str]] = {
    "no cluster": (lambda content: content.pop("cluster"), "cluster is missing"),
    "no secret": (lambda content: content["cluster"].pop("secret"), "cluster.secret is missing"),
    "a number for a text": (lambda content: content["cluster"].update(secret=12345), "cluster.secret is not a text"),
    "a token of another form": (
        lambda content: content["trustdinfo"].update(token=CANARY),
        "trustdinfo.token does not have the form",
    ),
    "an unknown key": (lambda content: content["secrets"].update({CANARY: CANARY}), "secrets has 1 unknown keys"),
    "no encryption": (lambda content: content["secrets"].pop("secretboxencryptionsecret"), "exactly one"),
    "two encryptions": (lambda content: content["secrets"].update(aescbcencryptionsecret=CANARY), "2 are"),
    "not base64": (lambda content: content["certs"]["os"].update(key=f"{CANARY}!"), "certs.os.key is not base64"),
    "not PEM": (
        lambda content: content["certs"]["os"].update(key=base64.b64encode(CANARY.encode()).decode()),
        "certs.os.key is not one PEM block",
    ),
    "the standard label": (lambda content: relabel(content, "os", "PRIVATE KEY"), "labelled 'PRIVATE KEY'"),
    "another kind's label": (lambda content: relabel(content, "etcd", "RSA PRIVATE KEY"), "no key of the kind"),
    "a key of another CA": (
        lambda content: content["certs"]["etcd"].update(key=content["certs"]["k8s"]["key"]),
        "certs.etcd: the key is not the certificate's",
    ),
    "a key for a certificate": (
        lambda content: content["certs"]["k8s"].update(crt=content["certs"]["k8s"]["key"]),
        "certs.k8s.crt is no certificate",
    ),
}


@pytest.mark.parametrize("case", SPOILED)
def test_a_spoiled_bundle_is_one_error_that_quotes_nothing(case: str) -> None:
    change, refusal = SPOILED[case]
    content = exported()
    change(content)
    with pytest.raises(ConfigError) as failure:
        secrets.load(yaml.safe_dump(content))
    assert refusal in failure.value.what
    shown = "".join(traceback.format_exception(failure.value))
    assert not leaks(shown)


def test_everything_that_is_wrong_with_a_bundle_is_said_at_once() -> None:
    content = exported()
    for case in ("no secret", "a token of another form", "not base64", "a key of another CA"):
        SPOILED[case][0](content)
    with pytest.raises(ConfigError) as failure:
        secrets.load(yaml.safe_dump(content))
    refusals = [
        SPOILED[case][1] for case in ("no secret", "a token of another form", "a key of another CA", "not base64")
    ]
    assert len(failure.value.problems) == len(refusals)
    assert all(what in failure.value.what for what in refusals)


@pytest.mark.parametrize("authority", ["talos", "kubernetes"])
def test_a_new_authority_changes_nothing_else(authority: Literal["talos", "kubernetes"]) -> None:
    before = examples.bundle()
    after = secrets.with_new_authority(before, authority, examples.entropy(7), lambda: examples.NOW)
    changed = {field.name for field in fields(before) if getattr(before, field.name) != getattr(after, field.name)}
    assert changed == {authority}
    assert secrets.load(after.export()) == after
    old, new = (certificate(getattr(bundle, authority)) for bundle in (before, after))
    assert old.subject == new.subject
    assert old.public_key() != new.public_key()


def test_while_a_ca_is_rotated_machines_trust_both() -> None:
    before = examples.bundle()
    after = secrets.with_new_authority(before, "talos", examples.entropy(7), lambda: examples.NOW)
    cluster = replace(
        examples.plain_cluster(),
        accepted_talos_cas=(after.talos.certificate,),
        accepted_kubernetes_cas=(before.kubernetes.certificate,),
    )
    for document in (cluster.control_plane(Install(disk="/dev/sda")), cluster.worker(Install(disk="/dev/sda"))):
        wire = document.document()
        assert wire["machine"]["ca"]["crt"] == pki.base64_of(before.talos.certificate)
        assert wire["machine"]["acceptedCAs"] == [{"crt": pki.base64_of(after.talos.certificate)}]
        assert wire["cluster"]["acceptedCAs"] == [{"crt": pki.base64_of(before.kubernetes.certificate)}]


@pytest.mark.parametrize("text", ["", "[]", f"cluster: {{id: {CANARY}", f"a: b\n  {CANARY}: x: y"])
def test_a_text_that_is_no_bundle_is_an_error_without_the_text(text: str) -> None:
    with pytest.raises(ConfigError) as failure:
        secrets.load(text)
    assert not leaks("".join(traceback.format_exception(failure.value)))


def secret_texts() -> Iterator[str]:
    """Every secret of the example bundle, whole and in the forms in which it is passed on."""
    bundle = examples.bundle()
    pairs = (bundle.etcd, bundle.kubernetes, bundle.aggregator, bundle.talos)
    pems = [pair.key for pair in pairs] + [bundle.service_account_key]
    yield CANARY
    yield from (bundle.cluster_secret, bundle.bootstrap_token, bundle.trustd_token)
    assert bundle.secretbox_encryption_secret is not None
    yield bundle.secretbox_encryption_secret
    for pem in pems:
        yield pem.splitlines()[1]
        yield pki.base64_of(pem)[60:120]


def leaks(shown: str) -> list[str]:
    return [secret for secret in secret_texts() if secret in shown]


def test_no_secret_is_in_the_repr_of_anything() -> None:
    issued = talosconfig.issue(examples.bundle(), context="c", endpoints=("e",), entropy=examples.entropy())
    config = examples.control_plane_config()
    things: list[object] = [
        examples.bundle(),
        examples.site_cluster(),
        config,
        replace(config, patches=(Patch(name="p", level="node", documents=({"x": CANARY},)),)),
        Patch(name="p", level="node", documents=({"x": CANARY},)),
        issued,
        examples.bundle().talos,
        *config.documents,
        *examples.hgx_config().documents,
        *examples.all_documents(),
        MachineConfig(documents=(*config.documents[:1], *examples.all_documents())),
    ]
    for thing in things:
        for shown in (repr(thing), str(thing), f"{thing}", f"{[thing]}"):
            assert not leaks(shown), type(thing)
            assert issued.key.splitlines()[1] not in shown
    _, key = examples.authority()
    assert not [document for document in examples.all_documents() if key.splitlines()[1] in repr(document)]


def test_the_canary_test_would_notice() -> None:
    assert leaks(examples.bundle().export())
    assert leaks(examples.control_plane_config().render())


def test_an_error_while_building_shows_no_secret() -> None:
    twice = examples.registry_documents()
    with pytest.raises(ConfigError) as failure:
        MachineConfig(documents=(*twice, *twice))
    assert not leaks("".join(traceback.format_exception(failure.value)))


def issue(**changes: Any) -> talosconfig.TalosCredentials:
    given: dict[str, Any] = {"context": "site", "endpoints": ("10.5.0.11",), "now": lambda: examples.NOW}
    return talosconfig.issue(examples.bundle(), **(given | changes))


@pytest.mark.parametrize("role", talosconfig.ROLES)
def test_a_talosconfig_names_role_and_lifetime_in_its_certificate(role: talosconfig.Role) -> None:
    issued = issue(role=role, lifetime=timedelta(hours=8), nodes=("10.5.0.21",))
    content = yaml.safe_load(issued.render())
    context = content["contexts"][content["context"]]
    assert (context["endpoints"], context["nodes"]) == (["10.5.0.11"], ["10.5.0.21"])
    made = x509.load_pem_x509_certificate(base64.b64decode(context["crt"]))
    assert [attribute.value for attribute in made.subject] == [role]
    assert made.not_valid_after_utc == issued.not_after == examples.NOW + timedelta(hours=8)
    extended = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(extended) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    usage = made.extensions.get_extension_for_class(x509.KeyUsage).value
    assert (usage.digital_signature, usage.key_cert_sign) == (True, False)
    made.verify_directly_issued_by(certificate(examples.bundle().talos))
    assert base64.b64decode(context["ca"]).decode() == examples.bundle().talos.certificate


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"role": "admin"}, "no role is called 'admin'; allowed: os:admin"),
        ({"lifetime": timedelta(0)}, "over before it starts"),
        ({"lifetime": timedelta(days=4000)}, "outlive the cluster's Talos CA"),
        ({"now": lambda: datetime(2040, 1, 1, tzinfo=UTC)}, "outlive"),
    ],
)
def test_wrong_wishes_for_a_talosconfig_are_refused(changes: Any, refusal: str) -> None:
    with pytest.raises(ConfigError, match=refusal):
        issue(**changes)


def test_the_same_sources_give_the_same_talosconfig() -> None:
    assert issue(entropy=examples.entropy(3)).render() == issue(entropy=examples.entropy(3)).render()
    assert issue().key != issue().key


def test_ec_keys_lie_in_the_curves_order() -> None:
    for octet in (b"\x00", b"\xff"):
        number = Entropy(octet.__mul__).ec_key().private_numbers().private_value
        assert 0 < number < ec.SECP256R1.group_order
