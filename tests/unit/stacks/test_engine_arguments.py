"""What a site may add to an engine's command line: flags that neither a setting nor the proof depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from floor.problems import Problem, SiteError
from stacks.facts import catalogue, engine_flags, versions
from stacks.facts.compatibility import named_flags
from stacks.plan.conflicts import conflicts
from stacks.plan.site_plan import plan_values
from stacks.site.checks import engine_arguments
from stacks.site.demand import OrderedModelSpec
from stacks.site.model import SiteConfig
from stacks.site.reading.fields import place
from tests.unit.stacks.site_examples import prod

pytestmark = pytest.mark.row("000.14")

PINNED = (Path(__file__).parents[1] / "golden/vllm-0.32-flags.txt").read_text().split()
VLLM = engine_flags.load()["vllm"]
SWITCHES = set(VLLM.free_switches)
FREE = sorted(name for name, decided in VLLM.decision.items() if decided is None)
DECIDED = sorted(name for name, decided in VLLM.decision.items() if decided is not None)


def site_with(*items: object) -> dict[str, Any]:
    site = prod()
    site["models"]["qwen3-32b"]["server"]["extra_args"] = list(items)
    return site


def problems(*items: object, engine: str = "vllm") -> list[Problem]:
    server = {"extra_args": list(items), "engine": engine}
    return list(engine_arguments.problems({"qwen3-32b": {"catalogue": "qwen3-32b-fp8", "server": server}}))


def written(flag: str) -> str:
    return flag if flag in SWITCHES else f"{flag}={VLLM.free_values[flag].example}"


def test_each_flag_of_the_pinned_release_has_one_decision() -> None:
    assert sorted(VLLM.decision) == PINNED


def test_decisions_name_keys_of_a_site() -> None:
    keys = {row.by for flags in engine_flags.load().values() for row in flags.decided} - {
        "catalogue",
        "proof",
        "platform",
    }
    assert keys
    assert [key for key in sorted(keys) if not place(["models", "<name>", *key.split(".")])] == []


def test_all_free_flags_are_accepted_together() -> None:
    plan_values(site_with(*(written(flag) for flag in FREE)), "Pulumi.prod.yaml")
    assert problems(*(f"--no-{flag[2:]}" for flag in sorted(SWITCHES))) == []


@pytest.mark.parametrize("flag", DECIDED)
def test_each_decided_flag_is_refused_with_what_decides_it(flag: str) -> None:
    decided = VLLM.decision[flag]
    assert decided is not None
    refused = problems(flag)
    named = {"catalogue": "stacks/facts/catalogue/qwen3-32b-fp8.yaml", "proof": "the proof", "platform": "the platform"}
    assert [problem.key for problem in refused] == ["models.qwen3-32b.server.extra_args.0"]
    assert named.get(decided.by, f"models.qwen3-32b.{decided.by}") in refused[0].what + refused[0].fix


@pytest.mark.parametrize(
    ("item", "flag"),
    [
        ("--max-model-len", "--max-model-len"),
        ("--max_model_len=9", "--max-model-len"),
        ("--max-model=9", "--max-model-len"),
        ("--max-model-len 9", "--max-model-len"),
        ("-tp=2", "--tensor-parallel-size"),
        ("-tp2", "--tensor-parallel-size"),
        ("-q", "--quantization"),
        ("-qawq", "--quantization"),
        ("-dpn=3", "--data-parallel-rank"),
        ("-O3", "--optimization-level"),
        ("-cc.mode=3", "--compilation-config"),
        ("--compilation-config.mode=3", "--compilation-config"),
        ("--speculative_config.method=ngram", "--speculative-config"),
        ("--no-enable-prefix-caching", "--enable-prefix-caching"),
        ("--no_enable_prefix_caching", "--enable-prefix-caching"),
        ("--no-enable-prefix-cach", "--enable-prefix-caching"),
        ("--hea", "--headless"),
    ],
)
def test_every_form_that_vllm_reads_is_recognised(item: str, flag: str) -> None:
    assert VLLM.read(item).name == flag
    assert [" is decided by " in problem.what for problem in problems(item)] == [True]


@pytest.mark.parametrize(
    ("items", "fix"),
    [
        (["--seed", "7"], ["write --seed=VALUE", "write it behind its flag, in one item: --seed=7"]),
        (["--seed 7"], ["write --seed=7"]),
        (["--see=7"], ["write --seed=7"]),
        (["--chat_template=x"], ["write --chat-template=x"]),
        (["--structured-outputs-config.a.b=1"], ['write --structured-outputs-config={"a": {"b": VALUE}}']),
        (["--numa-bind=true"], ["write --numa-bind"]),
        (["--no-numa_bind"], ["write --no-numa-bind"]),
        (["--seed=7", "--seed=8"], ["remove one"]),
        (["Qwen/Qwen3-0.6B"], ["write a flag like --seed=7, or remove it"]),
        (["--sed=7"], ["write --seed, or remove it"]),
        (["--no-such-flag"], ["remove it; stacks/facts/engine_flags.yaml lists all flags"]),
        (["--"], ["remove it; stacks/facts/engine_flags.yaml lists all flags"]),
        (["--gpu-memory-utilisation=0.5"], ["remove it"]),
    ],
)
def test_other_forms_and_unknown_flags_get_a_fix(items: list[str], fix: list[str]) -> None:
    assert [problem.fix for problem in problems(*items)] == fix


@pytest.mark.parametrize(
    ("item", "fix"),
    [
        ("--seed=abc", "--seed=0"),
        ("--seed=7\n", "--seed=0"),
        ("--seed=-1", "--seed=0"),
        ("--seed=4294967296", "--seed=0"),
        ("--max-logprobs=abc", "--max-logprobs=-1"),
        ("--max-logprobs=-2", "--max-logprobs=-1"),
        ("--log-level=9", "--log-level=CRITICAL"),
        ("--log-level=infos", "--log-level=info"),
        ("--uvicorn-log-level=nope", "--uvicorn-log-level=critical"),
        ("--uvicorn-log-level=DEBUG", "--uvicorn-log-level=debug"),
        ("--logprobs-mode=nope", "--logprobs-mode=raw_logits"),
        ("--chat-template-content-format=9", "--chat-template-content-format=auto"),
        ("--default-chat-template-kwargs={bad json", "--default-chat-template-kwargs={}"),
        ("--structured-outputs-config=xgrammar", "--structured-outputs-config={}"),
        ("--renderer-num-workers=0", "--renderer-num-workers=1"),
        ("--h11-max-header-count=1", "--h11-max-header-count=200"),
        ("--h11-max-incomplete-event-size=1", "--h11-max-incomplete-event-size=65536"),
        ("--kv-cache-metrics-sample=2", "--kv-cache-metrics-sample=1"),
        ("--response-role=a\nb", "--response-role=VALUE"),
    ],
)
def test_a_value_that_ends_the_engine_is_refused_with_one_that_does_not(item: str, fix: str) -> None:
    (problem,) = problems(item)
    assert problem.fix.removesuffix(", or another value that is allowed") == f"write {fix}"
    assert problem.allowed
    assert problems(fix) == []


@pytest.mark.parametrize(
    "item",
    [
        "--seed=4294967295",
        "--max-logprobs=1_000",
        "--log-level=debug",
        '--default-chat-template-kwargs={"enable_thinking":\n false}',
        "--distributed-timeout-seconds=None",
        "--sse-keep-alive-interval=7.5",
        "--chat-template={% for m in messages %}\n{{ m.content }}{% endfor %}",
        "--safetensors-prefetch-block-size=16M",
    ],
)
def test_every_value_that_the_engine_reads_is_taken(item: str) -> None:
    assert problems(item) == []


def test_a_wrong_flag_is_reported_of_beside_what_is_wrong_elsewhere() -> None:
    """A model that does not fit hides nothing of its flags."""
    site = site_with("--gpu-memory-utilization=0.5")
    site["cluster"] = {"gpu": "h2oo", "kubeconfig": "x"}
    with pytest.raises(SiteError) as caught:
        plan_values(site, "Pulumi.prod.yaml")
    assert {problem.key for problem in caught.value.problems} >= {
        "cluster.gpu",
        "models.qwen3-32b.server.extra_args.0",
    }


def test_values_are_never_shown_where_they_look_secret() -> None:
    site = site_with("--host=hf_0123456789abcdefghij", "--host", "hf_0123456789abcdefghij")
    with pytest.raises(SiteError) as caught:
        plan_values(site, "Pulumi.prod.yaml")
    assert "0123456789" not in str(caught.value)


def test_the_simulator_has_a_list_of_its_own() -> None:
    assert problems("--seed=7", "--v=2", "--failure-injection-rate=5", engine="simulator") == []
    decided = problems(
        "--startup-duration=1s", "--kv-cache-size=1", "--port=1", "--chat-template=x", engine="simulator"
    )
    assert ["models.qwen3-32b.server.simulated_load_scale" in decided[0].fix] == [True]
    assert [problem.path[-1] for problem in decided] == ["0", "1", "2", "3"]
    assert "the simulator has no flag" in decided[3].what


@pytest.mark.parametrize("name", catalogue.names())
def test_the_catalogue_gives_no_flag_that_others_decide(name: str) -> None:
    for item in catalogue.load(name).engine_flags:
        decided = VLLM.decision[VLLM.read(item).name]
        assert decided is None or decided.by == "catalogue", item


@pytest.mark.parametrize("flag", sorted(named_flags()))
def test_a_removed_flag_is_left_to_its_row_of_the_compatibility_table(flag: str) -> None:
    assert flag not in VLLM.decision
    site = prod()
    spec = OrderedModelSpec(catalogue="qwen3-32b-fp8", server={"extra_args": (flag,)})
    config = SiteConfig.model_validate(site)
    asked = config.model_copy(update={"models": {"qwen3-32b": spec}})
    assert len(conflicts(versions.load(), asked)) == 1
