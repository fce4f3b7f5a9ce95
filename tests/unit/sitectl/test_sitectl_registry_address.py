"""What may stand for a registry on a command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sitectl.shell.errors import Exit, SitectlError
from sitectl.shell.registry_address import REGISTRY
from tests.unit.sitectl.sites_to_work_on import run

pytestmark = pytest.mark.row("opening 14")


@pytest.mark.parametrize(
    "address",
    ["registry.site.example", "mirror:5000", "localhost", "10.0.0.1:5000/all/of-it", "[fd00::1]:5000", "a.b/c_d"],
)
def test_a_registry_with_or_without_a_prefix_is_taken_as_it_is(address: str) -> None:
    assert REGISTRY.convert(address, None, None) == address


@pytest.mark.parametrize(
    "address",
    [
        "https://a.example",
        "a.example/",
        "registry",
        "registry/all",
        "me:secret@a.example",
        "",
        "a.example/All",
        "a.b//c",
        "a.b/c._d",
    ],
)
def test_anything_else_is_refused_with_the_form(address: str) -> None:
    with pytest.raises(SitectlError, match="names no registry") as error:
        REGISTRY.convert(address, None, None)
    assert "secret" not in error.value.text()
    assert error.value.status == Exit.USAGE
    assert "HOST[:PORT][/PREFIX]" in error.value.problem.allowed


@pytest.mark.parametrize("words", ["list --to", "lock --from", "pack --out disk --from", "push disk --to"])
def test_each_command_refuses_a_scheme(words: str, checkout_folder: Path) -> None:
    result = run(checkout_folder, "bundle", *words.split(), "https://registry.site.example")
    assert result.status == Exit.USAGE
    assert f"{words.split()[-1]} names no registry" in result.err
