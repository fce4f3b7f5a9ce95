"""Whatever is in a file that people edit, they read problems with a line, no traceback and no secret."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from floor.problems import SiteError
from lab.paths import CHECKOUT
from policy import rules_file
from stacks.plan.site_plan import plan_file
from tests.unit.stacks import site_mutations

pytestmark = pytest.mark.row("opening 13")

QUICK, MANY = 150, 5000
SEED = 20270131


def refusal(path: Path) -> SiteError | None:
    try:
        plan_file(path)
    except SiteError as error:
        return error
    return None


def check(error: SiteError, content: bytes, origin: str) -> None:
    """Each problem says what to do, and points at a line that is there."""
    assert error.problems
    last = max(1, len(content.decode(errors="replace").splitlines()))
    for problem in error.problems:
        assert problem.what and problem.fix, problem
        assert problem.file or problem.line is None or 1 <= problem.line <= last, problem
        assert problem.line or problem.file or not problem.path, problem
    if site_mutations.holds_a_secret(content):
        reported = str(error).lower()
        assert not [trace for trace in site_mutations.TRACES if trace in reported], f"{origin}: {error}"


RULES = (
    "sovereign: true\nregistries: [registry.internal, ghcr.io/team]\n",
    "privileged_namespaces: [storage]\nhost_access: [DaemonSet storage/disks]\n",
    """\
# Why and until when.
waivers:
  - rule: image-pinned
    resource: Deployment inference-models/glm-5-1
    reason: waits for the release that repairs the tokenizer
    expires: 2027-01-31
  - {rule: spread, resource: Deployment a/b, reason: one node alone, expires: "2027-01-31"}
""",
)


def rules_refusal(path: Path) -> SiteError | None:
    try:
        rules_file.read(path.parent, "rack")
    except SiteError as error:
        return error
    return None


def all_are_reported(cases: Iterable[bytes], path: Path, refusal: Callable[[Path], SiteError | None]) -> None:
    """Each case is read, or refused in the form of our errors."""
    count = refused = 0
    for number, content in enumerate(cases):
        count += 1
        path.write_bytes(content)
        try:
            error = refusal(path)
        except Exception as failure:
            keep = path.with_name(f"case-{number}.yaml")
            keep.write_bytes(content)
            raise AssertionError(f"case {number}, kept in {keep}: {failure!r}") from failure
        if error:
            refused += 1
            check(error, content, f"case {number}")
    assert count * 0.5 < refused < count, "some damage is harmless, and most is not"


@pytest.mark.slow
def test_a_damaged_site_is_reported_with_lines_and_without_secrets(tmp_path: Path) -> None:
    all_are_reported(site_mutations.sites(QUICK, SEED), tmp_path / "Pulumi.rack.yaml", refusal)


def test_what_is_wrong_in_a_section_with_a_wrong_name_is_reported_with_it(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.rack.yaml"
    written = (CHECKOUT / "Pulumi.lab.yaml").read_text()
    path.write_text(written.replace("    models:\n", "    modelels:\n").replace("glm-5.1-fp8", "no-such-model"))
    error = refusal(path)
    assert error
    assert {"modelels", "modelels.glm-5-1.catalogue"} <= {problem.key for problem in error.problems}


def test_a_damaged_rules_file_is_reported_with_lines_and_without_secrets(tmp_path: Path) -> None:
    all_are_reported(site_mutations.files(RULES, QUICK, SEED), tmp_path / "rules.rack.yaml", rules_refusal)


@pytest.mark.exhaustive
def test_many_damaged_sites_are_reported_with_lines_and_without_secrets(tmp_path: Path) -> None:
    all_are_reported(site_mutations.sites(MANY, SEED), tmp_path / "Pulumi.rack.yaml", refusal)


@pytest.mark.exhaustive
def test_many_damaged_rules_files_are_reported_with_lines_and_without_secrets(tmp_path: Path) -> None:
    all_are_reported(site_mutations.files(RULES, MANY, SEED), tmp_path / "rules.rack.yaml", rules_refusal)
