"""Writes the reference of everything that a site may set: docs/configuration.md, and a JSON schema for editors.

Both come out of the pydantic models alone (`make docs`), so they promise nothing that the loader does not do.
"""

from __future__ import annotations

import json
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from stacks.facts.catalogue import CatalogueModel
from stacks.site.docstrings import docstrings
from stacks.site.loader import KEY
from stacks.site.machine import MachineKeys
from stacks.site.model import CHOICES, SiteConfig
from stacks.site.reading.fields import number_text

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "configuration.md"
SCHEMA = DOCS / "site.schema.json"

_WORDS: Mapping[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Path: "path",
    type(None): "nothing",
    Any: "anything",
}
_EMPTY: Mapping[str, str] = {"()": "none", "{}": "none", "": "none", "None": "not set"}


_RULES = (
    "## Rules between keys",
    "",
    "- `gateway.port` other than 80 needs `gateway.certificate_secret`: plain HTTP is served only on port 80.",
    "- `tenants.<name>.models` names models of the same site, each once, and `tenants.<name>.tier` one of its `tiers`.",
    "- An alias is the name of no model and occurs once in a site; `tenants.<name>.models` accepts no alias.",
    "- An adapter's name is that of no model, alias or other adapter; its `tenants` may call its model.",
    "- No model may be called like another with the suffix `-epp`: that is the name of the other's endpoint picker.",
    "- `models.<name>.slo` needs `models.<name>.load`: a target has no meaning without the traffic that it applies to.",
    "- `p95` is at least `p50`.",
    "- `models.<name>.overrides` must be consistent with the model's proof: no queue beyond the TTFT target, no "
    "start budget below the cold start, no more replicas drained than the load can spare.",
    "- `models.<name>.server.extra_args` accepts the flags that [engine_flags.yaml](../stacks/facts/engine_flags.yaml) "
    "lists as free, each as one item by its full name (`--seed=7`); for all others the error names what sets them.",
    "- `models.<name>.server` holds `gpus` or `layout`, not both; a replica is on one node, or on `nodes` of them, and "
    "each size of a layout must divide the model's dimension that it splits.",
    "- `cluster` holds either `kubeconfig` or `machines`.",
    "- Machines of role hgx have eight GPUs on an HGX board: `cluster.gpu` must be a kind with such a board then.",
    "- Every key of `cluster.machines.roles.<name>` may also be set at `cluster.machines` itself, for all machines, "
    "and at `cluster.machines.nodes.<name>`, for one; the most specific place wins, key by key.",
    "- Every machine's config is made and checked when the site is loaded: what Talos would refuse is an error at the "
    "key under which the site set it, reported once for all machines that inherit it.",
    "- `kubelet_config` accepts the fields of [kubelet_fields.yaml](../stacks/facts/kubelet_fields.yaml) that nothing "
    "else sets; `patches` set no field and no document that a key of the site sets.",
    "- `extraArgs` in `patches` accepts the flags of [program_flags.yaml](../stacks/facts/program_flags.yaml), each "
    "with a value that its program reads.",
    "- `name` is the `<site>` of the file's own name. Sites of one folder share no kubeconfig, endpoint, VIP or "
    "machine.",
    "- `portal` needs `callers.decided_by: gatekeeper` and a database: `database.run_by: cloudnative_pg` or "
    "`callers.database_secret`; `tenants.<name>.people` and `orderable` need `portal`.",
    "- `orderable` has no model of `models`, and the rules for `models` hold for each of its models.",
    "- `models` and `tenants` are required, as `{}` if there are none; so a file that was cut short is refused.",
    "- `engine: simulator` needs `purpose: trial`.",
    "- `models.<name>.server.gpu_family` is the family of `cluster.gpu`; AMD's GPUs can be proven, but not served on.",
    "- One machine must accept pods without GPUs: a node of role worker, or a control plane with `schedulable`.",
    "- `networks`: the VIP and the nodes' addresses lie in `nodes`, and nothing else has them; `services` is /12 to "
    "/26, `pods` at most /8, all of one family; no server that machines use lies in `pods` or `services`, or has a "
    "machine's address; no link overlaps `pods` or `services`.",
    "- A machine that names its links keeps its own address on one that is up and has an MTU of at least 1280; a link "
    "in a bond has no address; a bond's delays are multiples of its `miimon_ms`.",
    "- A route's gateway lies in a subnet of its link, its `source` is the machine's own, its `mtu` is no more than "
    "its link's; two routes of a machine to the same destination need different metrics; one of them, or a "
    "subnet of a link, leads to each of `firewall.admins`.",
    "- A fingerprint, a hardware address, and the `serial`, `uuid` or `wwid` of an `install_disk` belong to one "
    "machine only.",
    "- `firewall.load_balancer_ports` opens `gateway.port`, and never the ports of Talos's API and the kubelet, nor "
    "the Kubernetes API's, etcd's and trustd's where a control plane is `schedulable`.",
    "- `addresses.bgp`: a router's address lies in no subnet of pods or Services, nor in the pool; no machine has it; "
    "it lies in a subnet of each machine that announces to it, unless `hops` allows more; no ASN is reserved; "
    "with `external_traffic_policy: Local`, each machine that takes pods without GPUs has a peer.",
    "- The names of a tenant and its key, joined by a dash, must be unique.",
    "- `install_disk` cannot match a disk of Longhorn or of a volume; no two disks of Longhorn have the same selector.",
    "- A patch sets nothing that a key of the site sets: type, hostname, networks, installer, endpoint, secrets.",
    "- `models.<name>.request_timeout_s` is no shorter than `server.longest_stream_s`; it and "
    "`gateway.stream_idle_timeout_s` outlast the TTFT target of the highest percentile.",
    "- `models.<name>.slo`: a metric's targets do not fall from p50 to p99; one of ITL or TPOT bounds the mean time "
    "between tokens as well.",
    "- The weights of each model must leave room for a KV cache on the GPUs of a replica; the error names how "
    "many GPUs are enough.",
    "- All replicas together must fit on the nodes of `cluster.machines`; the error names replicas or nodes that would "
    "fit.",
    "- Versions and settings that are known to be incompatible are refused, by the rows of "
    "[compatibility.yaml](../stacks/facts/compatibility.yaml).",
    "",
    "A valid but unwise setting gives a warning: an even number of control planes, an endpoint that fails with one of "
    "them, a model that no tenant may call, a file whose last line has no line end. `validate`, `proof`, `rules`, "
    "`plan`, the comment on a change and `up` show it in the form of an error, and continue; `--json` has it as "
    "`warnings`.",
    "",
    "## How the file is read",
    "",
    "- As Pulumi's engine reads it ([why](adr/0020-a-site-is-read-as-the-engine-reads-it.md)).",
    "- Values that YAML parsers read differently need quotes if they are text: `yes`, `no`, `on`, `off`, "
    "`y`, `n`, a number that begins with 0, `0x1F`, `12:30`, a date.",
    "- A key that occurs twice is an error. Anchors, aliases and `<<` are read.",
    "- A number may be written with an exponent: `1.5e+9`.",
    "- A site holds no secret, and a value that looks like one is an error: `up` makes the keys of tenants; name "
    "certificates and credentials instead.",
)


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key of a site or catalogue file. Texts are Markdown."""

    path: str
    """Dotted, with `<name>` where the site chooses one."""
    kind: str
    default: str
    """Empty when the key must be given."""
    allowed: str
    meaning: str
    section: bool
    """Whether it holds further keys, which follow with paths of their own."""


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[Key]:
    """Every key below `model`, each section before its own keys."""
    for name, field in model.model_fields.items():
        if issubclass(model, MachineKeys) and model is not MachineKeys and name in MachineKeys.model_fields:
            continue  # listed once, at the roles
        path = f"{prefix}{name}"
        # A model that may be ordered has the keys of one that is served, which are listed there.
        inner, below = _section(field.annotation, path) if path != "orderable" else ([], path)
        yield Key(
            path=path,
            kind="section" if inner and below == path else _kind(field.annotation),
            default=_default(field),
            allowed=_allowed(path, field),
            meaning=" ".join(docstrings(model).get(name, "").split()),
            section=bool(inner),
        )
        for option in inner:
            for key in keys(option, f"{below}."):
                yield _choosing(key) if len(inner) > 1 and key.path == f"{below}.kind" else key


def _choosing(key: Key) -> Key:
    """The word by which a section shows which of several sets of keys it has: those that follow."""
    return replace(key, meaning=f"Selects these keys: {key.meaning}")


def render() -> str:
    """docs/configuration.md."""
    site, model = list(keys(SiteConfig)), list(keys(CatalogueModel))
    return "\n".join(
        _wrapped(line)
        for line in [
            "# Configuration",
            "",
            "<!-- Written by `make docs` from stacks/site/model.py, components/ and stacks/facts/catalogue.py. "
            "Edit the docstrings there. -->",
            "",
            f"Every key that `Pulumi.<site>.yaml` may hold under `config.{KEY}`. An unknown key, a wrong type and a "
            "name of something that does not exist are errors before `up` changes anything, all at once. "
            "[Pulumi.prod.yaml](../Pulumi.prod.yaml) is an example with comments; "
            "[site.schema.json](site.schema.json) lets an editor complete and check the file.",
            "",
            "`<name>` is a name that the site chooses: 1 to 40 lower-case letters, digits and inner dashes.",
            "",
            *_tables(site),
            *_RULES,
            "",
            "## A model in the catalogue",
            "",
            "Every key of a file in [stacks/facts/catalogue/](../stacks/facts/catalogue); how to add one is in "
            "[add-a-model.md](how-to/add-a-model.md).",
            "",
            *_table(model, ""),
            "",
        ]
    )


def _wrapped(line: str) -> str:
    """Prose below 120 columns; rows of tables cannot break."""
    if line.startswith("|"):
        return line
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, 119, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def schema() -> dict[str, Any]:
    """JSON schema of a whole stack file; what is not the site's own is left to Pulumi."""
    site: dict[str, Any] = SiteConfig.model_json_schema()
    for model in _models(SiteConfig):
        properties = (site if model is SiteConfig else site["$defs"][model.__name__])["properties"]
        for key, text in docstrings(model).items():
            properties[key] = dict(sorted({**properties[key], "description": text}.items()))
    site = _names_checked(site)
    definitions = site.pop("$defs")
    for path, names in CHOICES.items():
        _place(site, definitions, path)["enum"] = names()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Stack file of the inference platform",
        "type": "object",
        "properties": {"config": {"type": "object", "properties": {KEY: site}, "required": [KEY]}},
        "required": ["config"],
        "$defs": definitions,
    }


