"""A site's mistakes are reported all at once, with file, key, value, allowed values and fix."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from pydantic import Field, ModelWrapValidatorHandler, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from floor.problems import SiteError, WrongValueError
from floor.spec import Spec
from stacks.plan.site_plan import plan_file, plan_values
from stacks.site.loader import KEY
from stacks.site.reading import fields, validation

ROOT = Path(__file__).parents[3]
LAB: dict[str, Any] = yaml.safe_load((ROOT / "Pulumi.lab.yaml").read_text())["config"][KEY]


def lab(**changes: Any) -> dict[str, Any]:
    site = copy.deepcopy(LAB)
    for path, value in changes.items():
        *parents, last = path.split("__")
        section = site
        for part in parents:
            section = section[part.replace("_dash_", "-")]
        section[last] = value
    return site


@pytest.mark.parametrize("file", sorted(path.name for path in ROOT.glob("Pulumi.*.yaml")))
def test_every_committed_site_loads(file: str) -> None:
    assert plan_file(ROOT / file).site.name


def test_unknown_key_names_the_near_one() -> None:
    with pytest.raises(SiteError, match=r"site\.yaml:gateway\.replica: unknown key; did you mean 'replicas'\?"):
        plan_values(lab(gateway__replica=3), "site.yaml")


def test_unknown_key_without_a_near_one_lists_what_is_allowed() -> None:
    with pytest.raises(
        SiteError, match=r"site\.yaml:storage\.zzz: unknown key; allowed: longhorn, read_bytes_per_s, shared_read_by"
    ):
        plan_values(lab(storage={"zzz": 1}), "site.yaml")


def test_model_settings_are_checked_below_their_names() -> None:
    site = lab()
    site["models"]["glm-5-1"]["server"]["replica"] = 2
    site["models"]["glm-5-1"]["server"]["replicas"] = 0
    with pytest.raises(SiteError) as caught:
        plan_values(site, "site.yaml")
    message = str(caught.value)
    assert "site.yaml: 2 errors in the site" in message
    assert "models.glm-5-1.server.replica: unknown key; did you mean 'replicas'?" in message
    assert "models.glm-5-1.server.replicas: out of range; got 0; allowed: a whole number from 1 to" in message


def test_names_that_lead_nowhere_say_what_there_is() -> None:
    site = lab()
    site["models"]["glm-5-1"]["catalogue"] = "glm-5.2"
    site["tenants"]["acme"]["models"] = ["glm-5-2"]
    with pytest.raises(SiteError) as caught:
        plan_values(site, "site.yaml")
    message = str(caught.value)
    # Another version is another model, so nothing is suggested in its place.
    assert "models.glm-5-1.catalogue: is not in the catalogue; got 'glm-5.2'; allowed: " in message
    assert "tenants.acme.models: names glm-5-2, models has glm-5-1, qwen3-32b" in message


def test_what_is_named_is_looked_up_beside_other_mistakes() -> None:
    site = lab(gateway__replica=3)
    site["models"]["glm-5-1"]["catalogue"] = "glm-9"
    site["models"]["qwen3-32b"] = 7
    site["tenants"]["acme"]["models"] = ["glm-5-1", "glm-5-2", "qwen3-32b"]
    with pytest.raises(SiteError) as caught:
        plan_values(site, "site.yaml")
    assert [problem.key for problem in caught.value.problems] == [
        "gateway.replica",
        "models.qwen3-32b",
        "models.glm-5-1.catalogue",
        "tenants.acme.models",
    ]


def test_models_that_do_not_fit_are_all_named() -> None:
    site = lab()
    for model, gpus in (("glm-5-1", 4), ("qwen3-32b", 1)):
        site["models"][model]["server"]["gpus"] = gpus
    site["models"]["glm-again"] = {**site["models"]["glm-5-1"], "aliases": []}
    with pytest.raises(SiteError, match=r"2 errors in the site") as caught:
        plan_values(site, "site.yaml")
    message = str(caught.value)
    assert "site.yaml:models.glm-5-1.server.gpus: zai-org/GLM-5.1-FP8 does not fit" in message
    assert "site.yaml:models.glm-again.server.gpus: zai-org/GLM-5.1-FP8 does not fit" in message
    assert message.count("fix: give a replica 8 GPUs (TP8)") == 2


def test_missing_section() -> None:
    site = lab()
    del site["cluster"]
    with pytest.raises(
        SiteError,
        match=r"site\.yaml:cluster: missing; allowed: a section with gpu, gpu_stack, kubeconfig, machines, "
        r"rdma_devices\n"
        r"    fix: add cluster",
    ):
        plan_values(site, "site.yaml")


def test_https_needs_a_certificate() -> None:
    with pytest.raises(SiteError, match=r"site\.yaml:gateway: port 8443 needs certificate_secret"):
        plan_values(lab(gateway={"port": 8443}, certificates={}), "site.yaml")


def test_names_must_suit_kubernetes() -> None:
    site = lab(tenants={"Acme_Corp": {"models": [], "keys": {"laptop": {}}}})
    with pytest.raises(SiteError, match=r"site\.yaml:tenants\.Acme_Corp: this name is not 1 to 40 lower-case"):
        plan_values(site, "site.yaml")


def test_unknown_gpu() -> None:
    with pytest.raises(SiteError, match=r"cluster\.gpu: is not in the hardware table; got 'h900'; allowed: .*h200-sxm"):
        plan_values(lab(cluster={"kubeconfig": "k", "gpu": "h900"}), "site.yaml")


def test_file_that_is_no_stack_file(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="no such file"):
        plan_file(tmp_path / "Pulumi.none.yaml")
    empty = tmp_path / "Pulumi.empty.yaml"
    empty.write_text("config: {}\n")
    with pytest.raises(SiteError, match=r"config\.inference-platform:site is missing"):
        plan_file(empty)
    broken = tmp_path / "Pulumi.broken.yaml"
    broken.write_text("config: [\n")
    with pytest.raises(SiteError, match="not YAML"):
        plan_file(broken)


def _disagreement(what: str, *path: str) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError("value_error", "{e}", {"e": what}), loc=path, input=None)


class Door(Spec):
    """A section with kinds of keys that no section of a site has yet."""

    open: bool = False
    """Whether it is open."""
    rooms: tuple[int | str, ...] = ()
    """Numbers or names."""
    sides: dict[Literal["left", "right"], Spec] = Field(default_factory=dict)
    """Names out of a list."""
    width_m: float | None = None
    """Width."""

    @model_validator(mode="wrap")
    @classmethod
    def _wrapped(cls, values: Any, handler: ModelWrapValidatorHandler[Door]) -> Door:
        """Speaks of keys below values that hold none, and of a key that was there before it was found wrong."""
        door = handler(values)
        if "ghost" in door.rooms:
            raise ValidationError.from_exception_data(
                "Door", [_disagreement("who lives there?", "rooms", "0", "name", "first")]
            )
        if door.rooms and "open" not in values:
            raise ValidationError.from_exception_data("Door", [_disagreement("rooms behind what?", "rooms")])
        return door

    @field_validator("width_m")
    @classmethod
    def _narrow(cls, value: float) -> float:
        if value > 3:
            raise WrongValueError(f"{value} m is no door", got=f"{value:g}", fix="call it a gate")
        return value


class House(Spec):
    """Replaces a site."""

    door: Door
    """The door."""


@pytest.mark.parametrize(
    ("door", "answer"),
    [
        ({"open": "true"}, [("door.open", "not true or false", "'true'", "take the quotes off")]),
        (
            {"open": 1},
            [("door.open", "not true or false", "1", "correct it, or leave the key out for its default, false")],
        ),
        ({"open": True, "rooms": [1, True]}, [("door.rooms.1", "not a whole number or text", "true", "correct it")]),
        (
            {"open": True, "rooms": ["ghost"]},
            [("door.rooms.0.name.first", "who lives there?", "", "change one of them")],
        ),
        ({"open": "true", "rooms": ["a"]}, [("door.open", "not true or false", "'true'", "take the quotes off")]),
        ({"width_m": "1.5"}, [("door.width_m", "not a number", "'1.5'", "take the quotes off")]),
        ({"width_m": True}, [("door.width_m", "not a number", "true", "correct it, or leave the key out")]),
        ({"width_m": 4}, [("door.width_m", "4.0 m is no door", "4", "call it a gate")]),
        ({"sides": {"up": {}}}, [("door.sides.up", "not a name that may stand here", "", "rename it")]),
        ({"open": True, "rooms": [1, "b"], "width_m": 2, "sides": {"left": {}}}, []),
    ],
)
def test_other_kinds_of_keys_are_reported_as_well(
    door: dict[str, Any], answer: list[tuple[str, str, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also below a validator that wraps its section."""
    monkeypatch.setattr(validation, "SiteConfig", House)
    monkeypatch.setattr(fields, "SiteConfig", House)
    checked = validation.check({"door": door})
    assert [(problem.key, problem.what, problem.got, problem.fix) for problem in checked.problems] == answer
    assert checked.site or answer
