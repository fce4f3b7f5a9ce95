"""Sites by the number: no two alike, all valid and proven, the same from run to run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import yaml

from stacks.facts import catalogue
from stacks.site.loader import KEY

# What a site may serve, with a load per second that two replicas on their usual GPUs carry.
_SERVED = {
    "bge-reranker-v2-m3": 10.0,
    "deepseek-v3.2": 0.3,
    "glm-5.1-fp8": 0.3,
    "gpt-oss-120b": 1.0,
    "gpt-oss-20b": 2.0,
    "llama-3.1-8b": 2.0,
    "minimax-m2.5": 0.5,
    "mistral-small-4": 0.5,
    "qwen3-235b-a22b-fp8": 0.3,
    "qwen3-30b-a3b-fp8": 1.0,
    "qwen3-32b-fp8": 1.0,
    "qwen3-8b": 1.0,
    "qwen3-embedding-8b": 10.0,
}
_TEAMS = ("search", "support", "docs", "sales", "legal", "research", "ops", "finance")


def site(number: int) -> dict[str, Any]:
    """Settings of one site: 1 to 5 models with load and targets, 1 to 8 tenants; every second site has machines."""
    chance = random.Random(number)  # noqa: S311 - the same site for the same number
    chosen = chance.sample(sorted(_SERVED), chance.randint(1, 5))
    models = {_named(name): _model(name, chance) for name in chosen}
    teams = chance.sample(_TEAMS, chance.randint(1, len(_TEAMS)))
    return {
        "name": f"site-{number:03}",
        "cluster": _machines(number) if number % 2 else {"kubeconfig": f"kubeconfig.site-{number:03}"},
        "storage": {"storage_class": "longhorn", "read_bytes_per_s": 2.0e9},
        "gateway": {"controllers": "chart", "port": 443, "certificate_secret": "inference-tls"},
        "prices": {"gpu_hour": round(chance.uniform(2, 5), 2), "currency": "EUR"},
        "models": models,
        "tenants": {
            team: {
                "models": sorted(chance.sample(sorted(models), chance.randint(1, len(models)))),
                "keys": {f"key-{place}": {} for place in range(chance.randint(1, 3))},
            }
            for team in teams
        },
    }


def with_tenants(base: dict[str, Any], tenants: int) -> dict[str, Any]:
    """The same site with this many more tenants, each one key: one Secret, one minted key and one rule each."""
    served = sorted(base["models"])
    more = {
        f"team-{number:04}": {"models": [served[number % len(served)]], "keys": {"key": {}}}
        for number in range(tenants)
    }
    return {**base, "tenants": {**base["tenants"], **more}}


def write(folder: Path, words: dict[str, Any]) -> Path:
    """The stack file of a site in `folder`."""
    path = folder / f"Pulumi.{words['name']}.yaml"
    path.write_text(yaml.safe_dump({"config": {KEY: words}}, sort_keys=False))
    return path


def _named(entry: str) -> str:
    return entry.replace(".", "-")


def _model(entry: str, chance: random.Random) -> dict[str, Any]:
    load: dict[str, Any] = {"requests_per_s": round(_SERVED[entry] * chance.uniform(0.3, 1), 2)}
    slo: dict[str, Any] = {"ttft_p95_ms": 6000}
    if catalogue.load(entry).task == "generate":
        load["prefix_hit"] = round(chance.uniform(0, 0.6), 2)
        slo["itl_p95_ms"] = 80
    else:
        load["prompt_tokens"] = {"p50": 300, "p95": 900}
    return {"catalogue": entry, "server": {"replicas": 2}, "load": load, "slo": slo}


def _machines(number: int) -> dict[str, Any]:
    """Three control planes, two workers for what needs no GPU, and HGX nodes for the largest of these sites."""
    net = f"10.{number % 200}.0"
    roles = [("controlplane", "cp", 3, 10), ("worker", "infra", 2, 20), ("hgx", "hgx", 10, 100)]
    return {
        "gpu": "h200-sxm",
        "machines": {
            "endpoint": f"https://{net}.10:6443",
            "image_factory": "https://factory.talos.dev",
            "networks": {"nodes": [f"{net}.0/24"], "pods": "10.224.0.0/16", "services": "10.240.0.0/16"},
            "cni": "external",
            "install_disk": {"device": "/dev/nvme0n1"},
            "secrets": "disposable",
            "nodes": {
                f"{short}-{place}": {"role": role, "address": f"{net}.{first + place}"}
                for role, short, count, first in roles
                for place in range(1, count + 1)
            },
        },
    }
