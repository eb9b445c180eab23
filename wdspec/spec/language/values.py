"""Kinds of values: how each is read from YAML, refused with a reason, and described to editors.

Each kind has a function that accepts all its forms and runs before pydantic's own check. So no key is a union, and each
mistake is one problem. Also here: words that several packages share, and the base class of all models.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NoReturn, TypeVar, cast, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from wdspec.base.errors import UsageError
from wdspec.base.process import MOST_WORKERS
from wdspec.spec.language.decoders import BY_NAME
from wdspec.spec.problems import describe, quote

T = TypeVar("T")
INTEGER_TEXT = re.compile(r"[-+]?[0-9]{1,40}(?:_[0-9]{1,40}){0,20}")
_NUMBER_TEXT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SCALES = {"k": 3, "m": 6, "mio": 6, "million": 6, "g": 9, "b": 9, "bn": 9, "billion": 9}
_SCALED = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([A-Za-z]{1,7})")
_GROUPED = re.compile(r"[0-9]{1,3}(?:[,' .][0-9]{3})+")
_PERCENT = re.compile(r"([0-9]{1,6}(?:[.,][0-9]{1,6})?)\s*%")
_RATIO = re.compile(r"([0-9]{1,6})\s*/\s*([1-9][0-9]{0,5})")
_COMMA = re.compile(r"([0-9]{1,9}),([0-9]{1,9})")
_VARIABLE_TEXT = r"\$\{"
"""For editors: text with a variable may become anything."""
_WORD = r"[^\s.,/|;][^\s,/|;]*"
_FIELD_TEXT = rf"{_WORD}(;{_WORD})*"
_AMOUNT = r"[0-9]{1,18}(\.[0-9]{1,18})?"
_CALLABLE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_FILE_OF_CODE = re.compile(r"((?:\.{0,2}/)?[\w./-]+)\.py:([^\W\d]\w*)")
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([kKMGTP]i?)?B?")
_MISPUT = re.compile(r"[,|]\s*")
_SEPARATORS = {",": " ", "|": ";"}
_DURATION = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


MOST_SECONDS = 1_000_000_000
"""The longest duration: 31 years. Locks and queues cannot wait longer than 292 years."""

MOST_SAMPLES = 10**6
"""The most samples in a batch of one rank."""


def refuse(code: str, message: str, hint: str = "", key: str = "") -> NoReturn:
    """Raise an error that becomes a problem with this code, at the value that is being read, or at a key in it."""
    raise PydanticCustomError(code, "{message}", {"message": message, "hint": hint, "key": key})


def read_variable(name: str, reader: Callable[[str], T], text: str) -> T:
    """Read the text of an environment variable with a function of this module.

    Raises:
        UsageError: the function refuses it.
    """
    try:
        return reader(text)
    except PydanticCustomError as error:
        context = error.context or {}
        shown_as = name if "@" in text else f"{name}={text}"  # text before an `@` may be a password
        raise UsageError(f"{shown_as}: {context.get('message')}; {context.get('hint')}") from None


def number_meant(value: object) -> str | None:
    """The number that a text means, as a spec would write it: `20_000` for `20k`, `0.5` for `50%`; None if unknown."""
    text = value.strip() if isinstance(value, str) else ""
    if _GROUPED.fullmatch(text):
        return f"{int(re.sub('[^0-9]', '', text)):_}"
    if match := _PERCENT.fullmatch(text):
        return f"{float(match[1].replace(',', '.')) / 100:g}"
    if match := _RATIO.fullmatch(text):
        return f"{int(match[1]) / int(match[2]):.4g}"
    if match := _COMMA.fullmatch(text):
        return f"{match[1]}.{match[2]}"
    match = _SCALED.fullmatch(text)
    if match and match[2].lower() in _SCALES:
        return f"{round(float(match[1]) * 10 ** _SCALES[match[2].lower()]):_}"
    return None


def read_integer(value: Any) -> Any:
    """Read a whole number; ``1_000_000``, ``1e6`` and text are allowed too."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    if isinstance(value, str) and INTEGER_TEXT.fullmatch(value):
        return int(value)
    if isinstance(value, float) and not math.isfinite(value):
        refuse("E205", f"expected a whole number, but this is {value}", "write a finite number")
    refuse("E202", f"expected a whole number, but this is {describe(value)}", _hint_for_whole(value))


