"""The pages are true: their commands are understood, their keys exist, their counts are those of the code."""

from __future__ import annotations

import csv
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from components.specs.weights import WeightsSpec
from lab.install import parts
from policy.listing import RULES
from sitectl.shell.cli import COMMAND_LINE
from sitectl.shell.errors import Exit
from stacks.facts import catalogue
from stacks.facts.hardware import GPUS
from stacks.plan.site_plan import plan_file
from stacks.proof.layouts import Layout
from stacks.site.model import SiteConfig, StorageSpec
from stacks.site.reference import keys
from tests import documented
from tests.command_lines import help_text, refusal
from tests.fixtures.previews import kept
from tests.unit.proof import test_proof_second_source
from tests.unit.sitectl.sites_to_work_on import ROOT, make_checkout, run
from tests.unit.sitectl.test_sitectl_proposals import COMMAND_LINES

pytestmark = pytest.mark.row("C.05")

DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
WALK = DOCS / "how-to" / "from-rack-to-first-token.md"
PARTS = [family.name for family in parts.GO_FAMILIES] + ["system", "envoy", "crds", "charts"]
COUNTS = {"eight": 8, "nine": 9, "ten": 10, "eleven": 11, "five": 5, "six": 6, "seven": 7}


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands(page: Path) -> list[tuple[str, str]]:
    """(module, arguments) of each command of ours on a page, in fences and between backticks."""
    text = page.read_text().replace("\\\n", " ")
    blocks = re.findall(r"^ *```[^\n]*\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL))
    shown_commands = []
    for line in [*lines, *spans]:
        if match := re.search(r"python -m (sitectl|talos|ci\.\w+)\b([^|>]*)", line):
            shown_commands.append((match[1], re.split(r"\s{2,}#", match[2])[0]))
    return shown_commands


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_commands_of_a_page_are_understood(page: Path) -> None:
    for module, words in commands(page):
        arguments = shlex.split(words)
        if module == "sitectl":
            continue  # test_sitectl_is_asked_for_what_it_can_do
        # A page may name a command without the arguments that its help tells.
        if len(arguments) <= 1:
            continue
        assert refusal(COMMAND_LINES[module], arguments) == "", f"python -m {module}{words}"


def test_there_are_commands_on_the_pages() -> None:
    assert sum(len(commands(page)) for page in PAGES) > 60


@pytest.mark.slow
def test_the_way_from_the_rack_begins_with_commands_that_work(tmp_path: Path) -> None:
    own = make_checkout(tmp_path / "own", sites=())
    ours = [shlex.split(words) for module, words in commands(WALK) if module == "sitectl"]
    walked = [words for words in ours if words and words[0] in ("init", "validate", "proof", "rules")]
    assert [words[0] for words in walked] == ["init", "validate", "proof", "rules"]
    for words in walked:
        result = run(own, *words)
        assert result.status == Exit.OK, result.err + result.out


def test_options_that_the_way_names_are_those_of_init() -> None:
    named = set(re.findall(r"`(--[a-z-]+)`", WALK.read_text()))
    assert {"--network", "--router", "--vip"} <= named
    assert named - set(re.findall(r"--[a-z-]+", help_text(COMMAND_LINE, "init"))) == set()


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_keys_of_a_site_exist(page: Path) -> None:
    """A page named keys that no site can set."""
    known = {key.path for key in keys(SiteConfig)}
    known |= {path.rpartition(".")[0] for path in known}
    named = re.findall(
        r"`((?:cluster|gateway|storage|prices|crds|models|tenants|tiers)\.[a-z_.<>]+)`", page.read_text()
    )
    ours = [re.sub(r"<\w+>", "<name>", path) for path in named if not path.endswith((".py", ".yaml", ".md"))]
    # The domain of Services.
    known.add("cluster.local")
    lost = [path for path in ours if path not in known and not path.startswith("models.<name>.settings")]
    assert lost == []


def test_the_second_source_is_as_large_as_the_page_says() -> None:
    marks = getattr(test_proof_second_source.test_both_sources_agree, "pytestmark")  # noqa: B009 - mypy knows no marks
    (mark,) = [mark for mark in marks if mark.name == "parametrize"]
    cases: list[tuple[str, str, Layout]] = mark.args[1]
    text = " ".join((DOCS / "proof.md").read_text().split())
    match = re.search(r"`make test-all` compares (\d+) steps of (\w+) models on (\w+) kinds of GPU", text)
    assert match
    counts = (int(match[1]), COUNTS[match[2]], COUNTS[match[3]])
    assert counts == (3 * len(cases), len({name for name, _, _ in cases}), len({gpu for _, gpu, _ in cases}))
    with (ROOT / "tests" / "unit" / "proof" / "aiconfigurator-0.12.csv").open() as stream:
        rows = list(csv.reader(line for line in stream if not line.startswith("#")))
    assert f"{len(rows) - 1} recorded step times" in text


def test_the_blocks_of_the_pages_are_the_reference_sites() -> None:
    page, layouts = DOCS / "proof.md", DOCS / "layouts.md"
    (shown,) = (content for _, content in documented.fences(page) if content.startswith("glm-5-1: "))
    printed = plan_file(ROOT / "Pulumi.prod.yaml").texts
    assert shown.rstrip("\n") in [block.rstrip("\n") for block in printed]
    reported = set(re.findall(r"^  (\w[\w ]*?)  ", shown, re.MULTILINE)) - {"layout"}
    legend = page.read_text().partition("| line | shows |")[2].partition("\n\n")[0]
    assert [label for label in reported if f"`{label}`" not in legend] == []
    (placement,) = (content for _, content in documented.fences(layouts) if content.startswith("placement: "))
    (storage,) = (content for _, content in documented.fences(layouts) if content.startswith("storage: "))
    (gateway,) = (content for _, content in documented.fences(layouts) if content.startswith("gateway: "))
    assert storage.rstrip("\n") in printed
    assert gateway.rstrip("\n") in printed
    (placed,) = (block.splitlines() for block in printed if block.startswith("placement: "))
    lines = placement.splitlines()
    assert lines[:-1] == placed[: len(lines) - 1]
    assert placed[len(lines) - 1].startswith(lines[-1].removesuffix(", ..."))


def test_the_figures_of_the_page_are_the_reference_sites() -> None:
    page = DOCS / "how-to" / "storage.md"
    plan = plan_file(ROOT / "Pulumi.prod.yaml")
    (storage,) = (content for _, content in documented.fences(page) if content.startswith("storage: "))
    assert storage.rstrip("\n") in plan.texts
    rows = dict(re.findall(r"^\| ([\w-]+) \| ([\d.]+) GB \|", page.read_text(), re.MULTILINE))
    weights = {name: model.stable.server.weight_bytes for name, model in plan.models.items()}
    assert rows == {name: f"{size / 1e9:.3g}" for name, size in weights.items()}
    rate = plan.site.storage.shared_read_bytes_per_s or 0
    assert f"at {rate / 1e9:g} GB/s for all, as `shared_read_bytes_per_s` of the reference site" in page.read_text()
    for readers, count in ((1, "1,260 s"), (2, "2,520 s")):
        assert f"{plan.proofs['glm-5-1'].order.read_s(readers):,.0f} s" == count
        assert f" {count}" in page.read_text()


def test_starts_from_both_places_take_as_long_as_the_page_states_for_the_defaults() -> None:
    page = (DOCS / "how-to" / "bring-weights.md").read_text()
    (row,) = re.findall(r"^\| 756 GB into 4 replicas that start together \| (.+) \| (.+) \|$", page, re.MULTILINE)
    order = plan_file(ROOT / "Pulumi.prod.yaml").proofs["glm-5-1"].order
    places = (StorageSpec(), StorageSpec(weights=WeightsSpec(place="nodes", revisions=2)))
    for cell, storage in zip(row, places, strict=True):
        rates = (storage.replica_reads_bytes_per_s, storage.replicas_read_bytes_per_s)
        started = replace(order, storage_bytes_per_s=rates[0], shared_bytes_per_s=rates[1])
        assert cell.startswith(f"{started.read_s(4):,.0f} s")


def test_the_recordings_are_as_many_as_the_page_says() -> None:
    recorded = len(kept.names())
    assert f"Expected verdicts of {recorded} changes" in (DOCS / "sitectl.md").read_text()


def test_counts_of_the_changelog_are_those_of_the_code() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert f"{len(catalogue.names())} models, {len(GPUS)} kinds of GPU" in text
    assert f"{len(RULES)} rules over a site's resources" in text
    assert f"why: {len(RULES)} rules; not one per point" in (DOCS / "requirements.yaml").read_text()


def test_the_lab_page_names_every_part() -> None:
    text = (DOCS / "lab-tools.md").read_text()
    assert [name for name in PARTS if f"`{name}`" not in text] == []


def test_the_glossary_has_the_words_of_the_output() -> None:
    words = set(re.findall(r"^\| ([^|]+?) \|", (DOCS / "glossary.md").read_text(), re.MULTILINE))
    assert {"TTFT", "ITL", "TPOT", "EPP", "TP", "PP", "DP", "EP", "KV cache", "prefill", "decode", "VIP"} <= words
