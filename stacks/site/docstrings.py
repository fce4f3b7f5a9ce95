"""The docstrings below the keys of a model: what each key means.

They are read from the source when the reference or an error needs one. Reading those of every model whenever a site is
read would take longer than the site.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


@cache
def docstrings(model: type[BaseModel]) -> Mapping[str, str]:
    """Docstring by key, of the keys that have one."""
    texts: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if issubclass(kind, BaseModel) and kind is not BaseModel:
            texts |= _of_class(kind)
    return texts


def _of_class(kind: type[BaseModel]) -> Mapping[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)  # noqa: S101 - the source of a class
    texts = {}
    for statement, text in pairwise(definition.body):
        match statement, text:
            case ast.AnnAssign(target=ast.Name(id=key)), ast.Expr(value=ast.Constant(value=str(docstring))):
                texts[key] = inspect.cleandoc(docstring)
    return texts
