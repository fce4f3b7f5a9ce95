"""Reads a CEL expression as its grammar has it, and finds the first part that is of another type than its place.

The grammar: https://github.com/google/cel-spec/blob/master/doc/langdef.md. Messages, and maps in braces, are `any`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

_TOKEN = re.compile(r"""\s*(\"\"|0x[0-9a-fA-F]+u?|\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\d+u?|[A-Za-z_]\w*
    |&&|\|\||[=!<>]=|[-+*/%<>!?:.,()\[\]{}])""", re.VERBOSE)  # fmt: skip
ANY, TEXT, CONDITION, LIST, GROUP = "any", "text", "condition", "list", "group of fields"
UNSIGNED, SIGNED, FRACTION = "number", "signed number", "fraction"
_NUMBERS = (UNSIGNED, SIGNED, FRACTION)
# Operators by how tightly they bind, loosest first; types that they take on both sides alike.
_LEVELS: Sequence[tuple[Sequence[str], Sequence[str]]] = (
    (("||",), (CONDITION,)),
    (("&&",), (CONDITION,)),
    (("==", "!=", "<", "<=", ">", ">=", "in"), ()),
    (("+", "-"), (*_NUMBERS, TEXT, LIST)),
    (("*", "/", "%"), _NUMBERS),
)
_COMPARISONS = 2
_SIZED = (TEXT, LIST, "address")
_OF_TEXTS, _OF_LISTS = ("contains", "startsWith", "endsWith", "matches"), ("all", "exists", "exists_one")
# Functions: what each argument is, and the result.
_FUNCTIONS: Mapping[str, tuple[Sequence[str], str]] = {
    "glob": ((TEXT, TEXT), CONDITION),
    "has": ((ANY,), CONDITION),
    "mac": ((ANY,), TEXT),
    "size": ((ANY,), SIGNED),
    "int": ((ANY,), SIGNED),
    "uint": ((ANY,), UNSIGNED),
    "double": ((ANY,), FRACTION),
    "string": ((ANY,), TEXT),
    "bool": ((ANY,), CONDITION),
    **dict.fromkeys(("bytes", "duration", "timestamp", "type", "dyn"), ((ANY,), ANY)),
}


class _MistakeError(Exception):
    """What is wrong, as it is shown."""


class _Operand(NamedTuple):
    type: str
    start: int
    end: int


def mistake(bare: str, kinds: Mapping[str, Mapping[str, str]]) -> str:
    """What is wrong with an expression whose texts are empty ones; nothing if it is a condition.

    kinds: of the fields of each variable that has some.
    """
    try:
        return _CelReader(bare, kinds).condition()
    except _MistakeError as wrong:
        return str(wrong)
    except RecursionError:
        return "has more brackets inside of each other than CEL reads"


class _CelReader:
    def __init__(self, bare: str, kinds: Mapping[str, Mapping[str, str]]) -> None:
        self._text, self._kinds = bare, kinds
        self._tokens, self._at = list(_TOKEN.finditer(bare)), 0
        if "".join(token[1] for token in self._tokens) != re.sub(r"\s", "", bare):
            raise _MistakeError("has signs that mean nothing in CEL")

    def condition(self) -> str:
        whole = self._choice()
        if self._next:
            raise _MistakeError(f"has {self._next} where it could end; join conditions by && or ||")
        return "" if whole.type in (CONDITION, ANY) else f"is {_a(whole.type)}, not a condition"

    @property
    def _next(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _take(self, *wanted: str) -> str:
        token = self._next
        if wanted and token not in wanted:
            raise _MistakeError(f"has {token or 'its end'} where {wanted[0]} is missing")
        self._at += 1
        return token

    def _place(self) -> int:
        return self._tokens[self._at].start(1) if self._at < len(self._tokens) else len(self._text)

    def _part(self, type_: str, start: int) -> _Operand:
        return _Operand(type_, start, self._tokens[self._at - 1].end(1))

    def _shown(self, part: _Operand) -> str:
        return self._text[part.start : part.end]

    def _wanted(self, part: _Operand, *types: str) -> None:
        if part.type != ANY and part.type not in types:
            raise _MistakeError(f"takes {self._shown(part)} for a {types[0]}; it is {_a(part.type)}")

    def _choice(self) -> _Operand:
        start, part = self._place(), self._binary(0)
        if self._next != "?":
            return part
        self._wanted(part, CONDITION)
        self._take()
        yes = self._binary(0)
        self._take(":")
        no = self._choice()
        if ANY not in (yes.type, no.type):
            self._wanted(no, yes.type)
        return self._part(yes.type, start)

    def _binary(self, level: int) -> _Operand:
        if level == len(_LEVELS):
            return self._unary()
        (signs, types), start = _LEVELS[level], self._place()
        part = self._binary(level + 1)
        while self._next in signs:
            sign = self._take()
            other = self._binary(level + 1)
            if types:
                self._wanted(part, *types)
                self._wanted(other, *types)
            if sign == "in":
                self._wanted(other, LIST)
            elif ANY not in (part.type, other.type) and part.type != other.type:
                raise _MistakeError(
                    f"has {_a(part.type)} and {_a(other.type)} beside {sign}: {self._text[start : other.end]}"
                )
            result = CONDITION if level <= _COMPARISONS else part.type if part.type != ANY else other.type
            part = self._part(result, start)
        return part

    def _unary(self) -> _Operand:
        start, sign = self._place(), self._next
        if sign not in ("!", "-"):
            return self._member()
        self._take()
        part = self._unary()
        self._wanted(part, *((CONDITION,) if sign == "!" else (SIGNED, FRACTION)))
        return self._part(part.type, start)

    def _member(self) -> _Operand:
        start, part = self._place(), self._primary()
        while self._next in (".", "["):
            if self._take() == "[":
                self._choice()
                self._take("]")
                self._wanted(part, LIST)
                part = self._part(ANY, start)
                continue
            name = self._take()
            if self._next == "(":
                part = self._part_of_method(part, name, start)
                continue
            fields = self._kinds.get(self._shown(part), {}) if part.type == GROUP else {}
            self._wanted(part, GROUP)
            part = self._part(fields.get(name, ANY), start)
        return part

    def _part_of_method(self, of: _Operand, name: str, start: int) -> _Operand:
        arguments = self._arguments()
        if name in _OF_TEXTS:
            self._wanted(of, TEXT)
            self._fit(name, arguments, (TEXT,))
        elif name == "size":
            self._wanted(of, *_SIZED)
        else:
            self._wanted(of, LIST)
            self._fit(name, arguments[:2], (ANY, CONDITION if name != "map" or arguments[2:] else ANY))
        result = CONDITION if name in (*_OF_TEXTS, *_OF_LISTS) else SIGNED if name == "size" else LIST
        return self._part(result, start)

    def _fit(self, name: str, arguments: Sequence[_Operand], types: Sequence[str]) -> None:
        if len(arguments) != len(types):
            raise _MistakeError(f"gives {name} {len(arguments)} arguments; it takes {len(types)}")
        for argument, type_ in zip(arguments, types, strict=True):
            if type_ != ANY:
                self._wanted(argument, type_)

    def _arguments(self) -> list[_Operand]:
        self._take("(")
        return self._until(")", self._choice)

    def _until(self, end: str, read: Callable[[], _Operand]) -> list[_Operand]:
        parts: list[_Operand] = []
        while self._next != end:
            parts.append(read())
            if self._next != end:
                self._take(",")
        self._take(end)
        return parts

    def _entry(self) -> _Operand:
        part = self._choice()
        self._take(":")
        self._choice()
        return part

    def _primary(self) -> _Operand:
        start, word = self._place(), self._take()
        if word == "(":
            part = self._choice()
            self._take(")")
            return self._part(part.type, start)
        if word in ("[", "{"):
            self._until("]", self._choice) if word == "[" else self._until("}", self._entry)
            return self._part(LIST if word == "[" else ANY, start)
        if word[:1].isdigit():
            fraction = not word.startswith("0x") and re.search(r"[.eE]", word)
            return self._part(UNSIGNED if word.endswith("u") else FRACTION if fraction else SIGNED, start)
        if word == '""' or word in ("true", "false"):
            return self._part(TEXT if word == '""' else CONDITION, start)
        if not re.match(r"[A-Za-z_]", word) or word == "in":
            raise _MistakeError(f"has {word or 'its end'} where a value is missing")
        if self._next == "(":
            arguments = self._arguments()
            types, result = _FUNCTIONS.get(word, ([ANY] * len(arguments), ANY))
            self._fit(word, arguments, types)
            if word == "size":
                self._wanted(arguments[0], *_SIZED)
            if word == "glob" and self._shown(arguments[1]) == '""' != self._shown(arguments[0]):
                raise _MistakeError(f"gives glob {self._shown(arguments[0])} first; the pattern comes before the value")
            return self._part(result, start)
        return self._part(self._of_name(word), start)

    def _of_name(self, name: str) -> str:
        if name in self._kinds:
            return GROUP
        return CONDITION if name == "system_disk" else UNSIGNED if re.fullmatch(r"[kKMGTPE]i?B", name) else ANY


def _a(type_: str) -> str:
    return f"{'an' if type_[:1] in 'ae' else 'a'} {type_}"