def _hint_for_whole(value: Any) -> str:
    """What to write for a text that means a whole number."""
    number, unit = split_unit(value) if isinstance(value, str) else (None, "")
    return "" if number is None or unit not in ("", "samples") else f"write `{number}`"


_UNITS = {
    **dict.fromkeys(("sample", "example", "image", "row", "record", "document", "item"), "samples"),
    "token": "tokens",
    **dict.fromkeys(("batch", "batche", "step", "iteration", "update"), "batches"),
    **dict.fromkeys(("epoch", "pass", "passe", "time"), "passes"),
}


def split_unit(text: str) -> tuple[str | None, str]:
    """Return a whole number as a spec would write it, None if there is none, and what it counts: `10k steps`."""
    number, _, word = text.strip().rpartition(" ")
    unit = _UNITS.get(word.lower().removesuffix("s"), "") or _UNITS.get(word.lower(), "")
    written = re.sub(r"(?<=\d)_(?=\d)", "", number if unit else text)
    is_number = _NUMBER_TEXT.fullmatch(written) and abs(float(written)) < 2**63
    meant = f"{float(written):_.15g}" if is_number else number_meant(written) or "."
    return None if "." in meant else meant, unit


def read_number(value: Any) -> Any:
    """Read a finite number; text is allowed too."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and (_NUMBER_TEXT.fullmatch(value) or INTEGER_TEXT.fullmatch(value)):
        number = float(value)
    else:
        refuse("E202", f"expected a number, but this is {describe(value)}")
    try:
        number = float(number)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        refuse("E205", f"expected a finite number, but this is {number}", "write a finite number")
    return number


def read_boolean(value: Any) -> Any:
    """Read ``true`` or ``false``."""
    if isinstance(value, bool):
        return value
    hint = "in YAML 1.2 only `true` and `false` are booleans"
    if isinstance(value, str) and value.lower() in ("yes", "on", "y", "true"):
        hint += "; write `true`"
    elif isinstance(value, str) and value.lower() in ("no", "off", "n", "false"):
        hint += "; write `false`"
    refuse("E202", f"expected true or false, but this is {describe(value)}", hint)


def read_text(value: Any) -> Any:
    """Read text that is not empty."""
    if not isinstance(value, str):
        numeric = isinstance(value, (int, float))
        refuse("E202", f"expected text, but this is {describe(value)}", "put it in quotes" if numeric else "")
    if not value.strip():
        refuse("E214", "expected text, but this is empty", "fill it in, or leave the key out")
    if "\0" in value:
        refuse(
            "E203",
            f"a NUL character in {describe(value)}",
            "remove it: names, paths and URLs cannot have one",
        )
    return value


def read_callable(value: Any) -> Any:
    """Read the name of a function or class, ``package.module:name``. It is never imported here."""
    value = read_text(value)
    file = _FILE_OF_CODE.fullmatch(value)
    if file or not _CALLABLE.fullmatch(value):
        hint = "write the module, a colon, then the name: `package.module:function`"
        if file:
            module = file[1].lstrip("./").replace("/", ".")
            hint = f"did you mean `{module}:{file[2]}`? Write the module as in `import`"
        if value.count(".") and ":" not in value:
            module, _, name = value.rpartition(".")
            if _CALLABLE.fullmatch(f"{module}:{name}"):
                hint = f"did you mean `{module}:{name}`?"
        refuse("E208", f"{quote(value)} does not name a function", hint)
    return value


def is_callable_name(text: str) -> bool:
    """Whether a text names a function, ``package.module:name``."""
    return bool(_CALLABLE.fullmatch(text))


def is_size(text: str) -> bool:
    """Whether a text is a number of bytes with a unit."""
    return bool(_SIZE.fullmatch(text.strip())) and not text.strip().isdecimal()


def read_size(value: Any) -> Any:
    """Read a number of bytes: a whole number, or text such as ``500GB`` (10⁹) and ``2GiB`` (2³⁰)."""
    if isinstance(value, str) and not INTEGER_TEXT.fullmatch(value):
        match = _SIZE.fullmatch(value.strip())
        if not match and _NUMBER_TEXT.fullmatch(value):
            return read_integer(value)
        if not match:
            refuse("E211", f"{quote(value)} is not a size", "write for example `500GB` or `64GiB`")
        number, unit = match.groups()
        power = "kMGTP".index(unit[0].replace("K", "k")) + 1 if unit else 0
        return int(float(number) * (1024 if unit and unit.endswith("i") else 1000) ** power)
    return read_integer(value)


def read_duration(value: Any) -> Any:
    """Read a number of seconds: a number, or text such as ``30s`` and ``5m``."""
    if isinstance(value, str) and not _NUMBER_TEXT.fullmatch(value):
        match = _DURATION.fullmatch(value.strip())
        if not match:
            refuse("E211", f"{quote(value)} is not a duration", "write for example `30s`, `5m` or `2h`")
        return float(match[1]) * _SECONDS[match[2]]
    return read_number(value)


def read_callables(value: Any) -> Any:
    """Read the name of a function, or a list of names that is not empty."""
    names = tuple(map(read_callable, value if isinstance(value, (list, tuple)) and value else [value]))
    return names if len(names) > 1 else names[0]


def read_list(value: Any) -> Any:
    """Read one value or a list."""
    if isinstance(value, (list, tuple)):
        return value
    return (value,) if value is not None else value


def read_words(value: Any) -> Any:
    """Read words from one text, or from a list of texts."""
    entries = read_list(value)
    if not isinstance(entries, (list, tuple)):
        refuse("E202", f"expected text or a list of texts, but this is {describe(value)}")
    words: list[Any] = []
    for entry in entries:
        words.extend(entry.split() if isinstance(entry, str) and entry.strip() else (entry,))
    return words


def read_field_pattern(value: Any) -> Any:
    """Read a field: suffixes without their leading dot, as alternatives separated by ``;``."""
    value = read_text(value)
    for pattern in value.split(";"):
        if not pattern:
            refuse("E215", f"{quote(value)} has an empty alternative", "write `jpg;png`, without extra `;`")
        if pattern.startswith("."):
            refuse("E215", f"{quote(pattern)} starts with a dot", f"write `{pattern.lstrip('.')}`")
        if any(sign in pattern for sign in "/,|") or any(c.isspace() for c in pattern):
            refuse("E215", f"{quote(pattern)} cannot be a file suffix", _hint_for_separators(value))
    return value


def _hint_for_separators(value: str) -> str:
    """Return what to write for a field whose alternatives are not separated by ``;``."""
    if value.split() and not any(sign in value for sign in "/,|;"):
        return f"write `{';'.join(value.split())}` for a field that is one of these, whichever a sample has"
    hint = "separate fields with spaces and alternatives with `;`: `jpg;png txt`"
    meant = _MISPUT.sub(lambda sign: _SEPARATORS[sign[0][0]], value).strip()
    return hint if meant == value else f"{hint}; did you mean `{meant}`?"


def text_form(pattern: str) -> dict[str, Any]:
    """For editors: text of a form, or with a variable. The pattern must be valid in Python and JavaScript."""
    return {"type": "string", "pattern": rf"^({pattern})$|{_VARIABLE_TEXT}"}


def one_or_more(form: dict[str, Any], *examples: Any) -> WithJsonSchema:
    """For editors: one value, or a list that is not empty."""
    forms = [form, {"type": "array", "items": form, "minItems": 1}]
    return WithJsonSchema({"anyOf": forms, **({"examples": list(examples)} if examples else {})})


def words_form(word: str) -> dict[str, Any]:
    """For editors: text of one or more words."""
    return text_form(rf"\s*({word})(\s+({word}))*\s*")


def _or_text(schema: dict[str, Any], pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [schema, text_form(pattern)]})


def _whole(minimum: int = -(2**63), maximum: int = 2**63 - 1) -> WithJsonSchema:
    digits = "0*[1-9][0-9]*(_[0-9]+)*" if minimum > 0 else "[0-9]+(_[0-9]+)*"
    sign = "[-+]" if minimum < 0 else "[+]"
    return _or_text({"type": "integer", "minimum": minimum, "maximum": maximum}, f"{sign}?{digits}")


_REAL_TEXT = r"(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)?"


def real_form(**limits: float) -> dict[str, Any]:
    """For editors: a number that is at least 0, also as text."""
    return {"anyOf": [{"type": "number", **limits}, text_form(f"[+]?{_REAL_TEXT}")]}


def _real(**limits: float) -> WithJsonSchema:
    return WithJsonSchema(real_form(**limits))


_INTEGER = BeforeValidator(read_integer)
_NUMBER = BeforeValidator(read_number)

Integer = Annotated[int, _INTEGER, _whole()]
Seed = Annotated[int, Field(ge=0, lt=2**64), _INTEGER, _whole(minimum=0, maximum=2**64 - 1)]
COUNT_FORM = _whole(minimum=0).json_schema or {}
Count = Annotated[int, Field(ge=0, lt=2**63), _INTEGER, _whole(minimum=0)]
Workers = Annotated[int, Field(ge=0, le=MOST_WORKERS), _INTEGER, _whole(minimum=0, maximum=MOST_WORKERS)]
Prefetched = Annotated[int, Field(ge=0, le=10_000), _INTEGER, _whole(minimum=0, maximum=10_000)]
BatchSize = Annotated[int, Field(ge=1, le=MOST_SAMPLES), _INTEGER, _whole(minimum=1, maximum=MOST_SAMPLES)]
Positive = Annotated[int, Field(ge=1, lt=2**63), _INTEGER, _whole(minimum=1)]
TOTAL = 2**63 - 1
"""Stands for `total`, as many as all sources have, until this number is known."""
PositiveOrTotal = Annotated[
    int,
    Field(ge=1, lt=2**63),
    _INTEGER,
    _or_text({"type": "integer", "minimum": 1, "maximum": TOTAL}, "[+]?0*[1-9][0-9]*(_[0-9]+)*|total"),
]
Share = Annotated[float, Field(ge=0, le=1e15), _NUMBER, _real(minimum=0, maximum=1e15)]
PositiveNumber = Annotated[float, Field(gt=0, le=1e15), _NUMBER, _real(exclusiveMinimum=0, maximum=1e15)]
Fraction = Annotated[float, Field(ge=0, le=1), _NUMBER, _real(minimum=0, maximum=1)]
Boolean = Annotated[bool, BeforeValidator(read_boolean), _or_text({"type": "boolean"}, "(?!)")]
TEXT_FORM: dict[str, Any] = {"type": "string", "pattern": r"\S"}
CALLABLE_FORM = text_form(r"[^\s:./]+(\.[^\s:./]+)*:[^\s:./]+(\.[^\s:./]+)*")
FIELD_FORM = text_form(_FIELD_TEXT)
Text = Annotated[str, BeforeValidator(read_text), WithJsonSchema(TEXT_FORM)]


class FilePath(NamedTuple):
    """Marks the type of a value that is a path, or a map or a list of paths, relative to the file that has it.

    The value becomes absolute before the model is made, except for URLs, and `~`, which is expanded when it is opened.
    """

    keeps_text: bool = False
    """Whether the value stays as it is written, next to the directory where it starts: the `base` of its model."""
    in_lists: bool = False
    """Whether the values are keys, and those that begin with `@` are files with more of them."""
    is_template: bool = False
    """Whether the value is what a regex inserts: `\\1` at its start depends on the match."""
    in_steps: bool = False
    """Whether the value is a map of steps, of which some options are paths: `make`."""
    in_entries: str = ""
    """The key that is a path in each map of the value, which is a map of maps: `fetch`."""


def _refuse_url(text: str) -> str:
    if "://" in text:
        refuse("E202", f"expected the path of a local file, but this is {describe(text)}", "write a path")
    return text


LocalPath = Annotated[Text, AfterValidator(_refuse_url), FilePath()]
"""A local file."""
PathOrUrl = Annotated[Text, FilePath(keeps_text=True)]
CallableName = Annotated[str, BeforeValidator(read_callable), WithJsonSchema(CALLABLE_FORM)]
CallableNames = Annotated[str | tuple[str, ...], BeforeValidator(read_callables), one_or_more(CALLABLE_FORM)]
"""One name as text, several as a tuple."""
FieldPattern = Annotated[str, BeforeValidator(read_field_pattern), WithJsonSchema(FIELD_FORM)]
Size = Annotated[
    int,
    Field(ge=0),
    BeforeValidator(read_size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                text_form(rf"\s*{_AMOUNT}\s*([kKMGTP]i?)?B?\s*|[+]?[0-9]+(_[0-9]+)*"),
            ],
            "examples": ["500GB"],
        }
    ),
]
Duration = Annotated[
    float,
    Field(gt=0, le=MOST_SECONDS),
    BeforeValidator(read_duration),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_SECONDS},
                text_form(rf"\s*{_AMOUNT}\s*(ms|s|m|h|d)\s*|[+]?{_REAL_TEXT}"),
            ],
            "examples": ["30s", "5m"],
        }
    ),
]

Texts = Annotated[tuple[Text, ...], Field(min_length=1), BeforeValidator(read_list), one_or_more(TEXT_FORM)]
KeysOrFiles = Annotated[Texts, FilePath(in_lists=True)]
PathsOrUrls = Annotated[Texts, FilePath(keeps_text=True)]
FieldPatterns = Annotated[
    tuple[FieldPattern, ...],
    Field(min_length=1),
    BeforeValidator(read_words),
    one_or_more(words_form(_FIELD_TEXT)),
]


DECODERS = frozenset(name for name, row in BY_NAME.items() if not row.left_out)
"""The names of all decoders."""

LEFT_OUT_DECODERS = frozenset(BY_NAME) - DECODERS
"""Decoders of webdataset that wdspec intentionally does not support: those of webdataset's own binary format."""

