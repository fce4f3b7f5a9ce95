"""What the site's model knows about a key: its field, the allowed values as text, and the keys of a section."""

from __future__ import annotations

import re
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from stacks.site.docstrings import docstrings
from stacks.site.model import CHOICES, SiteConfig


@dataclass(frozen=True, kw_only=True)
class SiteKey:
    """A key of the model: its allowed values, and its field, if it has one."""

    annotation: Any
    section: type[BaseModel] | None = None
    """The section that has the field."""
    field: FieldInfo | None = None
    pattern: str = ""
    """Dotted path with `<name>` for a name that the site chooses."""

    @property
    def model(self) -> type[BaseModel] | None:
        """The section at this place, if there is one."""
        return self.annotation if _is_model(self.annotation) else None

    @property
    def meaning(self) -> str:
        """The field's docstring on one line."""
        texts = docstrings(self.section) if self.section else {}
        return " ".join(texts.get(self.pattern.rpartition(".")[2], "").split())

    def below(self, key: str) -> SiteKey | None:
        """The place of `key` in this section, mapping or list; None if the model knows no such place."""
        pattern = f"{self.pattern}." if self.pattern else ""
        if self.model:
            field = self.model.model_fields.get(key)
            if not field:
                return None
            annotation = _bare(field.annotation)
            return SiteKey(annotation=annotation, section=self.model, field=field, pattern=f"{pattern}{key}")
        arguments = get_args(self.annotation)
        if get_origin(self.annotation) is dict:
            return SiteKey(annotation=_bare(arguments[1]), pattern=f"{pattern}<name>")
        if get_origin(self.annotation) is tuple:
            return SiteKey(annotation=_bare(arguments[0]), pattern=pattern.removesuffix("."))
        return None

    def words(self) -> list[str]:
        """The allowed values here, if they can be listed."""
        if self.model:
            return sorted(self.model.model_fields)
        if get_origin(self.annotation) is Literal:
            return [str(word) for word in get_args(self.annotation)]
        return CHOICES[self.pattern]() if self.pattern in CHOICES else []

    def allowed(self) -> str:
        """The allowed values here, as an error names them."""
        if words := self.words():
            return ", ".join(words)
        kind = get_origin(self.annotation) or self.annotation
        if kind is dict:
            below = SiteKey(annotation=_bare(get_args(self.annotation)[1]))
            least = "at least one name" if _least(self.field) else "names"
            return f"{least} of your choice with {'a section' if below.model else below.allowed()} each"
        if kind is tuple:
            return f"a list of {SiteKey(annotation=_bare(get_args(self.annotation)[0]), pattern=self.pattern).plural()}"
        if any(getattr(rule, "pattern", None) for rule in _rules(self.field)):
            form = re.split(r"[.:]( |$)", self.meaning)[0]
            return f"text, {form if form[1:2].isupper() else form[:1].lower() + form[1:]}"
        return f"{self.kind()}{_range(self.field)}"

    def kind(self) -> str:
        """The value at this place, without its range."""
        if get_origin(self.annotation) in (Union, types.UnionType):
            options = [SiteKey(annotation=_bare(option)).kind() for option in get_args(self.annotation)]
            return " or ".join(option for option in options if option)
        return _KINDS.get(get_origin(self.annotation) or self.annotation, "a section" if self.model else "text")

    def is_share(self) -> bool:
        """Whether it is a number up to 1, which people like to write in percent."""
        return any(isinstance(rule, Le) and rule.le == 1 for rule in _rules(self.field))

    def plural(self) -> str:
        """What a list of it holds."""
        if self.words() and not self.model:
            return f"values out of {', '.join(self.words())}"
        return _PLURALS.get(self.annotation, "sections" if self.model else f"items, each {self.kind()}")


_KINDS: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    FilePath: "a path",
    Any: "anything",
}
_PLURALS: dict[Any, str] = {str: "texts", int: "whole numbers", float: "numbers", FilePath: "paths"}


def place(path: Sequence[str]) -> SiteKey | None:
    """The place in the model of a path in the file; None below a key that the model does not know."""
    here: SiteKey | None = SiteKey(annotation=SiteConfig)
    for key in path:
        here = here.below(key) if here else None
    return here


def _bare(annotation: Any) -> Any:
    """The type without its notes and without the None that only means `not given`."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        options = [option for option in get_args(annotation) if option is not type(None)]
        return _bare(options[0]) if len(options) == 1 else annotation
    return annotation


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def number_text(number: float) -> str:
    """A number as a site would write it: 1.0e+9, 1.25e+8, 0.5, 443."""
    if number >= 1e6 and float(f"{number:.2e}") == number:
        # YAML requires a dot and a sign in a number with an exponent.
        digits, _, power = f"{number:.2e}".partition("e")
        return f"{digits.removesuffix('0')}e+{int(power)}"
    return f"{number:g}" if isinstance(number, float) else str(number)


def _rules(field: FieldInfo | None) -> list[Any]:
    """What bounds a value, also where it may be left out: the rules are of the type beside None then."""
    if field is None:
        return []
    notes = [note for option in get_args(field.annotation) for note in getattr(option, "__metadata__", ())]
    return [*field.metadata, *(rule for note in notes if isinstance(note, FieldInfo) for rule in note.metadata)]


def _least(field: FieldInfo | None) -> int:
    return next((rule.min_length for rule in _rules(field) if isinstance(rule, MinLen)), 0)


def _range(field: FieldInfo | None) -> str:
    low = high = ""
    for rule in _rules(field):
        match rule:
            case Ge(ge=least):
                low = f"from {number_text(float(least)) if isinstance(least, float) else least}"
            case Gt(gt=above):
                low = f"above {above}"
            case Le(le=most):
                high = f"to {number_text(float(most)) if isinstance(most, float) else most}"
            case Lt(lt=below):
                high = f"below {below}"
    if least := _least(field):
        return f" of at least {least} letters"
    if low.startswith("from") and not high:
        return f" of at least {low.removeprefix('from ')}"
    if low.startswith("above") and high.startswith("to"):
        high = f"and at most {high.removeprefix('to ')}"
    return "".join(f" {part}" for part in (low, high) if part)
