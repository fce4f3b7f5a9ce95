"""`sitectl init`: a valid file out of a few options, or a refusal that names the option."""

from __future__ import annotations

from pathlib import Path

import pytest

from sitectl.shell.errors import Exit
from stacks.plan.site_plan import plan_file
from tests.unit.sitectl.sites_to_work_on import make_checkout, run

pytestmark = pytest.mark.row("C.05")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "own", sites=())


def test_init_writes_a_commented_site_that_loads(own: Path) -> None:
    words = ["--model", "chat=qwen3-32b-fp8", "--model", "glm-5-1=glm-5.1-fp8", "--tenant", "search", "--tenant", "ops"]
    result = run(own, "init", "berlin", *words, "--gpu-hour", "2.5", "--currency", "NOK")
    assert result.status == Exit.OK, result.err
    site = plan_file(own / "Pulumi.berlin.yaml").site
    assert (site.name, sorted(site.models), sorted(site.tenants)) == ("berlin", ["chat", "glm-5-1"], ["ops", "search"])
    assert site.prices and (site.prices.gpu_hour, site.prices.currency) == (2.5, "NOK")
    text = (own / "Pulumi.berlin.yaml").read_text()
    assert "# File with address and credentials of an existing cluster" in text
    assert text.count("# Name of the model's file in the catalogue.") == 1, "a meaning is printed once"
    assert max(len(line) for line in text.splitlines()) <= 120


def test_init_overwrites_nothing(own: Path) -> None:
    run(own, "init", "berlin")
    before = (own / "Pulumi.berlin.yaml").read_text()
    result = run(own, "init", "berlin", "--tenant", "other")
    assert result.status == Exit.REFUSED
    assert "already there" in result.err
    assert "fix: " in result.err
    assert (own / "Pulumi.berlin.yaml").read_text() == before


MACHINES = ["--machines", "3+2", "--network", "10.1.0.0/24"]


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--model", "glm=glm-5.1-fp9"], Exit.USAGE, "did you mean 'glm-5.1-fp8'?"),
        (["--model", "qwen3-72b"], Exit.USAGE, "fix: choose one of the list: python -m sitectl catalogue list"),
        (["--gpu", "h900"], Exit.REFUSED, "h200-sxm"),
        (["--tenant", "Bad_Name"], Exit.REFUSED, "Bad_Name"),
        (["--replicas", "0"], Exit.REFUSED, "replicas"),
        (
            ["--model", "a=qwen3-8b", "--model", "a=qwen3-32b-fp8"],
            Exit.USAGE,
            "two are named a\n  got: qwen3-8b, qwen3",
        ),
        (["--model", "a.b=qwen3-8b", "--model", "a-b=qwen3-8b"], Exit.USAGE, "two are named a-b"),
        (["--gpu-hour", "0"], Exit.REFUSED, "prices.gpu_hour"),
        (["--kubeconfig", ""], Exit.REFUSED, "cluster.kubeconfig"),
        (["--kubeconfig", "", *MACHINES], Exit.USAGE, "--kubeconfig is of a cluster that exists"),
        (["--currency", "NOK"], Exit.USAGE, "fix: add --gpu-hour PRICE"),
        ([*MACHINES, "--gateway-nodes", "-1"], Exit.USAGE, "got: -1\n  allowed: 0 to 9999"),
        (["--machines", "3+99999999"], Exit.USAGE, "from 1+1 to 9999+9999"),
    ],
)
def test_init_with_a_mistake_writes_nothing_and_says_what_would_do(
    own: Path, words: list[str], status: Exit, says: str
) -> None:
    result = run(own, "init", "berlin", *words)
    assert result.status == status
    assert says in result.err
    assert "fix: " in result.err
    assert "Traceback" not in result.err
    assert not (own / "Pulumi.berlin.yaml").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--kubeconfig", "kubeconfig.berlin"], "cluster.kubeconfig: kubeconfig.berlin is also that of"),
        (["--machines", "3+2", "--network", "10.5.0.0/24"], "is also that of cluster.machines"),
    ],
)
def test_init_refuses_what_another_site_has(own: Path, words: list[str], says: str) -> None:
    """`validate` would refuse the file that `init` just called valid."""
    assert run(own, "init", "berlin").status == Exit.OK
    assert run(own, "init", "oslo", "--machines", "3+2", "--network", "10.5.0.0/24").status == Exit.OK
    result = run(own, "init", "bergen", *words)
    assert (result.status, says in result.err) == (Exit.REFUSED, True), result
    assert "fix: change the argument" in result.err
    assert not (own / "Pulumi.bergen.yaml").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--currency", "CHF"], "error: --currency: only with --gpu-hour\n  fix: add --gpu-hour PRICE"),
        (["--resolver", "10.1.0.2"], "error: --resolver: only with --machines, which makes the cluster\n"),
        (
            ["--machines", "3+6", "--network", "10.1.0.0/29"],
            "error: --network: 10.1.0.0/29 has no room for 11 machines\n  got: 8 addresses\n"
            "  allowed: at least 64, as each kind of machine begins at a round number\n",
        ),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)
def test_an_option_without_the_one_that_it_belongs_to_names_it(own: Path, words: list[str], says: str) -> None:
    result = run(own, "init", "oslo", *words)
    assert result.status == Exit.USAGE
    assert result.err.startswith(says), result.err


def test_init_says_where_the_kubeconfig_goes_as_long_as_it_is_not_there(own: Path) -> None:
    """`valid as it is` alone let people go on to a plan that cannot work."""
    assert "put the cluster's kubeconfig at kubeconfig.oslo; plan and up need it" in run(own, "init", "oslo").out
    (own / "kubeconfig.bergen").write_text("")
    assert "kubeconfig at" not in run(own, "init", "bergen").out