IMAGE_DECODERS = frozenset(name for name, row in BY_NAME.items() if row.image)
"""Decoders of images, which can rescale them."""

PICKLE_DECODERS = frozenset(name for name, row in BY_NAME.items() if row.pickle)
"""Decoders that may run code in the data; they need ``allow: [pickle]``."""

SECURE_REFUSES = frozenset(name for name, row in BY_NAME.items() if row.is_pickle)
"""Decoders that WDS_SECURE forbids: a torch file is a pickle, even if a restricted unpickler reads it."""

DEFAULT_SCALE = (0.5, 2.0)
"""The range of ``scale`` if there is only ``scaleprob``."""

RESERVED_VARIABLES = frozenset({"REWRITE", "CACHE", "CACHE_SIZE", "SECURE"})
"""Names that no ``${variable}`` can have: with ``WDS_`` they are settings of wdspec."""

SkipCause = Literal["shard", "decode", "map"]
"""Causes in ``errors: {skip: …}``. The first two are in the data; plain ``skip`` means these."""

SKIP_CAUSES: tuple[SkipCause, ...] = get_args(SkipCause)

Format = Literal["tar", "cbor", "msgpack", "jsonl", "parquet", "arrow", "tokens", "mds", "lance"]
"""Values of ``format`` besides ``auto``."""

