"""`explain`: where a value comes from."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from floor.problems import meant, nearest
from policy.model import Resource
from sitectl.offline import checkout, derived_fields, set_fields
from sitectl.offline.planned import plan_of
from sitectl.offline.proofs import in_text, in_words, setting_record
from sitectl.shell.command import Command, CommandContext, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError
from stacks.facts import catalogue, versions
from stacks.plan.site_plan import SitePlan
from stacks.site.model import SiteConfig
from stacks.site.reference import keys

_ANY_NAME = "<name>"

MORE = """\
For a key, it shows the value, where it is set, its meaning and the allowed values. For an object's field, it shows the
value that the program declares, the site's key that sets it or a part of it, and, for what follows from a model's
proof: origin, formula and inputs.
Name an object as `rules` and `diff` print it, or as kind/name.

\b
  python -m sitectl explain --site prod models.glm-5-1.server.gpus
  python -m sitectl explain --site prod models.glm-5-1.settings.max_num_seqs
  python -m sitectl explain --site prod deployment/glm-5-1 spec.replicas
  python -m sitectl explain --site prod deployment/glm-5-1 spec.template
"""


@click.command(cls=Command, epilog=MORE)
@click.option("--site", required=True, metavar="SITE", shell_complete=site_names, help="which site")
@click.argument("what", metavar="KEY|RESOURCE", help="dotted key of the site, or an object")
@click.argument("field", required=False, help="dotted field of the object; without it, its fields")
@pass_context
def command(context: CommandContext, *, site: str, what: str, field: str | None) -> int:
    project = context.project
    plan = plan_of(project, site)
    if field is None and not _is_object(plan, what):
        record = explain_key(plan, what)
        context.say(checkout.relative(_lines(record), project), _located(record, project))
        return int(Exit.OK)
    with context.progress.layer(f"render {site}"):
        files = checkout.site_files(project, [site])
        declared = checkout.declare(project, files, context.progress)[site]
    if declared.error:
        raise SitectlError(f"the site cannot be rendered: {declared.error}", status=Exit.REFUSED)
    if field is None:
        return _say_object(context, find_object(declared.resources, what), site, what)
    resource, value, walked = find_field(declared.resources, what, field)
    record = explain_field(resource, value, field)
    behind = derived_fields.derivations(resource, plan, walked, value)
    set_by = set_fields.keys_of(resource, plan, walked, value, lambda key: _value(plan, key))
    text = "\n\n".join(_lines(entry) for entry in (record, *set_by, *behind))
    context.say(
        checkout.relative(text, project),
        {**record, "keys": [_located(entry, project) for entry in set_by], "settings": behind},
    )
    return int(Exit.OK)


def _is_object(plan: SitePlan, what: str) -> bool:
    """`kind/name` or `Kind namespace/name`, and no key: a label or a registry in a key may hold a slash too."""
    is_key = any(key == what or key.startswith(f"{what}.") for key in plan.origins)
    return not is_key and re.fullmatch(r"[A-Za-z]+(/| )\S+", what) is not None


def _say_object(context: CommandContext, resource: Resource, site: str, what: str) -> int:
    """An object without a field: which fields it has."""
    fields = [name for name in resource.body if name not in ("apiVersion", "kind")]
    record = {"object": resource.label, "declared as": f"{resource.type} {resource.name}", "fields": sorted(fields)}
    first = "spec" if "spec" in fields else record["fields"][0]
    lines = _lines({**record, "fields": ", ".join(record["fields"])})
    step = f"next: python -m sitectl explain --site {site} {shlex.quote(what)} {first}"
    context.say(f"{lines}\n{step}", record)
    return int(Exit.OK)


def _lines(record: Mapping[str, Any]) -> str:
    """One line a name: a key's own record, a setting's, or the records of several by name."""
    words = {name: _line(value) for name, value in in_words(record).items()} if "value" in record else {}
    words = words or {name: _line(value) for name, value in record.items()}
    width = max(len(name) for name in words)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in words.items())


def _line(value: Any) -> str:
    if isinstance(value, Mapping) and "origin" in value:
        words = in_words(value)
        return f"{words['value']} ({words['origin']})"
    return in_text(value)


def _located(record: dict[str, Any], project: Path) -> dict[str, Any]:
    """Origins with files as the user names them."""
    return {
        name: _located(value, project)
        if isinstance(value, dict)
        else checkout.relative(value, project)
        if name == "origin"
        else value
        for name, value in record.items()
    }


def explain_key(plan: SitePlan, key: str) -> dict[str, Any]:
    """Value, origin and meaning of a site's key. Raises SitectlError with the near one for a key that is none."""
    if setting := re.fullmatch(r"models\.([^.]+)\.settings(?:\.(.+))?", key):
        return _setting(plan, setting[1], setting[2])
    origin = plan.origins.get(key)
    below = sorted(inner for inner in plan.origins if inner.startswith(f"{key}."))
    if origin is None and below:
        return {inner: {"value": _value(plan, inner), "origin": str(plan.origins[inner])} for inner in below}
    if origin is None:
        near = _setting_of(plan, key) or nearest(key, plan.origins)
        raise SitectlError(
            f"the site has no key '{key}'" + meant(near),
            allowed=_beside(plan, key),
            fix="python -m sitectl docs configuration",
            status=Exit.USAGE,
        )
    record = {"key": key, "value": _value(plan, key), "origin": str(origin), "layer": origin.layer}
    fitting = [known for known in keys(SiteConfig) if re.fullmatch(_pattern(known.path), key)]
    documented = min(fitting, key=lambda known: known.path.count(_ANY_NAME), default=None)
    if documented:
        record |= {"meaning": documented.meaning, "default": documented.default.strip("`") or "(must be given)"}
        record |= {"allowed": documented.allowed} if documented.allowed else {}
    return record


