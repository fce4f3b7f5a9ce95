"""Talking to an image factory: what is asked, what is repeated, what each failure says."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from talos.factory.client import ImageFactory
from talos.factory.schematic import FactoryError, Schematic
from talos.factory.site import FactorySite

SCHEMATIC = Schematic(extensions=("siderolabs/iscsi-tools",))
Handler = Callable[[httpx.Request], httpx.Response]


class Factory:
    """Answers as it is told, one answer a request, and remembers what it was asked."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.pauses: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, site: FactorySite | None = None) -> ImageFactory:
        return ImageFactory(site, transport=httpx.MockTransport(self), sleep=self.pauses.append)


def created(schematic_id: str = SCHEMATIC.id) -> httpx.Response:
    return httpx.Response(201, json={"id": schematic_id, "schematic": "..."})


def test_a_schematic_is_posted_as_it_was_hashed() -> None:
    factory = Factory(created())
    assert factory.client().post_schematic(SCHEMATIC) == SCHEMATIC.id
    assert str(factory.requests[0].url) == "https://factory.talos.dev/schematics"
    assert factory.requests[0].content == SCHEMATIC.canonical()


def test_another_id_is_an_error_that_names_both() -> None:
    with pytest.raises(FactoryError) as raised:
        Factory(created("f" * 64)).client().post_schematic(SCHEMATIC)
    assert "f" * 64 in str(raised.value)
    assert SCHEMATIC.id in str(raised.value)


@pytest.mark.parametrize("proxy", ["socks5://:hidden@127.0.0.1:1", "gopher://:hidden@127.0.0.1:1", "http://[:hidden"])
def test_a_proxy_that_cannot_be_used_is_an_error_without_its_password(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(FactoryError, match="cannot be asked through the proxy of the environment") as raised:
        ImageFactory()
    assert "hidden" not in str(raised.value)


def test_what_passes_is_asked_again() -> None:
    factory = Factory(httpx.ConnectError("refused"), httpx.Response(503), httpx.ReadTimeout("slow"), created())
    assert factory.client().post_schematic(SCHEMATIC) == SCHEMATIC.id
    assert len(factory.pauses) == 3


def test_the_factory_may_ask_for_patience() -> None:
    factory = Factory(httpx.Response(429, headers={"retry-after": "7"}), created())
    factory.client().post_schematic(SCHEMATIC)
    assert factory.pauses == [7.0]


@pytest.mark.parametrize(
    ("status", "says"),
    [(400, "not valid"), (401, "Enterprise"), (402, "Enterprise"), (404, "check the Talos version"), (500, "own log")],
)
def test_what_does_not_pass_is_not(status: int, says: str) -> None:
    factory = Factory(httpx.Response(status, text="because\n"))
    with pytest.raises(FactoryError, match=f"HTTP {status}: because") as raised:
        factory.client().post_schematic(SCHEMATIC)
    assert says in raised.value.problem.fix
    assert factory.pauses == []


def test_no_answer_at_all() -> None:
    factory = Factory(*[httpx.ConnectError("refused")] * 5)
    with pytest.raises(FactoryError, match="no answer, asked 5 times"):
        factory.client().post_schematic(SCHEMATIC)
    assert len(factory.pauses) == 4


def test_an_answer_that_is_not_the_factory_s() -> None:
    with pytest.raises(FactoryError, match="without a schematic id"):
        Factory(httpx.Response(200, text="<html>")).client().post_schematic(SCHEMATIC)


def test_extensions_are_those_of_a_version() -> None:
    factory = Factory(httpx.Response(200, json=[{"name": "siderolabs/a", "ref": "r/a:v1"}]))
    client = factory.client(FactorySite("http://factory.site:8080"))
    assert client.official_extensions("v1.13.9")[0].version == "v1"
    assert str(factory.requests[0].url) == "http://factory.site:8080/version/v1.13.9/extensions/official"


def test_links_of_the_public_factory() -> None:
    assets = FactorySite().assets("abc", "v1.13.9")
    assert assets.installer == "factory.talos.dev/metal-installer/abc:v1.13.9"
    assert assets.iso == "https://factory.talos.dev/image/abc/v1.13.9/metal-amd64.iso"
    assert assets.pxe == "https://pxe.talos.dev/pxe/abc/v1.13.9/metal-amd64"


def test_links_of_a_factory_of_one_s_own() -> None:
    site = FactorySite("http://factory.site:8080/", registry="registry.site")
    assets = site.assets("abc", "v1.13.9", secure_boot=True)
    assert assets.installer == "registry.site/metal-installer-secureboot/abc:v1.13.9"
    assert assets.pxe == "http://factory.site:8080/pxe/abc/v1.13.9/metal-amd64-secureboot"
    assert assets.disk_image == "http://factory.site:8080/image/abc/v1.13.9/metal-amd64-secureboot.raw.xz"
    assert FactorySite("http://factory.site:8080").assets("abc", "v1.13.9").installer.startswith("factory.site:8080/")


@pytest.mark.parametrize("version", ["1.13.9", "v1.13", "latest", "v1.13.9/../x"])
def test_a_version_is_written_in_full(version: str) -> None:
    with pytest.raises(FactoryError, match="allowed like"):
        FactorySite().assets("abc", version)


@pytest.mark.parametrize("url", ["factory.site", "ftp://factory.site", "https://user:canary@factory.site"])
def test_an_address_is_a_web_address_without_a_secret(url: str) -> None:
    with pytest.raises(FactoryError) as raised:
        FactorySite(url)
    assert "canary" not in str(raised.value)
