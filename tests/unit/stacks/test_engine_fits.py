"""The proof for manifests of others: what is found in them, what is judged, and that it agrees with a site's proof."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from stacks.importing.engine_fits import EngineFit, engine_fit
from stacks.importing.engine_lines import WrongLineError, engine_line
from stacks.importing.manifests import EngineContainer, engine_containers
from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import ROOT, prod

pytestmark = pytest.mark.row("opening 27")

SHARED = "/dev/shm"  # noqa: S108 - a place in manifests
LLAMA, QWEN = "meta-llama/Llama-3.3-70B-Instruct", "Qwen/Qwen3-32B-FP8"


def container(*words: str, gpus: int | None = 2, **more: Any) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    return {"name": "engine", "image": "vllm/vllm-openai:v0.32.0", "args": [*words], "resources": resources} | more


def deployment(*containers: dict[str, Any], **pod: Any) -> dict[str, Any]:
    spec = {"template": {"spec": {"containers": [*containers], **pod}}}
    return {"kind": "Deployment", "metadata": {"name": "chat", "namespace": "serving"}, "spec": spec}


def only(document: Any) -> EngineContainer:
    (container,) = engine_containers([document])
    return container


def judged(*words: str, gpu: str | None = "h200-sxm", **of_container: Any) -> EngineFit:
    return engine_fit(only(deployment(container(*words, **of_container))), gpu, 16_384)


@pytest.mark.parametrize(
    "document",
    [
        deployment(container(LLAMA, "-tp", "2")),
        deployment(container(command=["vllm", "serve", LLAMA, "--tensor-parallel-size=2"])),
        deployment(container("serve", LLAMA, "--tensor_parallel_size", "2")),
        deployment(
            container(
                "exec vllm serve ${MODEL:-none} \\\n  --tensor-parallel-size 2 && sleep 1",
                command=["/bin/bash", "-c"],
                env=[{"name": "MODEL", "value": LLAMA}],
            )
        ),
        deployment(
            container(
                "--model=$(MODEL)",
                "-tp=2",
                command=["python3", "-m", "vllm.entrypoints.openai.api_server"],
                env=[{"name": "MODEL", "value": LLAMA}],
            )
        ),
        {"kind": "List", "items": [deployment({"name": "proxy", "image": "envoy"}, container(LLAMA, "-tp", "2"))]},
        # A LeaderWorkerSet, and whatever else has a pod somewhere.
        {
            "kind": "LeaderWorkerSet",
            "spec": {"leaderWorkerTemplate": {"leaderTemplate": {"spec": {"containers": [container(LLAMA, "-tp=2")]}}}},
        },
        deployment(container('exec vllm serve "$@"', "--", LLAMA, "-tp=2", command=["sh", "-c"])),
        deployment(
            container("vllm serve $(MODEL) -tp 2", command=["sh", "-c"], env=[{"name": "MODEL", "value": LLAMA}])
        ),
        deployment(container(command=["python3", "-m", "vllm.entrypoints.cli.main", "serve", LLAMA, "-tp", "2"])),
        deployment(container(command=f"vllm serve {LLAMA} -tp 2") | {"args": None}),
        deployment(container("--trust-remote-code", LLAMA, "-O3", "-tp", "2", command=["vllm", "serve"])),
        {"kind": "InferenceService", "spec": {"predictor": {"containers": [container(LLAMA, "-tp", "2")]}}},
    ],
)
def test_the_line_is_read_in_every_form_that_runs(document: Any) -> None:
    line = engine_line(only(document).words)
    assert (line.model, line.count("--tensor-parallel-size"), line.unknown) == (LLAMA, 2, ())


@pytest.mark.parametrize(
    "document",
    [None, "text", [], {"kind": "ConfigMap", "data": {}}, deployment({"name": "web", "image": "nginx", "args": ["x"]})],
)
def test_what_runs_no_vllm_is_passed_over(document: Any) -> None:
    assert engine_containers([document]) == []


@pytest.mark.parametrize(("text", "count"), [("32k", 32_000), ("32K", 32_768), ("1.5k", 1_500)])
def test_counts_are_read_as_vllm_reads_them(text: str, count: int) -> None:
    assert engine_line([LLAMA, "--max-model-len", text]).count("--max-model-len") == count


def test_a_switch_takes_no_word_behind_it() -> None:
    line = engine_line(["--enable-prefix-caching", LLAMA, "--no-enable-log-requests", "--frobnicate"])
    assert (line.model, line.unknown, "--enable-log-requests" in line.values) == (LLAMA, ("--frobnicate",), False)
    with pytest.raises(WrongLineError, match="names no model"):
        engine_line(["--port", "8000"])


def test_what_is_too_large_fails_with_the_length_that_fits() -> None:
    assert judged(LLAMA, "-tp", "2").verdict == "starts"
    tight = judged(LLAMA, "-tp", "2", gpu="h100-sxm")
    assert tight.verdict == "fails"
    (problem,) = tight.problems
    least = problem.partition("--max-model-len=")[2].partition(",")[0]
    assert judged(LLAMA, "-tp", "2", "--max-model-len", least, gpu="h100-sxm").verdict == "starts"
    wider = problem.partition("or --tensor-parallel-size=")[2]
    assert judged(LLAMA, "-tp", wider, gpu="h100-sxm", gpus=int(wider)).verdict == "starts"
    assert judged(LLAMA, gpu="h100-sxm", gpus=1).problems == [
        f"no room is left for a cache; fix: --tensor-parallel-size={wider}"
    ]
    (problem,) = judged("meta-llama/Llama-3.1-405B-Instruct", "-tp=4", gpu="l4", gpus=4).problems
    assert "as the GPUs of one node are too few" in problem


@pytest.mark.parametrize("length", ["auto", "-1"])
def test_a_length_that_vllm_chooses_is_no_reason_to_fail(length: str) -> None:
    fit = judged(LLAMA, "-tp", "2", "--max-model-len", length, gpu="h100-sxm")
    assert (fit.verdict, "as long as it fits" in dict(fit.figures)["context"]) == ("starts", True)


def test_what_fits_by_less_than_start_ups_differ_is_uncertain_and_so_is_a_flag_of_another_release() -> None:
    likely = dict(judged(LLAMA, "-tp", "2", gpu="h100-sxm").figures)["context"].split(", ", 1)[1].split(" fit")[0]
    longest = likely.replace(",", "")
    assert judged(LLAMA, "-tp", "2", "--max-model-len", longest, gpu="h100-sxm").verdict == "uncertain"
    assert judged(LLAMA, "-tp", "2", "--frobnicate").verdict == "uncertain"


@pytest.mark.parametrize(
    ("gpu", "batch"),
    [("b200", (16384, 1024)), ("h200-sxm", (8192, 1024)), ("a100-80gb", (2048, 256)), ("l4", (2048, 256))],
)
def test_a_server_that_sets_no_batch_gets_vllms_for_its_gpu(gpu: str, batch: tuple[int, int]) -> None:
    def memory(*words: str) -> tuple[str, str]:
        return judged(LLAMA, "-tp=2", *words, gpu=gpu).figures[0]

    tokens, requests = f"--max-num-batched-tokens={batch[0]}", f"--max-num-seqs={batch[1]}"
    assert memory() == memory(tokens, requests)
    assert memory("--max-num-batched-tokens=5000", requests) != memory() != memory(tokens, "--max-num-seqs=100")


def test_copies_and_ranks_multiply_gpus_and_requests() -> None:
    fits = [judged(QWEN, "-dp", str(count), gpus=count) for count in (1, 2)]
    held = [int(dict(fit.figures)["at once"].split()[0].replace(",", "")) for fit in fits]
    assert (held[1], fits[1].verdict) == (2 * held[0], "starts")
    staged = judged(LLAMA, "-tp=2", "-pp=2", gpus=4)
    assert "1 x TP2 PP2 = 4 GPUs" in staged.title


def test_odd_manifests_are_judged_or_passed_over() -> None:
    odd = container(LLAMA, "-tp=2", livenessProbe={"periodSeconds": None, "failureThreshold": "${X}"})
    odd["volumeMounts"] = [{"name": ["a"], "mountPath": SHARED}]
    pod = {"terminationGracePeriodSeconds": "60s", "volumes": [{"name": {"a": 1}, "emptyDir": {"medium": "Memory"}}]}
    assert engine_fit(only(deployment(odd, **pod)), "h200-sxm", 16_384).verdict == "starts"
    itself: dict[str, Any] = deployment(container(LLAMA, "-tp=2"))
    itself["again"] = itself
    assert only(itself)
    for words in (5, None, "vllm serve"):
        assert engine_containers([deployment({"name": "a", "image": "x", "command": words, "args": 5})]) == []
    router = {"name": "router", "image": "vllm/vllm-router:1", "args": ["--port", "8000"]}
    assert engine_containers([deployment(router)]) == []


def test_what_a_pod_says_of_gpus_memory_and_probes_is_read() -> None:
    probes: dict[str, Any] = {"startupProbe": {"failureThreshold": 60}, "livenessProbe": {"initialDelaySeconds": 5}}
    amd = container(QWEN, resources={"requests": {"amd.com/gpu": 2}}, **probes)
    read = only(deployment(amd, hostIPC=True))
    assert (read.gpus, read.shares_memory, read.started_s) == (2, True, 600)
    plain = only(deployment(container(QWEN, gpus=None, livenessProbe={"initialDelaySeconds": 5})))
    assert (plain.gpus, plain.shares_memory, plain.started_s) == (None, False, 35)


@pytest.mark.parametrize("product", ["NVIDIA-H200-MIG-1g.18gb", "NVIDIA-H200-SHARED", "NVIDIA-H100-NVL"])
def test_a_part_of_a_gpu_is_not_judged_as_a_whole_one(product: str) -> None:
    asked = only(deployment(container(QWEN, gpus=1), nodeSelector={"nvidia.com/gpu.product": product}))
    assert engine_fit(asked, None, 16_384).verdict == "unknown"


def test_a_larger_share_of_the_memory_is_room_for_the_cache() -> None:
    sizes = [
        float(
            judged(LLAMA, "-tp", "2", f"--gpu-memory-utilization={share}").figures[0][1].split(" cache")[0].split()[-1]
        )
        for share in ("0.85", "0.95")
    ]
    # A tenth of what an H200's driver reports.
    assert sizes[1] - sizes[0] == pytest.approx(15.0, abs=0.1)


@pytest.mark.parametrize(
    ("words", "of_container", "part"),
    [
        ((LLAMA, "-tp", "4"), {}, "it asks for 2 GPUs and takes 4; fix: nvidia.com/gpu: 4"),
        ((LLAMA, "-tp", "3"), {}, "vLLM refuses TP3: 64 heads cannot be divided by TP3"),
        ((QWEN, "-dp", "2"), {"gpus": 1}, "it asks for 1 GPU and takes 2"),
        (("own/model",), {}, "own/model is no repository of the catalogue; fix: sitectl catalogue add own/model"),
        (("$MODEL",), {}, "no value here of the variables MODEL"),
        ((LLAMA, "--max-model-len", "many"), {}, "--max-model-len is no whole number: many"),
        ((LLAMA, "--gpu-memory-utilization", "90"), {}, "is no number above 0 and up to 1: 90"),
        (("/models/own",), {}, "/models/own is a path; fix: name what is there by --model: "),
        ((LLAMA, "-tp=2", "--max-model-len=200000"), {}, "is more than the model's 131,072 tokens"),
        ((LLAMA, "-tp=2", "--max-num-seqs=512", "--max-num-batched-tokens=256"), {}, "--max-num-batched-tokens=512"),
        ((LLAMA, "-tp=0"), {}, "--tensor-parallel-size is below 1"),
        ((LLAMA, "-tp=-1"), {}, "--tensor-parallel-size is no whole number: -1"),
        ((LLAMA, "-tp=2", "--max-model-len=1.5K"), {}, "is no whole number: 1.5K"),
        ((LLAMA, "-tp=2", "--quantization=fp8"), {}, "--quantization decides about memory, and is not counted"),
        ((LLAMA, "-tp=2", "--config=/etc/vllm.yaml"), {}, "--config decides about memory"),
        ((LLAMA, "-tp=2", "--kv-cache-dtype=int4"), {}, "a cache of int4 is not counted"),
        ((LLAMA, "-tp=2", "$(MORE)"), {}, "no value here of the variables MORE"),
        ((QWEN,), {"gpus": None, "resources": {"limits": {"nvidia.com/mig-1g.18gb": 1}}}, "by nvidia.com/mig-1g.18gb"),
        (("deepseek-ai/DeepSeek-R1", "-dp=16", "-dpn", "0", "-ep"), {"gpus": 1}, "its replica spans several pods"),
        ((LLAMA, "-tp", "16", "--nnodes", "2"), {"gpus": 8}, "its replica spans several pods"),
    ],
)
def test_what_cannot_start_or_be_judged_has_its_reason(
    words: tuple[str, ...], of_container: dict[str, Any], part: str
) -> None:
    fit = judged(*words, **of_container)
    assert fit.verdict in ("fails", "unknown")
    assert part in " ".join(fit.problems)


def test_what_is_not_wise_is_a_remark_that_its_fix_ends() -> None:
    unwise = only(
        deployment(container(LLAMA, "-tp", "2", "--enforce-eager", gpus=4, livenessProbe={"initialDelaySeconds": 60}))
    )
    remarks = engine_fit(unwise, "h200-sxm", 16_384).remarks
    for part in (
        "2 of its 4 GPUs are idle",
        SHARED,
        "ends it after 90 s",
        "cut 30 s",
        "not counted: --enforce-eager",
    ):
        assert any(part in remark for remark in remarks), part
    assert any("--max-num-seqs=" in remark for remark in remarks)
    wise = container(
        LLAMA,
        "-tp=2",
        "--max-num-seqs=24",
        startupProbe={"failureThreshold": 60},
        livenessProbe={},
        volumeMounts=[{"name": "shared", "mountPath": SHARED}],
    )
    pod = {"volumes": [{"name": "shared", "emptyDir": {"medium": "Memory"}}], "terminationGracePeriodSeconds": 600}
    assert engine_fit(only(deployment(wise, **pod)), "h200-sxm", 16_384).remarks == []


@pytest.mark.parametrize(
    ("product", "kind"),
    [
        ("NVIDIA-H200", "h200-sxm"),
        ("NVIDIA-L40S", "l40s"),
        ("NVIDIA-B200", "b200"),
        ("NVIDIA-A100-SXM4-80GB", "a100-80gb"),
    ],
)
def test_the_kind_of_gpu_is_that_of_the_node_selector(product: str, kind: str) -> None:
    asked = only(deployment(container(QWEN, gpus=1), nodeSelector={"nvidia.com/gpu.product": product}))
    assert f" on {kind}, " in engine_fit(asked, None, 16_384).title
    unknown = engine_fit(only(deployment(container(QWEN, gpus=1))), None, 16_384)
    assert (unknown.verdict, "name one by --gpu" in unknown.problems[0]) == ("unknown", True)


def test_a_deployment_of_this_platform_starts_and_holds_what_its_proof_has() -> None:
    documents = yaml.safe_load_all((ROOT / "tests" / "unit" / "golden" / "model-vllm.yaml").read_text())
    (own,) = engine_containers(documents)
    fit = engine_fit(own, "h200-sxm", 5093, "glm-5.1-fp8")
    assert fit.verdict == "starts", fit.text()
    proof = plan_values(prod(), "site.yaml").models["glm-5-1"].stable.proof
    figures = dict(fit.figures)
    assert f" = {proof.case.weights / 1e9:.1f} weights + " in figures["memory"]
    assert f" + {proof.case.room / 1e9:.1f} cache" in figures["memory"]
    assert figures["at once"].startswith(f"{proof.case.slots} requests of 5,093 tokens")