def _setting_of(plan: SitePlan, key: str) -> str:
    """The setting of a model's proof that ends like this key; empty where none does."""
    model, name = re.fullmatch(r"models\.([^.]+)\.(?:.+\.)?([^.]+)", key), key.rpartition(".")[2]
    planned = plan.named.get(model[1]) if model else None
    return f"models.{model[1]}.settings.{name}" if model and planned and name in planned.settings else ""


def _pattern(path: str) -> str:
    """Of the keys of a path with `<name>` where the site chooses one."""
    return re.escape(path).replace(_ANY_NAME, "[^.]+")


def _beside(plan: SitePlan, key: str) -> str:
    """The keys that there are where this one is not, below as much of it as there is."""
    above = key
    while above := above.rpartition(".")[0]:
        below = [other.removeprefix(f"{above}.") for other in plan.origins if other.startswith(f"{above}.")]
        if below:
            return f"below {above}: {', '.join(sorted({name.partition('.')[0] for name in below}))}"
    return ", ".join(sorted({other.partition(".")[0] for other in plan.origins}))


def _setting(plan: SitePlan, model: str, key: str | None) -> dict[str, Any]:
    """A setting that follows from a model's proof, or all of them by name."""
    if model not in plan.named:
        raise SitectlError(f"the site has no model '{model}'", allowed=", ".join(sorted(plan.named)), status=Exit.USAGE)
    settings = plan.named[model].settings
    if key is None:
        return {
            name: {"value": setting.value, "unit": setting.unit, "origin": setting.origin}
            for name, setting in settings.items()
        }
    if key not in settings:
        near = nearest(key, settings)
        raise SitectlError(
            f"no setting '{key}' follows from the proof" + meant(near),
            allowed=", ".join(settings),
            fix=f"python -m sitectl explain --site {plan.site.name} models.{model}.settings",
            status=Exit.USAGE,
        )
    return setting_record(settings[key])


def _value(plan: SitePlan, key: str) -> Any:
    """The value of a site's key, of a pin, or of a figure of the catalogue; None where a key is not set."""
    top, _, rest = key.partition(".")
    if top == "versions":
        return _walk(versions.load().model_dump(mode="json"), rest)
    if top == "catalogue":
        entry = next(name for name in catalogue.names() if rest.startswith(f"{name}."))
        return _walk(catalogue.load(entry).model_dump(mode="json"), rest.removeprefix(f"{entry}."))
    return _walk(plan.site.model_dump(mode="json"), key)


def _walk(value: Any, path: str) -> Any:
    """What is at a dotted path; names on the way may hold dots themselves. None where nothing is."""
    if not path:
        return value
    if isinstance(value, list):
        value = {str(index): inner for index, inner in enumerate(value)}
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        if path == name or path.startswith(f"{name}."):
            return _walk(inner, path.removeprefix(name).removeprefix("."))
    return None


def find_object(resources: list[Resource], named: str) -> Resource:
    """The object of this name. Raises SitectlError with near names for what is none."""
    matches = [resource for resource in resources if named.lower() in _names(resource)]
    if len(matches) != 1:
        labels = sorted(resource.label for resource in resources)
        near = nearest(named, [name for resource in resources for name in _names(resource)])
        hint = meant(near)
        raise SitectlError(
            "several objects have this name" if matches else f"no such object{hint}",
            got=named,
            allowed=", ".join(resource.label for resource in matches)
            or f"one of {len(labels)}, such as {', '.join(labels[:3])}",
            fix="name it as kind/name or as diff does; all of them: python -m sitectl render --out DIR",
            status=Exit.USAGE,
        )
    return matches[0]


def find_field(resources: list[Resource], named: str, field: str) -> tuple[Resource, Any, str]:
    """An object, the value of its field, and the field's path. Raises SitectlError with near names for what is none."""
    resource = find_object(resources, named)
    value: Any = resource.body
    walked = ""
    for part in re.findall(r'\["[^"]+"\]|\[\d+\]|[^.\[\]]+', field):
        step = part[2:-2] if part.startswith('["') else part[1:-1] if part.startswith("[") else part
        inner = _below(value, step)
        if inner is None:
            there = _there(value)
            near = nearest(step, there)
            hint = meant(near)
            raise SitectlError(
                f"{resource.label} has no '{step}' below {walked or 'itself'}{hint}",
                allowed=", ".join(there) or "nothing: this is a value",
                fix="name a field of this object; all of them: python -m sitectl render --out DIR",
                status=Exit.USAGE,
            )
        value, walked = inner, f"{walked}.{step}".lstrip(".")
    return resource, value, walked


def explain_field(resource: Resource, value: Any, field: str) -> dict[str, Any]:
    """Value of an object's field, and where it is declared."""
    return {
        "object": resource.label,
        "field": field,
        "value": value,
        "declared as": f"{resource.type} {resource.name}",
    }


def _there(value: Any) -> list[str]:
    """What a path can go on with."""
    if isinstance(value, Mapping):
        return sorted(value)
    return [f"[{place}]" for place in range(len(value))] if isinstance(value, list) else []


def _below(value: Any, step: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(step)
    if isinstance(value, list) and step.isdigit() and int(step) < len(value):
        return value[int(step)]
    return None


def _names(resource: Resource) -> set[str]:
    own = str((resource.body.get("metadata") or {}).get("name", ""))
    return {resource.label.lower(), f"{resource.kind}/{own}".lower()} if own else {resource.name.lower()}
