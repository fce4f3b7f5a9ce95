"""One reader for all YAML files: what is not text within the limits is reported, in every kind of file."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from floor.problems import SiteError
from floor.reading.document import read, read_file
from floor.reading.files import LARGEST_BYTES
from policy import rules_file
from policy.waivers import RulesSpec
from stacks.facts import catalogue, compatibility, hardware, versions
from stacks.plan.site_plan import plan_file
from stacks.site.loader import KEY

pytestmark = pytest.mark.row("opening 13")

ROOT = Path(__file__).parents[3]
LAB = ROOT / "Pulumi.lab.yaml"


def read_site(folder: Path) -> object:
    return plan_file(folder / "Pulumi.rack.yaml").site


def read_rules(folder: Path) -> object:
    return rules_file.read(folder, "rack")


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "site": ("Pulumi.rack.yaml", read_site),
    "rules": ("rules.rack.yaml", read_rules),
    "catalogue": ("fast.yaml", lambda _: catalogue.load.__wrapped__("fast")),
    "hardware": ("fast.yaml", lambda _: hardware._load.__wrapped__("fast")),
    "versions": ("versions.yaml", lambda _: versions.load.__wrapped__()),
    "compatibility": ("compatibility.yaml", lambda _: compatibility.table.__wrapped__()),
}


@pytest.fixture(params=READERS)
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each kind of file, where the readers look for it."""
    if request.param == "site":
        return "site"
    for module in (catalogue, hardware):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    for module, name in ((versions, "versions.yaml"), (compatibility, "compatibility.yaml")):
        monkeypatch.setattr(module, "FILE", tmp_path / name)
    return str(request.param)


def refused(kind: str, folder: Path) -> str:
    """What the reader says, within a few seconds."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            READERS[kind][1](folder)
        except BaseException as error:  # noqa: BLE001 - the thread hands it on
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "the reader waits"
    assert len(errors) == 1 and isinstance(errors[0], SiteError), errors
    assert all(problem.what and problem.fix for problem in errors[0].problems)
    return str(errors[0])


BROKEN: dict[str, tuple[bytes, str]] = {
    "brackets": (b"a: " + b"[" * 900, ":1: nested deeper than 100 levels"),
    "dashes": (b"- " * 50_000, ":1: nested deeper than 100 levels"),
    "digits": (b"a: 1\nb: " + b"9" * 5000, ":2:b: a number of 5000 characters"),
    "beyond-int64": (b"a: 9223372036854775808", ":1:a: 9223372036854775808 is beyond 9223372036854775807"),
    "below-int64": (b"a: -9223372036854775809", ":1:a: -9223372036854775809 is beyond"),
    "infinite": (b"a: 1e400", ":1:a: 1e400 is no finite number"),
    "hex": (b"a: 0x" + b"f" * 5000, ":1:a: a number of 5002 characters"),
    "merged-twice": (b"x: &x {}\na: {<<: *x, <<: *x}", ":2:a.<<: written twice, here and on line 2"),
    "self-alias": (b"x: &x [*x]", ":1:x.0: the anchor holds itself"),
    "latin-1": (b"a: 1\nb: caf\xe9", ":2: cannot be read: byte 12 is no UTF-8"),
    "nul": (b"a: 1\nb: \x00", ":2: not YAML: a character that no text holds, #x0000"),
    "too-large": (b"#" * (LARGEST_BYTES + 1), f": cannot be read: larger than {LARGEST_BYTES:,} bytes"),
    "list-as-key": (b"? [a]\n: b", ":1: a key is not a word"),
    "two-documents": (b"a: 1\n---\nb: 1", ":2: not YAML: a second document begins here"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_text_is_a_problem_with_its_line(kind: str, case: str, tmp_path: Path) -> None:
    content, says = BROKEN[case]
    name = READERS[kind][0]
    if kind == "site" and case in ("digits", "beyond-int64", "below-int64", "infinite", "hex"):
        content = f"config:\n  {KEY}:\n    ".encode() + content.replace(b"\n", b"\n    ")
        says = says.replace(":2:", ":4:").replace(":1:", ":3:")
    (tmp_path / name).write_bytes(content)
    assert f"{name}{says}" in refused(kind, tmp_path)


def test_what_is_no_file_is_reported_and_never_waited_for(kind: str, tmp_path: Path) -> None:
    path = tmp_path / READERS[kind][0]
    os.mkfifo(path)
    assert "cannot be read: a FIFO, not a file" in refused(kind, tmp_path)
    path.unlink()
    path.symlink_to("/dev/zero")
    assert "cannot be read: a device, not a file" in refused(kind, tmp_path)
    path.unlink()
    path.mkdir()
    assert "cannot be read: a directory, not a file" in refused(kind, tmp_path)


def test_an_empty_file_of_facts_is_an_error_of_that_file(kind: str, tmp_path: Path) -> None:
    (tmp_path / READERS[kind][0]).write_text("")
    if kind == "rules":
        assert read_rules(tmp_path) == RulesSpec(), "it says nothing, and is right"
        return
    assert READERS[kind][0] in refused(kind, tmp_path)


@pytest.mark.parametrize("broken", ["other:\n  a: {<<: {}, <<: {}}\n", "other: &x [*x]\n", "other: {a: 1, a: 2}\n"])
def test_what_the_engine_refuses_outside_of_the_sites_section_is_refused(broken: str, tmp_path: Path) -> None:
    """The engine reads the whole file; values in other programs' sections are theirs."""
    path = tmp_path / LAB.name
    path.write_text(LAB.read_text() + broken)
    with pytest.raises(SiteError) as caught:
        plan_file(path)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].line == LAB.read_text().count("\n") + broken.count("\n")
    path.write_text(LAB.read_text() + "other: {a: yes, b: 2027-01-31, c: 0123}\n")
    assert plan_file(path).site.name == "lab"


