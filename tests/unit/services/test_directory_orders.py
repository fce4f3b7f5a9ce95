"""What the directory decides without its database: the form of a key, and what it refuses and how."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from pathlib import Path

import pytest

from services.directory import __main__ as command
from services.directory import variables
from services.directory.keys import digest_of, new_key
from services.directory.orders import AskedBy, KeyOrder, RotationOrder, asked_by, parsed
from services.directory.settings import Settings
from services.failure import ServiceError, shown

KNOWN = {"search": ["chat", "embed"], "sales": ["chat"]}


def message(body: object) -> str:
    with pytest.raises(ServiceError) as refused:
        parsed(KeyOrder, json.dumps(body).encode()).check(KNOWN)
    assert refused.value.status == 422
    assert "; fix: " in refused.value.message
    return refused.value.message


def test_a_key_is_random_and_known_by_a_digest_of_all_of_it() -> None:
    keys = [new_key(b"pepper") for _ in range(50)]
    assert len({key.text for key in keys}) == 50
    for key in keys:
        assert re.fullmatch(r"sk-[a-z2-7]{10}-[a-z2-7]{52}", key.text)
        assert key.text.startswith(f"sk-{key.id}-")
        assert key.digest == hmac.new(b"pepper", key.text.encode(), hashlib.sha256).hexdigest()
        assert key.digest != digest_of(key.text, b"another")


def test_all_that_is_wrong_is_named_at_once() -> None:
    shown_text = message({"tenant": 1, "expires_in_s": 0, "models": [], "scope": "all"})
    for field in ("tenant: ", "name: ", "expires_in_s: ", "models: ", "scope: "):
        assert field in shown_text
    shown_text = message({"tenant": "search", "name": "Bad_Name", "models": ["chat", "gpt"]})
    assert "name: not a name, got 'Bad_Name'" in shown_text
    assert "models: no model of search, got 'gpt', allowed: chat, embed" in shown_text


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            {"tenant": "finance", "name": "ci"},
            "tenant: no tenant of the site's file, got 'finance', allowed: sales, se",
        ),
        (
            {"tenant": "sales", "name": "ci", "models": ["embed"]},
            "models: no model of sales, got 'embed', allowed: chat",
        ),
        ({"tenant": "sales", "name": "ci", "expires_in_s": "90d"}, "expires_in_s: input should be a valid integer"),
        ({"tenant": "sales", "name": "ci", "expires_in_s": 1e12}, "expires_in_s: input should be"),
        ({"tenant": "sales", "name": "x" * 41}, "name: not a name"),
        (["no", "object"], "body: input should be an object"),
    ],
)
def test_an_order_that_cannot_be_met_is_refused(body: object, says: str) -> None:
    assert says in message(body)


@pytest.mark.parametrize("body", [{}, {"overlap_s": -1}, {"overlap_s": 1.5}, {"overlap_s": True}])
def test_an_overlap_is_whole_seconds(body: object) -> None:
    with pytest.raises(ServiceError, match="overlap_s: "):
        parsed(RotationOrder, json.dumps(body).encode())


def test_no_message_quotes_a_key() -> None:
    key = new_key(b"pepper").text
    bodies = (
        {"tenant": key, "name": key, "models": [key], key: key},
        {"name": "x", "tenant": "sales", "models": [key]},
    )
    shown_text = [message(body) for body in bodies]
    with pytest.raises(ServiceError) as refused:
        asked_by({variables.ACTOR_HEADER: f"bob {key[:60]}"})
    for text in (*shown_text, refused.value.message, shown(f"0123456789 {key}")):
        assert "sk-(hidden)" in text
        assert key[14:20] not in text


@pytest.mark.parametrize("header", [None, "", " bob", "bob\n", "b" * 61, "b\u00f6b"])
def test_the_audit_gets_a_name(header: str | None) -> None:
    with pytest.raises(ServiceError, match="x-directory-actor"):
        asked_by({} if header is None else {variables.ACTOR_HEADER: header})
    bob = {variables.ACTOR_HEADER: "Bob <bob@example.com>"}
    assert asked_by(bob) == AskedBy("Bob <bob@example.com>", "")
    with pytest.raises(ServiceError, match="x-directory-source"):
        asked_by(bob | {variables.SOURCE_HEADER: f"{header or 'b'}\n"})


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("database_url", "pepper", "operator_token", "reader_token", "tenants")}
    settings = Settings(**files)
    for file in files.values():
        with pytest.raises(ServiceError, match=file.name):
            settings.check()
        file.write_text('{"tenants": {"search": {"models": ["chat"], "tier": null}}, "keys": []}\n')
    settings.check()
    assert settings.models_by_tenant() == {"search": ["chat"]}
    files["pepper"].write_text(" \n")
    with pytest.raises(ServiceError, match="an empty file"):
        settings.pepper_bytes()


def test_each_file_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in variables.FILES:
        rest = [word for other in variables.FILES if other != option for word in (other, str(tmp_path / "none"))]
        with pytest.raises(SystemExit):
            command.main(rest)
        assert f"required: {option}" in capsys.readouterr().err
        assert command.main([*rest, option, str(tmp_path / "none")]) == 1
        assert f"error: {tmp_path / 'none'} cannot be used" in capsys.readouterr().err