SUFFIXES: dict[Format, tuple[str, ...]] = {
    "tar": (".tar",),
    "cbor": (".cbors", ".cbor"),
    "msgpack": (".msgpack", ".mps", ".mp"),
    "jsonl": (".jsonl", ".ndjson"),
    "parquet": (".parquet",),
    "arrow": (".arrow", ".feather"),
    "tokens": (".bin", ".npy", ".ds"),
    "mds": (".mds", ".mds.br", ".mds.snappy"),
    "lance": (".lance",),
}
"""Suffixes of the shards of each format, before `.gz` and the like."""
BARE = ".ds"
"""The suffix of files of numbers alone, whose bytes do not show where they end."""

MASK = "__mask__"
"""The field of every sample in a pass: True for a sample, False for padding."""

ALLOWABLE = frozenset({"pickle"})
"""What ``allow:`` may list."""


class Model(BaseModel):
    """Base of all models: immutable, strict about keys, built on first use."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, populate_by_name=True, hide_input_in_errors=True
    )
    short: ClassVar[str] = ""
    """The key whose value may stand in place of the map, if that value is a path."""

    @classmethod
    def takes(cls, keys: Iterable[str]) -> bool:
        """Whether a map with these keys is this model; if not, it is another form of the key's value."""
        return True


M = TypeVar("M", bound=Model)


def share_default(model: type[M]) -> Callable[[], M]:
    """Make a factory that always returns the same default instance, without building the model's validator."""
    instance = cast(M, model.model_construct())

    return lambda: instance