def test_a_tab_behind_a_colon_reads_alike_in_every_file(tmp_path: Path) -> None:
    (tmp_path / "rules.rack.yaml").write_text("sovereign:\ttrue\n")
    assert rules_file.read(tmp_path, "rack") == RulesSpec(sovereign=True)


def test_a_day_of_a_waiver_needs_no_quotes_and_an_engines_does() -> None:
    assert read("expires: 2027-01-31", plain_days=True).values == {"expires": "2027-01-31"}
    assert read("expires: 2027-01-31").problems


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_file(tmp_path / "a.yaml").values == {"a": 1}


@pytest.mark.parametrize("role", ["[hgx]", "{}", "[[]]", "{a: b}"])
def test_a_role_that_is_no_word_is_one_problem_at_its_line(role: str, tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.rack.yaml"
    text = (ROOT / "Pulumi.prod.yaml").read_text()
    assert "infra-1: {role: worker," in text
    path.write_text(text.replace("infra-1: {role: worker,", f"infra-1: {{role: {role},"))
    with pytest.raises(SiteError) as caught:
        plan_file(path)
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "infra-1: {role" in line)
    assert ("cluster.machines.nodes.infra-1.role", line) in [
        (problem.key, problem.line) for problem in caught.value.problems
    ]


SHAPES = [
    *((kind, text, "not a section of keys") for kind in ("catalogue", "hardware", "versions") for text in ("", "[]")),
    *(("compatibility", text, "not a list") for text in ("", "{}")),
]
GOT = {"": "nothing", "[]": "a list", "{}": "a section"}


@pytest.mark.parametrize(("kind", "content", "says"), SHAPES, indirect=["kind"])
def test_a_file_of_facts_of_another_shape_says_what_is_allowed(
    kind: str, tmp_path: Path, content: str, says: str
) -> None:
    (tmp_path / READERS[kind][0]).write_text(content)
    message = refused(kind, tmp_path)
    assert f"{says}; got {GOT[content]}; allowed: lines" in message
    assert "instance of" not in message


def test_a_tab_behind_a_colon_is_reported_with_the_one_that_indents() -> None:
    (problem,) = read("config:\n  site:\n    name:\tberlin\n    cluster:\n    \tgpu: h200-sxm\n").problems
    assert (problem.line, problem.what) == (3, "not YAML: a tab where a space has to be; a tab also indents line 5")
    assert problem.fix == "write spaces in the place of tabs"
