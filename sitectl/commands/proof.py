"""`proof`: will each model of a site work, what does it hold, and what does it cost."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sitectl import checkout, proofs, second_opinion
from sitectl.errors import Exit, SitectlError
from stacks.loader import load_file
from stacks.loading.problems import SiteError

HELP = "prove each model: does it fit, how fast, how many at once, what it costs"
MORE = """\
Arithmetic alone: no engine, no cluster, no network. Each figure says whether it is published, calibrated or estimated;
--json adds its formula's source, and every engine setting that follows from the proof with formula and inputs.

  python -m sitectl proof berlin
  python -m sitectl proof --json berlin
  python -m sitectl proof --with-aiconfigurator berlin    step times beside a second source, where that is installed

exit status 1: a model does not fit or misses its targets, and the lines say the nearest fix; or a step time leaves the
band around the second source. 3: the second source is asked for and not installed. A model that it does not know is
said, and refuses nothing.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("site", nargs="*", metavar="SITE", help="names of sites (default: all)")
    parser.add_argument(
        "--with-aiconfigurator",
        dest="second",
        action="store_true",
        help="compare step times with NVIDIA's AIConfigurator, an optional package; takes seconds a model",
    )


def run(context: Any, arguments: argparse.Namespace) -> int:
    files = checkout.site_files(context.project, arguments.site)
    if not files:
        raise SitectlError("there is no site yet", fix="python -m sitectl init NAME", status=Exit.REFUSED)
    if arguments.second:
        second_opinion.require()
    lines: list[str] = []
    records: dict[str, Any] = {}
    for name, file in files.items():
        said, record = _prove(context.project, name, file, second=arguments.second)
        records[name] = record
        lines += said
    context.say("\n\n".join(lines), records)
    return int(Exit.OK if all(one["holds"] and one.get("agrees", True) for one in records.values()) else Exit.REFUSED)


def _prove(project: Path, name: str, file: Path, *, second: bool) -> tuple[list[str], dict[str, Any]]:
    try:
        site = load_file(file)
    except SiteError as error:
        said = checkout.relative(str(error), project)
        return [said], {"holds": False, "problems": said.splitlines()}
    models: dict[str, dict[str, Any]] = {
        model: {
            "block": block,
            "figures": {key: asdict(figure) for key, figure in proofs.figures(site, model).items()},
            "knobs": {key: proofs.told(knob) for key, knob in proofs.explanations(site, model).items()},
        }
        for model, block in zip(sorted(site.models), proofs.blocks(site), strict=True)
    }
    lines = [str(one["block"]) for one in models.values()]
    record = {"holds": True, "models": models}
    if second:
        beside = [second_opinion.of_model(site, model) for model in models]
        for one, told in zip(models.values(), beside, strict=True):
            one["beside"] = told
        lines = [f"{block}\n{second_opinion.lines(told)}" for block, told in zip(lines, beside, strict=True)]
        record["agrees"] = all(second_opinion.agrees(told) for told in beside)
    heading = f"site {name}: " + (f"{len(models)} models hold" if models else "no models")
    return [heading, *lines], record