def _models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The model and those of all sections below it."""
    yield model
    for field in model.model_fields.values():
        for section in _section(field.annotation, "")[0]:
            yield from _models(section)


def _names_checked(node: Any) -> Any:
    """Sections by name as editors report mistakes in them best: any name, and a form for names."""
    if isinstance(node, list):
        return [_names_checked(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    made = {key: _names_checked(inner) for key, inner in node.items()}
    if "patternProperties" in made:
        ((pattern, made["additionalProperties"]),) = made.pop("patternProperties").items()
        made["propertyNames"] = {"pattern": pattern}
    return made


def _place(site: dict[str, Any], definitions: dict[str, Any], path: str) -> dict[str, Any]:
    """The schema of one key, by its dotted path."""
    here = site
    for key in path.split("."):
        here = _given(here, definitions)
        here = here["additionalProperties"] if key == "<name>" else here["properties"][key]
    return _given(here, definitions)


def _given(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a value that is there: of one that may be left out, the part that is not null."""
    for part in schema.get("anyOf", ()):
        if part.get("type") != "null":
            return _given(part, definitions)
    if "$ref" in schema:
        return _given(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return schema


def schema_text() -> str:
    """docs/site.schema.json."""
    return json.dumps(schema(), indent=2) + "\n"


def main() -> int:
    for path, text in ((REFERENCE, render()), (SCHEMA, schema_text())):
        path.write_text(text)
        print(f"wrote {path.relative_to(DOCS.parent)}")
    return 0


def _tables(site_keys: list[Key]) -> Iterator[str]:
    """One heading and table for each section at the top; keys that are no section come first, together."""
    yield from _table([key for key in site_keys if "." not in key.path and not key.section], "")
    yield ""
    for top in (key for key in site_keys if "." not in key.path and key.section):
        yield from (f"## {top.path}", "", top.meaning, "")
        yield from _table([key for key in site_keys if key.path.startswith(f"{top.path}.")], f"{top.path}.")
        yield ""


def _table(rows: list[Key], prefix: str) -> Iterator[str]:
    yield "| key | type | default | allowed | meaning |"
    yield "|---|---|---|---|---|"
    for key in rows:
        default = key.default or "**required**"
        cells = (f"`{key.path.removeprefix(prefix)}`", key.kind, default, key.allowed, key.meaning)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _section(annotation: Any, path: str) -> tuple[list[type[BaseModel]], str]:
    """Models that a key's value may be, and the path of their keys."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation], path
    if origin is dict:
        return _section(arguments[1], f"{path}.<name>")
    if origin is tuple:
        return _section(arguments[0], f"{path}[]")
    if origin is Annotated:
        return _section(arguments[0], path)
    if origin in (Union, types.UnionType):
        sections = [_section(option, path) for option in arguments]
        return [model for models, _ in sections for model in models], next(
            (at for models, at in sections if models), path
        )
    return [], path


def _kind(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return "text"
    if origin is Annotated:
        return _kind(arguments[0])
    if origin is dict:
        inner, _ = _section(arguments[1], "")
        below = get_origin(arguments[1]) is dict
        return "sections by name" if inner or below else f"{_kind(arguments[1])} by name"
    if origin is tuple:
        return "list of sections" if _section(arguments[0], "")[0] else f"list of {_kind(arguments[0])}"
    if origin in (Union, types.UnionType):
        kinds = [_kind(option) for option in arguments if option is not type(None)]
        return " or ".join(dict.fromkeys(kinds))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return _WORDS[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        return "its own defaults"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"`{number_text(value)}`"
    return _EMPTY.get(str(value), f"`{value}`")


def _allowed(path: str, field: FieldInfo) -> str:
    if path in CHOICES:
        return _listed(CHOICES[path]())
    options = get_args(field.annotation) if get_origin(field.annotation) in (Union, types.UnionType) else ()
    for option in (field.annotation, *options):
        if get_origin(option) is Literal:
            return _listed([str(choice) for choice in get_args(option)])
    limits = []
    for rule in field.metadata:
        match rule:
            case Ge(ge=least):
                limits.append(f"at least {_limit(least)}")
            case Gt(gt=above):
                limits.append(f"above {_limit(above)}")
            case Le(le=most):
                limits.append(f"at most {_limit(most)}")
            case Lt(lt=below):
                limits.append(f"below {_limit(below)}")
            case MinLen(min_length=count):
                limits.append(f"at least {count} {'letters' if field.annotation is str else 'of them'}")
    return ", ".join(limits)


def _limit(value: Any) -> str:
    return number_text(value) if isinstance(value, float) else str(value)


def _listed(values: list[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


if __name__ == "__main__":
    sys.exit(main())
