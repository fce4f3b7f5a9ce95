"""The pages say nothing that does not exist: links, commands, targets, tests, versions."""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from components.models.engines import PORT as ENGINE_PORT
from components.models.inference_pool import picker_service
from lab import doctor
from stacks.facts import versions
from stacks.plan.models import MODELS_NAMESPACE
from tests import documented
from tests.documented import PAGES, ROOT, shown

NOT_OURS = {".git", ".venv", ".lab", ".bundle", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"}
LANGUAGES = {"sh", "sh check", "mermaid", "text", "yaml", "python"}


def prose(page: Path) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def files() -> Iterator[Path]:
    for folder, below, names in os.walk(ROOT):
        below[:] = [name for name in below if name not in NOT_OURS]
        # In a worktree of git, .git is a file.
        yield from (Path(folder, name) for name in names if name not in NOT_OURS)


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        if not other.exists() or (anchor and anchor not in anchors(other)):
            lost.append(target)
    assert not lost


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in reached:
            continue
        reached.add(page)
        links = re.findall(r"\]\(([^)#\s]+\.md)[^)]*\)", prose(page))
        ahead += [(page.parent / link).resolve() for link in links if not link.startswith("http")]
    assert set(PAGES) - reached == set()


def test_the_index_has_every_page_once() -> None:
    """docs/README.md: one line each, by the page's own title."""
    index = ROOT / "docs" / "README.md"
    lines = [line for line in index.read_text().splitlines() if line.startswith("| [")]
    named = [re.match(r"\| \[(.+?)\]\((.+?)\) \| \S", line) for line in lines]
    assert all(named), lines
    paths = [(index.parent / match[2]).resolve() for match in named if match]
    assert len(set(paths)) == len(paths)
    everything = {*PAGES, ROOT / "benchmarks" / "README.md"} - {index}
    assert everything - set(paths) == set()
    titles = {path: re.sub(r"^# ", "", path.read_text().partition("\n")[0]) for path in paths}
    own_words = {ROOT / "README.md": "README"}
    wrong = [
        match[1]
        for match, path in zip(named, paths, strict=True)
        if match and match[1] not in (titles[path], own_words.get(path))
    ]
    assert wrong == []


def test_each_promise_about_security_names_a_test_that_holds_it() -> None:
    promised = (ROOT / "SECURITY.md").read_text().partition("## What is promised")[2].partition("\n## ")[0]
    rows = [line for line in promised.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 12
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row
        assert set(named) <= documented.names_of_tests(), row


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_blocks_say_what_they_hold(page: Path) -> None:
    assert {language for language, _ in documented.fences(page)} <= LANGUAGES


@pytest.mark.parametrize("page", [*PAGES, ROOT / "benchmarks" / "README.md"], ids=shown)
def test_prose_is_below_120_columns(page: Path) -> None:
    """A diff of a paragraph is read side by side. Tables and blocks cannot break."""
    assert [line for line in prose(page).splitlines() if len(line) >= 120 and not line.lstrip().startswith("|")] == []


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_named_tests_exist(page: Path) -> None:
    modules = {path.stem for path in (ROOT / "tests").rglob("*.py")}
    named = set(re.findall(r"\b(test_[a-z0-9_]+)\b", page.read_text()))
    assert named - documented.names_of_tests() - modules == set()


def test_official_plugins_are_named_in_the_version_of_their_sdk() -> None:
    for page in PAGES:
        for name, version in re.findall(r"plugin install resource (\w+) v([\d.]+\d)", page.read_text()):
            assert version == importlib.metadata.version(f"pulumi-{name}"), page


def test_commands_and_images_of_the_pages_are_of_the_pinned_versions() -> None:
    pinned = versions.load()
    named: dict[str, set[str]] = {"talos": set(), "vllm": set()}
    for page in PAGES:
        text = page.read_text()
        named["talos"] |= set(re.findall(r"--talos-version (v[\d.]+\d)", text))
        named["vllm"] |= set(re.findall(r"\bdocker\.io/vllm/vllm-openai:[\w.]+", text))
    assert named == {"talos": {pinned.talos}, "vllm": {pinned.images.vllm}}


def test_the_policy_for_collectors_names_the_ports_of_engines_and_pickers() -> None:
    page = ROOT / "docs" / "how-to" / "add-a-site.md"
    (policy,) = (yaml.safe_load(text) for language, text in documented.fences(page) if "NetworkPolicy" in text)
    served = picker_service("chat", MODELS_NAMESPACE)["spec"]["ports"]
    metrics = next(port["port"] for port in served if port["name"] == "metrics")
    assert policy["metadata"]["namespace"] == MODELS_NAMESPACE
    assert policy["spec"]["ingress"][0]["ports"] == [{"port": ENGINE_PORT}, {"port": metrics}]


def test_the_machine_that_the_readme_asks_for_is_the_doctors() -> None:
    asked = re.findall(r"(\d+) GiB", (ROOT / "README.md").read_text())[:3]
    wanted = (doctor.BUILD_DISK_BYTES, doctor.LAB_DISK_BYTES, doctor.LAB_MEMORY_BYTES)
    assert asked == [str(size // doctor.GIB) for size in wanted]


def test_no_file_names_the_place_where_it_was_written() -> None:
    # Put together here, or this file would find itself.
    places = ["/" + "work/", "/" + "tmp/venv", "/" + "tmp/prebuild"]
    places_named = []
    for path in files():
        text = path.read_bytes().decode(errors="ignore")
        places_named += [f"{path.relative_to(ROOT)}: {place}" for place in places if place in text]
    assert places_named == []


def test_each_page_that_the_product_names_is_there() -> None:
    """An error's fix leads to a page by its path."""
    folders = (
        "floor",
        "stacks",
        "sitectl",
        "components",
        "talos",
        "lab",
        "ci",
        "policy",
        "bundle",
        "definitions",
        "tools",
        "benchmarks",
    )
    missing = [
        f"{path.relative_to(ROOT)}: {page}"
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        for page in re.findall(r"(?<![\w./-])docs/[\w./-]+\.md\b", path.read_text())
        if not (ROOT / page).is_file()
    ]
    assert missing == []
