"""The lab's site with a real vLLM behind its gateway: the choice of a lab, written into its folder."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace

import yaml

from lab.errors import LabError
from lab.paths import SITE_FILE, Lab
from lab.progress import Progress
from lab.vllm_cpu import environment, tiny_model_file

MODEL = "qwen3-32b"
"""The one model that is served: its name and settings, with the tiny model's weights."""
CONTEXT_TOKENS = 40_960
"""Of the tiny model; not less than the model's own, which the engine is started with."""
SEQUENCES, HELD = 4, 8
_START_S = 1800
_STEP_S = 600
_SETTINGS = "inference-platform:site"


def site_text(text: str) -> str:
    """A stack file of the lab with vLLM in the simulator's place, for the one model, so small that a test fills it."""
    document = yaml.safe_load(text)
    site = document["config"][_SETTINGS]
    model = site["models"][MODEL]
    settings = {name: value for name, value in model["server"].items() if name == "longest_stream_s"}
    limits = {
        "max_num_seqs": (SEQUENCES, "two cores serve it"),
        "max_num_queued_reqs": (HELD, "two cores serve it"),
        "stall_s": (_STEP_S, "a step takes as long as cores that other work may keep busy"),
        "start_budget_s": (_START_S, "both replicas compile on cores that other work may keep busy"),
    }
    site["models"] = {
        MODEL: {
            **model,
            "server": {"engine": "vllm", **settings},
            "overrides": {name: {"value": value, "reason": reason} for name, (value, reason) in limits.items()},
        }
    }
    for tenant in site["tenants"].values():
        tenant["models"] = [MODEL]
    return yaml.safe_dump(document, sort_keys=False)


def choose(lab: Lab) -> Lab:
    """The lab with this site, and what its engines need: vLLM itself, and a model for the hub. Raises LabError."""
    environment.make(lab)
    lab.home.mkdir(parents=True, exist_ok=True)
    progress = Progress("vllm", 2)
    with progress.step(f"a tiny model in place of {MODEL}"):
        _write_model(lab)
    with progress.step(f"site {lab.chosen_site}"):
        source = SITE_FILE if lab.site_file == lab.chosen_site else lab.site_file
        lab.chosen_site.write_text(site_text(source.read_text()))
    return replace(lab, site_file=lab.chosen_site)


def drop(lab: Lab) -> Lab:
    """The lab with the checked-in site again, whose engines are simulators."""
    shutil.rmtree(lab.hub_model, ignore_errors=True)
    lab.chosen_site.unlink(missing_ok=True)
    return replace(lab, site_file=SITE_FILE) if lab.site_file == lab.chosen_site else lab


def _write_model(lab: Lab) -> None:
    if lab.hub_model.is_dir():
        return
    draft = lab.hub_model.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    command = [str(environment.python_of(lab)), str(tiny_model_file()), str(draft), str(CONTEXT_TOKENS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(
            f"the tiny model cannot be written: {done.stderr.strip()[-600:]}",
            fix=f"remove {lab.cache / 'vllm-cpu-*'}, and run it again",
        )
    draft.rename(lab.hub_model)
