"""`make`: fields that are made from others by named steps, without any Python of the user.

`make: {ids: {tokenize: text, file: tokenizer.json}}`: the key is the field that is made, and the step's name has what
it is made from. A step is a model here, which names its function in `wdspec/steps/`.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NoReturn, get_args

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    model_serializer,
)

from wdspec.base.errors import did_you_mean
from wdspec.spec.language import values
from wdspec.spec.language.decoder_options import (
    INTERPOLATIONS,
    MOST_SIDE,
    option_values,
    read_span,
    show_option,
)
from wdspec.spec.language.decoders import BY_NAME, draws, split_decoder
from wdspec.spec.language.effects import FOR_DIGEST, Key, Needs, key_of
from wdspec.spec.language.expressions import ExpressionError, Path, parse_expression, quote_names
from wdspec.spec.problems import describe, quote

MADE_FILES = "make."
"""What digests of files are listed under, before the name of the field."""
EXAMPLE = "make: {ids: {tokenize: text, file: tokenizer.json}}"
"""What to write, for hints."""


def read_origin(value: Any) -> Any:
    """Read a field, or a value in one: `text`, `json.text`, `json.messages[0]`."""
    hint = "write a field, or a value in one: `text`, `json.text`"
    if isinstance(value, (int, float)):
        values.refuse("E202", f"expected a field, but this is {describe(value)}", hint)
    text = values.read_text(value)
    try:
        parsed = parse_expression(text)
    except ExpressionError as error:
        values.refuse("E203", f"`{text[:60]}` {error.message}", error.hint or hint)
    if parsed.source != "v0":
        quoted = quote_names(text)
        hint = f"write `{quoted}`, as names with other signs go in quotes" if quoted else hint
        values.refuse("E203", f"`{text[:60]}` is not a field", hint)
    return text


def read_origins(value: Any) -> Any:
    """Read one origin, or a list of several."""
    if not isinstance(value, (list, tuple)):
        return read_origin(value)
    if not value:
        values.refuse("E214", "this list is empty", "write a field, or a list of fields")
    return tuple(map(read_origin, value))


Origin = Annotated[str, BeforeValidator(read_origin), WithJsonSchema(values.TEXT_FORM)]
Origins = Annotated[
    str | tuple[str, ...], BeforeValidator(read_origins), values.one_or_more(values.TEXT_FORM)
]
NewName = Annotated[str, BeforeValidator(values.read_field_pattern), WithJsonSchema(values.FIELD_FORM)]


def path_of(origin: str) -> Path:
    """Return the path of an origin."""
    return parse_expression(origin).paths[0]


class Recipe(values.Model):
    """How a field is made: the step, what it is made from, and the options of the step.

    The options are the keyword arguments of the function that builds the step, `factory`.
    """

    step: ClassVar[str]
    """The name of the step. The field of this name has what is made from."""
    factory: ClassVar[str]
    """`package.module:function`. It takes `options` and returns the function that `call` calls."""
    needs: ClassVar[tuple[str, ...]] = ()
    """The libraries that it needs."""
    draws: ClassVar[bool] = False
    """Whether it draws random numbers, new ones in each pass."""
    makes_media: ClassVar[bool] = False
    """Whether it makes pixels or sound, which is large."""
    mixes: ClassVar[bool] = False
    """Whether it mixes a value with another one, and does nothing where there is none."""
    paths: ClassVar[tuple[str, ...]] = ()
    """The options that are the paths of files."""
    further: ClassVar[tuple[str, ...]] = ()
    """The options that are the name of a further field."""
    delivers: ClassVar[str] = ""
    """The type in which arrays are delivered, if they are held in a smaller one until then."""

    @property
    def origins(self) -> tuple[Path, ...]:
        """What it is made from."""
        written = getattr(self, self.step)
        return tuple(map(path_of, (written,) if isinstance(written, str) else written))

    @property
    def optional(self) -> frozenset[Path]:
        """Those among the origins that a sample may lack, unless it lacks all."""
        return frozenset()

    @property
    def in_parts(self) -> frozenset[Path]:
        """Those among the origins of which it takes a part: it accepts an `AudioFile`, of which no more is decoded."""
        return frozenset()

    def call(
        self, step: Callable[..., Any], found: list[Any], numbers: Callable[[int], float] | None
    ) -> Sequence[Any]:
        """Return the made field and those of `results`, in this order.

        Args:
            step: what the factory returned.
            found: the values of `origins`; None for those that the sample lacks.
            numbers: from 0, 1, 2, … to random numbers in [0, 1), for steps that draw.
        """
        return (step(*found),) if numbers is None else (step(*found, numbers),)

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments for the factory: all keys that are written, but what it is made from."""
        names = self.model_fields_set - {self.step}
        return {name: getattr(self, name) for name in type(self).model_fields if name in names}

    def measure(self, rest: Path) -> tuple[str, ...] | None:
        """Return the name of a function of the step that reads a value of the field from what it is made from, and is
        cheaper than to make it; and the names of its arguments after the first. None if there is none.

        Args:
            rest: the path of the value in the field.
        """
        return None

    @property
    def results(self) -> tuple[str, ...]:
        """The further fields that the step makes."""
        return ()

    @property
    def files(self) -> dict[str, str]:
        """The paths of the files that it reads, by option."""
        return {name: value for name in self.paths if (value := getattr(self, name)) is not None}

    @property
    def leaving_out(self) -> dict[str, Any]:
        """The options that decide which samples it leaves out because of what is in them; empty if it keeps all."""
        return {}

    @property
    def fills(self) -> bool:
        """Whether it is called even if a sample lacks all origins."""
        return False

    def without(self, path: Path) -> str:
        """What the field is if no sample has an optional origin; empty if that may be meant."""
        return ""

    @property
    def unread(self) -> Mapping[str, str]:
        """Fields that it does not read, though samples that have them probably mean it to → why."""
        return {}

    @classmethod
    def check(cls, written: Mapping[str, Any]) -> None:
        """Refuse options that do not fit each other. They are as written; null is left out."""

    @model_serializer(mode="wrap")
    def _dump(self, dump: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        # In digests, files count by what is in them (`Shards.files`), and defaults do not count.
        kept = self.model_fields_set
        if info.context == FOR_DIGEST:
            fields = type(self).model_fields
            kept = {key for key in kept.difference(self.paths) if getattr(self, key) != fields[key].default}
        return {key: value for key, value in dump(self).items() if key in kept}


def check_tokenizer(file: Any) -> None:
    """Refuse URLs that are not tokenizers on the Hugging Face Hub with a revision."""
    if not isinstance(file, str) or "://" not in file:
        return
    name = file.removeprefix("hf://")
    if name == file:
        values.refuse(
            "E203", f"a tokenizer cannot be read from {quote(file)}", "download it, and write its path"
        )
    if name.count("/") != 1 or not all(name.partition("@")[::2]):
        hint = "write `hf://owner/name@revision`, with the hash of a commit: a name alone may change"
        values.refuse("E203", f"{quote(file)} does not say which revision to use", hint)


class Tokenize(Recipe):
    """Text → token ids."""

    step = "tokenize"
    factory = "wdspec.steps.tokenize:make_tokenizer"
    further = ("type_ids", "labels")
    needs = ("tokenizers",)
    paths = ("file",)
    delivers = "int64"

    tokenize: Origins = Field(
        description="The text: a field, or a value in one, such as `json.text`. A list joins several texts."
    )
    file: Annotated[values.Text, values.FilePath()] = Field(
        description="A `tokenizer.json` of the library `tokenizers`, a folder of `transformers` that has one, or "
        "`hf://owner/name@revision`."
    )
    eos: values.Text | None = Field(
        None,
        description="The text of the token that ends each document, such as `<|endoftext|>`. It is not added again "
        "where the tokenizer has added it.",
    )
    add_special_tokens: values.Boolean = Field(
        True, description="Whether to add what the tokenizer adds by itself, such as `[CLS]`."
    )
    allow_special: values.Boolean = Field(
        False,
        description="Whether the text of a special token, such as `<|endoftext|>`, becomes that token where a document "
        "has it. By default, it is text like any other.",
    )
    truncate: values.Positive | None = Field(
        None, description="The most tokens of a document, with `eos` among them. By default, all."
    )
    join: str = Field("\n", description="What is between the texts of a list.")
    pair: Origin | None = Field(
        None,
        description="The second text, for tokenizers of encoders that take two: `[CLS] a [SEP] b [SEP]`.",
    )
    type_ids: NewName | None = Field(
        None,
        description="A further field: 0 for each token of the first text, and 1 for those of the second.",
    )
    labels: NewName | None = Field(
        None, description="A further field with the same ids, for models that learn to predict each token."
    )

    @property
    def origins(self) -> tuple[Path, ...]:
        return super().origins + (() if self.pair is None else (path_of(self.pair),))

    @property
    def options(self) -> dict[str, Any]:
        options = {name: value for name, value in super().options.items() if name != "labels"}
        return {**options, "pair": self.pair is not None, "type_ids": self.type_ids is not None}

    @property
    def results(self) -> tuple[str, ...]:
        return tuple(name for name in (self.type_ids, self.labels) if name is not None)

    def call(self, step: Callable[..., Any], found: list[Any], numbers: object) -> Sequence[Any]:
        made = step(*found)
        made = (made,) if self.type_ids is None else made
        return made if self.labels is None else (*made, made[0])

    @property
    def leaving_out(self) -> dict[str, Any]:
        if self.eos is not None:
            return {}
        return {"tokenize": self.tokenize, "add_special_tokens": self.add_special_tokens, "pair": self.pair}

    @classmethod
    def check(cls, written: Mapping[str, Any]) -> None:
        check_tokenizer(written.get("file"))
        if "join" in written and not isinstance(written.get("tokenize"), (list, tuple)):
            values.refuse("E206", "`join` needs a list of texts", "write `tokenize: [title, text]`")


class MaskTokens(Recipe):
    """Token ids → the same with some masked, and the labels of these, for masked language modelling."""

    step = "mask_tokens"
    factory = "wdspec.steps.mask_tokens:make_mask_tokens"
    further = ("labels",)
    needs = ("tokenizers",)
    draws = True
    paths = ("file",)
    delivers = "int64"

    mask_tokens: Origin = Field(description="The token ids: a field, such as one that `tokenize` makes.")
    file: Annotated[values.Text, values.FilePath()] = Field(description="The tokenizer, as for `tokenize`.")
    labels: NewName = Field(
        description="A further field: the ids of the tokens that are chosen, and -100 elsewhere."
    )
    probability: values.Fraction = Field(0.15, description="The probability that a token is chosen.")
    mask_token: values.Text | None = Field(
        None, description="The text of the mask token. By default, `[MASK]` or `<mask>`."
    )

    @property
    def options(self) -> dict[str, Any]:
        return {name: value for name, value in super().options.items() if name != "labels"}

    @property
    def results(self) -> tuple[str, ...]:
        return (self.labels,)

    def call(
        self, step: Callable[..., Any], found: list[Any], numbers: Callable[[int], float] | None
    ) -> Sequence[Any]:
        made: Sequence[Any] = step(found[0], numbers)
        return made

    @classmethod
    def check(cls, written: Mapping[str, Any]) -> None:
        check_tokenizer(written.get("file"))


def read_classes(value: Any) -> dict[str, Any]:
    """Read `[cat, dog]`, or `{cat: 0, dog: 1}`; names that YAML reads as numbers are text."""
    if isinstance(value, dict):
        return {str(name): number for name, number in value.items()}
    if not isinstance(value, (list, tuple)) or not value:
        hint = "write `names: [cat, dog]`, or `names: {cat: 0, dog: 1}`"
        values.refuse("E202", f"expected the names of classes, but this is {describe(value)}", hint)
    names = [str(name) for name in value]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        hint = "remove one; for other names of a class write `aliases`"
        values.refuse("E203", f"the class {quote(twice)} is in the list twice", hint)
    return {name: number for number, name in enumerate(names)}


def read_unknown(value: Any) -> Any:
    """Read `error`, or the number of classes that are not in the list."""
    if value == "error":
        return value
    if isinstance(value, str) and not values.INTEGER_TEXT.fullmatch(value):
        values.refuse(
            "E203", f"{quote(value)} is not a choice for `unknown`", "write `error`, or a number: `-100`"
        )
    return values.read_integer(value)


class Label(Recipe):
    """The name of a class → its number, or a list of names → their numbers."""

    step = "label"
    factory = "wdspec.steps.label:make_label"
    paths = ("file",)

    label: Origin = Field(
        description="The name of the class: a field, or a value in one. A list of names, such as "
        "`objects[:].category`, becomes an array of numbers."
    )
    file: values.LocalPath | None = Field(
        None,
        description="The classes: a text file with one name per line, which are numbered from 0; `.json` with a list, "
        "or a map of names to numbers; or `.csv` with names and numbers.",
    )
    names: Annotated[
        dict[str, values.Integer] | None,
        BeforeValidator(read_classes),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "array", "minItems": 1},
                    {"type": "object", "additionalProperties": {"type": "integer"}},
                ]
            }
        ),
    ] = Field(None, description="The classes, in place of a file: `[cat, dog]`, or `{cat: 0, dog: 1}`.")
    aliases: dict[str, values.Text] = Field({}, description="Other names of classes: `{kitty: cat}`.")
    unknown: Annotated[
        int | Literal["error"],
        BeforeValidator(read_unknown),
        WithJsonSchema({"anyOf": [{"const": "error"}, {"type": "integer"}]}),
    ] = Field(
        "error", description="What to do with a name that is not a class: `error`, or the number to use."
    )

    @classmethod
    def check(cls, written: Mapping[str, Any]) -> None:
        if ("file" in written) == ("names" in written):
            what = "has both `file` and `names`" if "file" in written else "has neither `file` nor `names`"
            values.refuse(
                "E206", f"`label` {what}", "write one of them: `names: [cat, dog]`, or `file: names.txt`"
            )
        aliases, names = written.get("aliases"), written.get("names")
        known = {} if names is None else read_classes(names)
        for alias, name in aliases.items() if isinstance(aliases, dict) and known else ():
            if str(alias) in known:
                values.refuse(
                    "E203", f"the alias {quote(str(alias))} is a class itself", "remove one of them"
                )
            if str(name) not in known:
                hint = did_you_mean(str(name), known) or "name a class of `names`"
                values.refuse(
                    "E203", f"{quote(str(alias))} is an alias of {quote(str(name))}, which is no class", hint
                )


def _one_of(
    names: tuple[str, ...], what: str, meant: Mapping[str, str] | None = None
) -> Callable[[Any], Any]:
    """Return the reader of a choice. `meant` has what to write for names of other tools."""

    def read(value: Any) -> Any:
        if value not in names:
            hint = (meant or {}).get(str(value).lower()) or did_you_mean(str(value), names)
            hint = hint or f"write one of {', '.join(names)}"
            values.refuse("E203", f"{quote(str(value))} is not a choice for `{what}`", hint)
        return value

    return read


LOSSES = ("assistant", "last", "all")
Loss = Annotated[str, BeforeValidator(_one_of(LOSSES, "loss")), WithJsonSchema({"enum": [*LOSSES]})]


def read_length(value: Any) -> Any:
    """Read a number of tokens, or the field that has it."""
    is_text = isinstance(value, str) and not values.INTEGER_TEXT.fullmatch(value)
    if is_text and re.fullmatch(r"\s*\d.*", value):
        sides = [int(side) for side in re.findall(r"\d+", value)]
        hint = (
            f"write the product: `image_length: {math.prod(sides)}`"
            if len(sides) > 1
            else "write a number: `256`"
        )
        values.refuse("E203", f"{quote(value)} is not a number of tokens, nor a field", hint)
    number = read_origin(value) if is_text else values.read_integer(value)
    if not is_text and number < 1:
        values.refuse(
            "E203", f"an image has at least 1 token, not {number}", "write a number such as 256, or a field"
        )
    return number


def read_date(value: Any) -> Any:
    """Read a date: `2026-01-31`."""
    try:
        return datetime.date.fromisoformat(str(value)).isoformat()
    except ValueError:
        values.refuse(
            "E203", f"{quote(str(value))} is no date", "write year, month and day: `date: 2026-01-31`"
        )


_OF_IMAGES = Key("", Needs("images", "write `images: jpg`, with the field that has them"))


class Chat(Recipe):
    """A conversation → token ids, and labels."""

    step = "chat"
    factory = "wdspec.steps.chat:make_chat"
    further = ("labels",)
    needs = ("tokenizers", "jinja2")
    paths = ("file", "template")
    delivers = "int64"

    chat: Origin = Field(
        description="The messages: a list of maps with `role` and `content`, in a field or in a value of one; or, with "
        "`prompt`, the text of an answer."
    )
    file: values.LocalPath = Field(
        description="A `tokenizer.json` of the library `tokenizers`, or a folder of `transformers`."
    )
    template: values.LocalPath | None = Field(
        None, description="A file with a chat template (Jinja). By default, the template of the folder."
    )
    labels: NewName | None = Field(
        None, description="A further field: the ids where there is a loss, and -100 elsewhere."
    )
    loss: Annotated[Loss, Key("", Needs("labels", "write `labels: labels`, or remove `loss`"))] = Field(
        "assistant",
        description="Where there is a loss: in what the `assistant` wrote, in the `last` answer, or in `all` tokens.",
    )
    prompt: Origin | None = Field(
        None,
        description="Messages that come before, and have no loss; for the text of an answer, also that of a question.",
    )
    tools: Origin | None = Field(
        None, description="The functions that the assistant may call, as JSON schemas."
    )
    images: Annotated[
        Origins | None,
        Key("", Needs("image_token", 'write the text that stands for an image: `image_token: "<image>"`')),
    ] = Field(
        None,
        description="The images: a field with one or a list, or several fields. There must be as many as placeholders "
        "in the text.",
    )
    image_token: Annotated[values.Text | None, _OF_IMAGES] = Field(
        None, description="The text of the token that stands for an image, such as `<|image_pad|>`."
    )
    image_length: Annotated[
        int | str,
        BeforeValidator(read_length),
        WithJsonSchema({"anyOf": [{"type": "integer"}, values.TEXT_FORM]}),
        _OF_IMAGES,
    ] = Field(1, description="How many tokens stand for an image: a number, or the field that has it.")
    allow_special: values.Boolean = Field(
        False,
        description="Whether the text of a special token inside a message, such as `<|im_end|>`, becomes that token. "
        "By default, it is text like any other.",
    )
    variables: dict[str, Any] = Field(
        {}, description="Further values that the template reads: `{enable_thinking: false}`."
    )
    roles: dict[str, values.Text] = Field(
        {}, description="Other names of roles in the messages: `{bot: assistant}`."
    )
    date: (
        Annotated[str, BeforeValidator(read_date), WithJsonSchema({"type": "string", "format": "date"})]
        | None
    ) = Field(None, description="The date that the template writes as today's: `2026-01-31`.")

    @property
    def origins(self) -> tuple[Path, ...]:
        return tuple(path_of(origin) for each in self._asked.values() for origin in each)

    @property
    def optional(self) -> frozenset[Path]:
        asked = self._asked
        return frozenset(
            path_of(each) for name in ("tools", "images", "image_length") for each in asked.get(name, ())
        )

    @property
    def _asked(self) -> dict[str, tuple[str, ...]]:
        """The origins of each argument of the step."""
        length = self.image_length if isinstance(self.image_length, str) else None
        found = {"messages": self.chat, "prompt": self.prompt, "tools": self.tools, "images": self.images}
        return {
            name: (each,) if isinstance(each, str) else each
            for name, each in {**found, "image_length": length}.items()
            if each is not None
        }

    @property
    def options(self) -> dict[str, Any]:
        left_out = {"labels", "prompt", "tools", "images", "image_length"}
        return {name: value for name, value in super().options.items() if name not in left_out}

    @property
    def files(self) -> dict[str, str]:
        return {"folder" if name == "file" else name: path for name, path in super().files.items()}

    @property
    def results(self) -> tuple[str, ...]:
        return () if self.labels is None else (self.labels,)

    @property
    def unread(self) -> Mapping[str, str]:
        why = "so the model learns to call functions that its prompt does not have"
        return {} if self.tools is not None else {"tools": why}

    def call(self, step: Callable[..., Any], found: list[Any], numbers: object) -> Sequence[Any]:
        given: dict[str, Any] = {"image_length": self.image_length}
        if "images" in self._asked:
            given["images_named"] = ", ".join(f"`{each}`" for each in self._asked["images"])
        left = iter(found)
        for name, origins in self._asked.items():
            held = [next(left) for _ in origins]
            given[name] = held[0] if len(held) == 1 else [each for one in held for each in _as_list(one)]
        ids, labels = (each.astype("int32") for each in step(**given))
        return (ids,) if self.labels is None else (ids, labels)

    @classmethod
    def check(cls, written: Mapping[str, Any]) -> None:
        if written.get("file") is not None and str(written["file"]).startswith("hf://"):
            hint = "download the folder, and write its path"
            values.refuse(
                "E203", f"a chat template cannot be read from {quote(str(written['file']))}", hint, "file"
            )


def _as_list(value: Any) -> list[Any]:
    """The images of a field."""
    return value if isinstance(value, list) else [] if value is None else [value]


def read_weights(value: Any) -> Any:
    """Read the weights of candidates."""
    if not isinstance(value, (list, tuple)):
        hint = "write a list: `weights: [0.5, 0.5]`"
        values.refuse("E202", f"expected a list of weights, but this is {describe(value)}", hint)
    weights = tuple(map(values.read_number, value))
    if not any(isinstance(each, (int, float)) and each > 0 for each in weights):
        values.refuse("E203", "no candidate has a weight above 0", "write a weight for each of them")
    return weights


class Choose(Recipe):
    """One of several values, another one in each pass."""

    step = "choose"
    factory = "wdspec.steps.choose:make_choose"
    draws = True

    choose: Origins = Field(
        description="What to choose from: a field with a list, or several fields. Those that are null, or that a "
        "sample does not have, are left out."
    )
    weights: Annotated[tuple[values.Share, ...] | None, BeforeValidator(read_weights)] = Field(
        None, description="How often each is chosen: `[0.5, 0.3, 0.2]`. By default, equally often."
    )

    @property
    def optional(self) -> frozenset[Path]:
        return frozenset() if isinstance(self.choose, str) else frozenset(self.origins)

    def call(self, step: Callable[..., Any], found: list[Any], numbers: object) -> Sequence[Any]:
        return (step(found[0] if isinstance(self.choose, str) else found, numbers),)

    @classmethod
    def check(cls, written: Mapping[str, Any]) -> None:
        fields, weights = written.get("choose"), written.get("weights")
        if not isinstance(fields, (list, tuple)) or not isinstance(weights, (list, tuple)):
            return
        if len(fields) != len(weights):
            what = f"{len(weights)} weights for {len(fields)} fields"
            values.refuse("E203", what, "write one weight for each field", "weights")


_PAIR = re.compile(r"(\d+)\s*(?:[x×*,]|\s)\s*(\d+)")


def read_sides(value: Any) -> Any:
    """Read one side, or height and width."""
    sides = value if isinstance(value, (list, tuple)) else [value]
    if not 1 <= len(sides) <= 2 or isinstance(value, dict):
        values.refuse(
            "E203", f"{quote(str(value))} is no size", "write a side, or height and width: `[240, 320]`"
        )
    if pair := _PAIR.fullmatch(str(value)):
        meant = f"write height and width as a list: `[{pair[1]}, {pair[2]}]`"
        values.refuse("E202", f"expected a side, or a list of two, but this is {describe(value)}", meant)
    numbers = tuple(map(values.read_integer, sides))
    if not all(isinstance(each, int) and 1 <= each <= MOST_SIDE for each in numbers):
        values.refuse(
            "E203", f"{quote(str(value))} is no size", f"sides have 1 to {MOST_SIDE} pixels: `size: 224`"
        )
    return numbers if len(numbers) == 2 else numbers[0]


def read_range(value: Any) -> Any:
    """Read two numbers above 0, the lesser first."""
    hint = "write the least and the largest: `[0.08, 1]`"
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        values.refuse("E202", f"expected two numbers, but this is {describe(value)}", hint)
    low, high = (values.read_number(each) for each in value)
    if not (isinstance(low, (int, float)) and isinstance(high, (int, float)) and 0 < low <= high):
        values.refuse("E203", f"{low} to {high} is no range above 0", hint)
    return float(low), float(high)


def read_pairs(value: Any) -> Any:
    """Read pairs of different numbers of points, none of them twice."""
    hint = "write pairs of points, counted from 0: `[[1, 2], [3, 4]]`"
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, (list, tuple)) for each in value):
        values.refuse("E202", f"expected a list of pairs, but this is {describe(value)}", hint)
    pairs = tuple(tuple(map(values.read_integer, each)) for each in value)
    points = [point for pair in pairs for point in pair]
    if (
        any(len(pair) != 2 for pair in pairs)
        or len({*points}) < len(points)
        or any(each < 0 for each in points)
    ):
        values.refuse("E203", "these are no pairs of points, each of them once", hint)
    return pairs


BOX_FORMATS = ("xyxy", "xywh", "cxcywh")
_FOREIGN_FORMATS = {
    "coco": "write `xywh`: left, top, width and height",
    "pascal_voc": "write `xyxy`: two corners",
    "voc": "write `xyxy`: two corners",
    "ltrb": "write `xyxy`: two corners",
    "ltwh": "write `xywh`: left, top, width and height",
    "albumentations": "write `xyxy`, and `relative: true`",
    "yolo": "write `cxcywh`, and `relative: true`",
}
Range = Annotated[
    tuple[float, float],
    BeforeValidator(read_range),
    WithJsonSchema(
        {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "minItems": 2, "maxItems": 2}
    ),
]
_SIDE = {"type": "integer", "minimum": 1, "maximum": MOST_SIDE}


_OF_BOXES = Key("", Needs("boxes", "write `boxes: {{boxes_in_crop: json.boxes}}`, or remove `{key}`"))


def read_new_fields(value: Any, info: ValidationInfo) -> Any:
    """Refuse an origin in place of a map of new fields."""
    if isinstance(value, str):
        key = info.field_name
        hint = f"write `{key}: {{{key}: {_as_yaml(value)}}}`: the new field, and where it is from"
        values.refuse("E202", f"`{key}` takes a map, but this is {describe(value)}", hint)
    return value


NewFields = Annotated[dict[str, Origin], BeforeValidator(read_new_fields)]


class Crop(Recipe):
    """One crop and flip for an image, its masks, boxes and points."""

    step = "crop"
    factory = "wdspec.fields.codecs.cropping:make_crop"
    further = ("kept",)
    makes_media = True
    draws = True

    crop: Origin = Field(description="The image, which `decode` has decoded.")
    size: Annotated[
        int | tuple[int, int],
        BeforeValidator(read_sides),
        WithJsonSchema({"anyOf": [_SIDE, {"type": "array", "items": _SIDE, "minItems": 2, "maxItems": 2}]}),
    ] = Field(description="The side of the result in pixels, or height and width.")
    scale: Range = Field((0.08, 1.0), description="The share of the area of the image that the crop has.")
    ratio: Range = Field((3 / 4, 4 / 3), description="The ratio of width to height of the crop.")
    hflip: values.Fraction = Field(0.0, description="The probability of a horizontal flip.")
    interpolation: Annotated[
        str,
        BeforeValidator(_one_of(INTERPOLATIONS, "interpolation")),
        WithJsonSchema({"enum": [*INTERPOLATIONS]}),
    ] = Field("bilinear", description="How the image is resized. Masks always take the nearest pixel.")
    masks: NewFields = Field({}, description="Masks of the same size: new field → origin.")
    boxes: NewFields = Field({}, description="Boxes: new field → origin.")
    box_format: Annotated[
        str,
        BeforeValidator(_one_of(BOX_FORMATS, "box_format", _FOREIGN_FORMATS)),
        WithJsonSchema({"enum": [*BOX_FORMATS]}),
        _OF_BOXES,
    ] = Field("xyxy", description="The numbers of a box: two corners, corner and size, or center and size.")
    relative: values.Boolean = Field(
        False, description="Whether boxes and points are fractions of width and height, rather than pixels."
    )
    kept: Annotated[NewName | None, _OF_BOXES] = Field(
        None,
        description="A further field: which boxes are in the crop. Others are dropped; without this, they stay, with "
        "an area of 0.",
    )
    points: NewFields = Field(
        {}, description="Points, as x and y, or x, y and whether they are visible: new field → origin."
    )
    flip_points: Annotated[
        tuple[tuple[int, int], ...],
        BeforeValidator(read_pairs),
        WithJsonSchema(
            {"type": "array", "items": {"type": "array", "items": {"type": "integer", "minimum": 0}}}
        ),
        Key("", Needs("points", "write `points: {{points_in_crop: json.points}}`, or remove `{key}`")),
    ] = Field((), description="Points that a flip exchanges, such as left and right eye: `[[1, 2]]`.")

    @property
    def _parts(self) -> tuple[dict[str, str], ...]:
        return self.masks, self.boxes, self.points

    @property
    def origins(self) -> tuple[Path, ...]:
        return super().origins + tuple(path_of(each) for part in self._parts for each in part.values())

    @property
    def results(self) -> tuple[str, ...]:
        return (*(name for part in self._parts for name in part), *((self.kept,) if self.kept else ()))

    @property
    def options(self) -> dict[str, Any]:
        left_out = {"masks", "boxes", "points", "kept"}
        written = {name: value for name, value in super().options.items() if name not in left_out}
        return {**written, "drop": self.kept is not None}

    def call(self, step: Callable[..., Any], found: list[Any], numbers: object) -> Sequence[Any]:
        left = iter(found[1:])
        masks, boxes, points = ({name: next(left) for name in part} for part in self._parts)
        made = step(found[0], numbers, masks=masks, boxes=boxes, points=points)
        kept = [*made.kept.values()] if self.kept else []
        return (made.image, *made.masks.values(), *made.boxes.values(), *made.points.values(), *kept)

    @classmethod
    def check(cls, written: Mapping[str, Any]) -> None:
        boxes = written.get("boxes")
        if written.get("kept") is not None and isinstance(boxes, dict) and len(boxes) > 1:
            what = f"`kept` says which boxes are in the crop, and there are {len(boxes)} fields with boxes"
            values.refuse("E203", what, "crop one of them, or remove `kept`", "kept")
        scale = written.get("scale")
        if isinstance(scale, (list, tuple)) and any(
            isinstance(each, (int, float)) and each > 1 for each in scale
        ):
            hint = "write parts of its area, at most 1: `[0.08, 1]`"
            values.refuse("E203", "`scale` is the share of the image that the crop has", hint, "scale")


def read_audio_decoder(value: Any) -> Any:
    """Read a decoder of audio with its options."""
    name = values.read_text(value)
    base, options = split_decoder(name)
    example = "write `decode: audio+rate=16000+mono`"
    if base not in ("audio", "torch_audio"):
        hint = f"{example}, or `torch_audio` for tensors"
        values.refuse("E203", f"{quote(base)} is no decoder of audio", hint)
    known = sorted(BY_NAME[base].options)
    for option in sorted(options.difference(known)):
        hint = did_you_mean(option, known) or f"its options are {', '.join(map(show_option, known))}"
        values.refuse("E209", f"the decoder {quote(base)} has no option {quote(option)}", hint)
    try:
        option_values(name)
    except ValueError as error:
        values.refuse("E209", f"{quote(name)}: {error}", example)
    return name


class Segment(Recipe):
    """A part of a recording."""

    step = "segment"
    factory = "wdspec.fields.codecs.segments:make_segment"
    makes_media = True
    needs = ("soundfile",)

    segment: Origin = Field(description="The audio file, as bytes: `decode` must not decode it.")
    offset: Origin | None = Field(
        None, description="Where the segment starts, in seconds: a field. By default, at the start."
    )
    duration: Origin | None = Field(
        None, description="How long it is, in seconds: a field. By default, up to the end."
    )
    decode: Annotated[str, BeforeValidator(read_audio_decoder), WithJsonSchema(values.TEXT_FORM)] = Field(
        "audio", description="The decoder, with the options of `audio`: `audio+rate=16000+mono`."
    )
    source_rate: Origin | None = Field(
        None, description="The sample rate that the file must have, in Hz: a field."
    )

    @property
    def draws(self) -> bool:  # type: ignore[override]  # it depends on the options of the decoder
        return draws(self.decode)

    @property
    def _asked(self) -> dict[str, str]:
        written = {"offset": self.offset, "duration": self.duration, "source_rate": self.source_rate}
        return {name: path for name, path in written.items() if path is not None}

    @property
    def origins(self) -> tuple[Path, ...]:
        return (*super().origins, *map(path_of, self._asked.values()))

    @property
    def optional(self) -> frozenset[Path]:
        return frozenset(map(path_of, self._asked.values()))

    def without(self, path: Path) -> str:
        ends = {"offset": "segments start at 0 s", "duration": "segments go to the end of a recording"}
        return next(
            (ends[name] for name, each in self._asked.items() if path_of(each) == path and name in ends), ""
        )

    @property
    def options(self) -> dict[str, Any]:
        return {"decode": self.decode, **self._asked}

    def call(
        self, step: Callable[..., Any], found: list[Any], numbers: Callable[[int], float] | None
    ) -> Sequence[Any]:
        return (step(found[0], numbers, **dict(zip(self._asked, found[1:], strict=True))),)

    def measure(self, rest: Path) -> tuple[str, ...] | None:
        return ("seconds", *self._asked) if rest == ("seconds",) else None


def read_snr(value: Any) -> Any:
    """Read decibels: `5..20`, or a number."""
    wanted = "a range of decibels such as `5..20`, or a number"
    if isinstance(value, (list, tuple)) and len(value) == 2:
        low, high = value
        values.refuse("E202", "a range is not a list here", f"write `snr: {low}..{high}`")
    try:
        span = read_span(str(value).removesuffix("dB").strip(), wanted)
    except ValueError as error:
        values.refuse("E203", str(error), "write `snr: 5..20`")
    if max(map(abs, span)) > 200:
        values.refuse("E203", f"{quote(str(value))} is not {wanted}", "write `snr: 5..20`")
    return value


class _SoundMixing(Recipe):
    """A recording that is mixed with another one, which samples may lack."""

    makes_media = True
    mixes = True
    other: ClassVar[str]
    """The option that names the other one."""

    @property
    def origins(self) -> tuple[Path, ...]:
        return (*super().origins, path_of(getattr(self, self.other)))

    @property
    def optional(self) -> frozenset[Path]:
        return frozenset({path_of(getattr(self, self.other))})

    @property
    def options(self) -> dict[str, Any]:
        return {name: value for name, value in super().options.items() if name != self.other}


class AddNoise(_SoundMixing):
    """A recording with noise."""

    step = "add_noise"
    factory = "wdspec.fields.codecs.sound_mixing:make_add_noise"
    draws = True
    other = "noise"

    add_noise: Origin = Field(description="The recording, which `decode` or another step has decoded.")
    noise: Origin = Field(description="The noise: another recording. Samples may lack it.")
    snr: Annotated[
        int | float | str,
        BeforeValidator(read_snr),
        WithJsonSchema({"anyOf": [{"type": "number"}, values.TEXT_FORM]}),
    ] = Field(description="The signal-to-noise ratio in decibels: a range such as `5..20`, or a number.")

    @property
    def in_parts(self) -> frozenset[Path]:
        return frozenset({path_of(self.noise)}) - {path_of(self.add_noise)}


class Convolve(_SoundMixing):
    """A recording in a room."""

    step = "convolve"
    factory = "wdspec.fields.codecs.sound_mixing:make_convolve"
    other = "impulse"

    convolve: Origin = Field(description="The recording, which `decode` or another step has decoded.")
    impulse: Origin = Field(
        description="The impulse response of the room: another recording. Samples may lack it."
    )


class Take(Recipe):
    """A value, such as one of a companion → a field of its own."""

    step = "take"
    factory = "wdspec.steps.take:make_take"

    take: Origin = Field(
        description="The value: `wrong.text` is the field `text` of a companion, and of several companions the list "
        "of theirs."
    )
    default: Any = Field(None, description="What to use where there is none. By default, `missing` decides.")

    @property
    def fills(self) -> bool:
        return self.default is not None

    def without(self, path: Path) -> str:
        return "it is always the default"


def _together(*others: str, remedy: str = "") -> Key:
    """Return the declaration of an option about labels, which needs others."""
    hint = "write `target: cls, other_target: partner.cls, soft_target: labels`"
    return Key("", *(Needs(other, f"{hint}, {remedy}" if remedy else hint) for other in others))


class ImageMixing(Recipe):
    """An image and its label, mixed with those of a companion."""

    draws = True
    mixes = True
    further = ("soft_target", "share")

    other: Origin = Field(
        description="The other image, such as `partner.jpg`. Where it is null, the image stays as it is."
    )
    alpha: values.PositiveNumber = Field(
        1.0, description="The parameter of the beta distribution from which the share of the image is drawn."
    )
    probability: values.Fraction = Field(
        1.0, description="How often images are mixed, if there is another one."
    )
    target: Annotated[Origin | None, _together("other_target", "soft_target")] = Field(
        None, description="The label: a number, or a list with a share for each class."
    )
    other_target: Annotated[Origin | None, _together("target", "soft_target")] = Field(
        None, description="The label of the other image, such as `partner.cls`."
    )
    classes: Annotated[values.Positive | None, _together("target", remedy="or remove `classes`")] = Field(
        None, description="The number of classes, if labels are numbers."
    )
    soft_target: Annotated[NewName | None, _together("target", "other_target")] = Field(
        None, description="A further field: the mixed labels, a share for each class."
    )
    share: NewName | None = Field(None, description="A further field: the share of the image, from 0 to 1.")

    @property
    def origins(self) -> tuple[Path, ...]:
        labels = () if self.target is None or self.other_target is None else (self.target, self.other_target)
        return super().origins + tuple(map(path_of, (self.other, *labels)))

    @property
    def optional(self) -> frozenset[Path]:
        return frozenset(path_of(each) for each in (self.other, self.other_target) if each is not None)

    @property
    def results(self) -> tuple[str, ...]:
        return tuple(name for name in (self.soft_target, self.share) if name is not None)

    @property
    def options(self) -> dict[str, Any]:
        names = ("alpha", "probability", "classes")
        return {name: value for name, value in super().options.items() if name in names}

    def call(
        self, step: Callable[..., Any], found: list[Any], numbers: Callable[[int], float] | None
    ) -> Sequence[Any]:
        image, other, *labels = found
        made = step(image, numbers, other, *labels)
        results = ((self.soft_target, made.label), (self.share, made.share))
        return (made.image, *(value for name, value in results if name is not None))


class Cutmix(ImageMixing):
    """An image with a box of another one, and their labels mixed in the same way."""

    step = "cutmix"
    factory = "wdspec.steps.image_mixing:make_cutmix"

    cutmix: Origin = Field(description="The image, which `decode` has decoded.")


class Mixup(ImageMixing):
    """The weighted sum of an image and another one, and of their labels."""

    step = "mixup"
    factory = "wdspec.steps.image_mixing:make_mixup"

    mixup: Origin = Field(description="The image, which `decode` has decoded.")


def _tag_of(value: Any) -> str:
    """Return the tag of the step of an entry. It is not a key: those of the file are found by their names."""
    return f"a {value.step if isinstance(value, Recipe) else step_of(value)}"


AnyStep = Annotated[
    Annotated[Tokenize, Tag("a tokenize")]
    | Annotated[Label, Tag("a label")]
    | Annotated[Chat, Tag("a chat")]
    | Annotated[Choose, Tag("a choose")]
    | Annotated[Take, Tag("a take")]
    | Annotated[Crop, Tag("a crop")]
    | Annotated[Cutmix, Tag("a cutmix")]
    | Annotated[Mixup, Tag("a mixup")]
    | Annotated[MaskTokens, Tag("a mask_tokens")]
    | Annotated[Segment, Tag("a segment")]
    | Annotated[AddNoise, Tag("a add_noise")]
    | Annotated[Convolve, Tag("a convolve")],
    Discriminator(_tag_of),
]
STEPS: Mapping[str, type[Recipe]] = {
    model.step: model for model in (get_args(each)[0] for each in get_args(get_args(AnyStep)[0]))
}
"""The steps by name."""


def step_of(written: Mapping[str, Any]) -> str | None:
    """Return the name of the step in an entry; None unless there is exactly one."""
    named = [key for key in written if key in STEPS]
    return named[0] if len(named) == 1 else None


_FIELDS = {
    "tokenize": ("text", "ids"),
    "label": ("cls", "class_id"),
    "chat": ("messages", "input_ids"),
    "choose": ("captions", "caption"),
    "crop": ("jpg", "image"),
    "cutmix": ("jpg", "image"),
    "mixup": ("jpg", "image"),
    "mask_tokens": ("ids", "input_ids"),
    "segment": ("wav", "audio"),
    "add_noise": ("wav", "audio"),
    "convolve": ("wav", "audio"),
    "take": ("wrong.text", "negative"),
}
"""Usual fields that a step has and makes, for hints."""
_OPTIONS: dict[str, dict[str, Any]] = {
    "tokenize": {"file": "tokenizer.json"},
    "label": {"file": "names.txt"},
    "chat": {"file": "Qwen2.5-0.5B"},
    "crop": {"size": 224},
    "cutmix": {"other": "partner.jpg"},
    "mixup": {"other": "partner.jpg"},
    "mask_tokens": {"file": "tokenizer.json", "labels": "labels"},
    "segment": {"offset": "json.offset", "duration": "json.duration"},
    "add_noise": {"noise": "noise", "snr": "5..20"},
    "convolve": {"impulse": "impulse"},
}
"""Options without which there is no step, for hints."""


def hint_of(written: Any, name: object = None) -> str:
    """Return what to write for a step that is written in another form, as a working line.

    Args:
        written: the map, such as `{tokenize: {from: text, to: ids, file: t.json}}`; or the name of a field.
        name: the field that is made, if it is known.
    """
    found = dict(written) if isinstance(written, dict) else {}
    for step in [key for key in found if key in STEPS and isinstance(found[key], dict)]:
        found = {step: None, **found, **found[step]}  # `{tokenize: {from: text, to: ids}}`
        found[step] = written[step].get(step)
    named = found.pop("name", None) or found.pop("type", None) or found.pop("step", None)
    step = step_of(found) or (named if named in STEPS else "tokenize")
    new = next((found.pop(key) for key in ("to", "output", "into", "as") if key in found), None)
    origin = next((found.pop(key) for key in ("from", "field", "input", "of") if key in found), None)
    origin, (text, result) = found.get(step) or origin, _FIELDS.get(step, ("text", "new"))
    known = {key: value for key, value in found.items() if key in STEPS[step].model_fields and key != step}
    if isinstance(origin, str) and origin.endswith((".json", ".txt", ".csv", "/")):
        known, origin = {"file": origin, **known}, None
    known = known or _OPTIONS.get(step, {})
    shown = [
        f"{step}: {_as_yaml(origin or text)}",
        *(f"{key}: {_as_yaml(each)}" for key, each in known.items()),
    ]
    return f"write `make: {{{_as_yaml(new or name or result)}: {{{', '.join(shown)}}}}}`"


_WORDS = {
    **dict.fromkeys(("tokenizer", "tokenizers", "tokenise"), "tokenize"),
    **dict.fromkeys(("labels", "class_names"), "label"),
    **dict.fromkeys(("messages", "conversations"), "chat"),
    "captions": "choose",
    **dict.fromkeys(("noise", "musan"), "add_noise"),
    **dict.fromkeys(("reverb", "rir", "reverberate"), "convolve"),
}
"""Keys of other tools → the step that they may mean."""
_HOLDERS = frozenset({"steps", "step", "processors", "pipeline"})
"""Keys under which other tools have steps."""


def step_meant(key: str, value: Any) -> str:
    """Return what to write for an unknown key of a source that means a step; empty for other keys.

    Args:
        key: in lower case: `tokenize`, or `steps`.
        value: its value.
    """
    if key in _HOLDERS:
        entries = value if isinstance(value, list) else [value]
        entry = next((each for each in entries if isinstance(each, dict)), None)
        named = entry is not None and any(word in STEPS for word in (*entry, *map(str, entry.values())))
        return f"steps belong in `make`: {hint_of(entry)}" if named else ""
    step = key if key in STEPS else _WORDS.get(key)
    first = value[0] if isinstance(value, list) and value else value
    if step is None or isinstance(first, (int, float)):  # `crop: 224` names no field
        return ""
    if step == "take" and "." not in str(first):  # the fields, or the number of samples, to read
        return ""
    known = value if step == key or isinstance(value, (dict, list)) or "." in str(value) else None
    return f"it is a step of `make`: {hint_of({step: known})}"


def _as_yaml(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_as_yaml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_as_yaml(key)}: {_as_yaml(each)}' for key, each in value.items())}}}"
    text = str(value).lower() if isinstance(value, bool) else str(value)[:80]
    return f'"{text}"' if any(sign in text for sign in "<>|,{}[]#:&*!%@") else text


def read_step(value: Any) -> Any:
    """Check that an entry of `make` names one step, and has only keys of it."""
    if isinstance(value, Recipe):
        return value
    if not isinstance(value, dict):
        values.refuse("E202", f"expected a step, but this is {describe(value)}", f"write `{EXAMPLE}`")
    named = [key for key in value if key in STEPS]
    if len(named) > 1:
        what = f"{' and '.join(f'`{key}`' for key in named)} are two steps in one entry"
        values.refuse("E207", what, "give each a field of its own; one can be made from the other")
    if not named:
        near = next((hint for key in value if (hint := did_you_mean(str(key), STEPS))), "")
        meant = None if near else next((key for key in value if key in _WORDS), None)
        if meant is not None:
            near = hint_of({_WORDS[meant]: value[meant]})
        elif "resample" in value:
            near = "audio is resampled when it is decoded: `decode: {wav: audio+rate=16000}`"
        elif {"resize", "center_crop", "random_resized_crop", "hflip"} & {*value}:
            near = (
                "images are resized and cropped when they are decoded: `decode: {jpg: rgb8+resize=224x224}`"
            )
        hint = hint_of(value) if {"from", "to", "name", "type", "step"} & {*value} else near
        values.refuse("E206", "this names no step", hint or f"the steps are {', '.join(STEPS)}: `{EXAMPLE}`")
    model = STEPS[named[0]]
    if isinstance(value[named[0]], dict) or {"from", "to"} & {*value}:
        what = f"the value of `{named[0]}` is what the field is made from, and the key above is the new field"
        values.refuse("E202", what, hint_of(value))
    unknown = [key for key in value if key not in model.model_fields]
    if unknown:
        _refuse_unknown(model, {str(key): value[key] for key in unknown})
    _check_needs(model, value)
    model.check(value)
    return value


def _check_needs(model: type[Recipe], written: Mapping[str, Any]) -> None:
    """Refuse options without another one that they need, as they declare."""
    for name, field in model.model_fields.items():
        for mark in key_of(field).marks if written.get(name) is not None else ():
            if isinstance(mark, Needs) and not written.get(mark.others):
                hint = mark.hint.format(key=name, others=mark.others)
                values.refuse("E206", f"`{name}` needs `{mark.others}`", hint, name)


def _refuse_unknown(model: type[Recipe], unknown: Mapping[str, Any]) -> NoReturn:
    """Refuse options that a step does not have, all at once."""
    from wdspec.spec.language.step_words import hint_of_option  # most specs do not need it

    known = tuple(model.model_fields)
    hints = {key: hint_of_option(model.step, key, given, known) for key, given in unknown.items()}
    first = next(iter(hints))
    named = " and ".join(quote(key) for key in hints)
    what = f"unknown key{'s' if len(hints) > 1 else ''} {named} of `{model.step}`"
    hint = (
        hints[first] if len(hints) == 1 else "; ".join(f"for `{key}`, {each}" for key, each in hints.items())
    )
    values.refuse("E201", what, hint, first)


def read_making(value: Any) -> Any:
    """Read the map of made fields: its keys are new fields, not steps."""
    if isinstance(value, (list, tuple)):
        values.refuse("E202", "expected a map of new fields, but this is a list", f"write `{EXAMPLE}`")
    if not isinstance(value, dict):
        return value
    for name, entry in value.items():
        if name in STEPS and not isinstance(entry, (dict, Recipe)):
            hint = hint_of(value)
            values.refuse("E202", f"`{name}` is a step here, but the keys of `make` are the new fields", hint)
        _refuse_outdented(value, name)
        values.read_field_pattern(name)
        if ";" in name or name.startswith("__"):
            values.refuse("E215", f"{quote(name)} cannot be the name of a new field", "choose another name")
    return value


def _refuse_outdented(making: Mapping[Any, Any], name: Any) -> None:
    """Refuse an entry that names no step and is a key of another entry's step, one level too far left."""
    entry = making[name]
    if isinstance(entry, Recipe) or (isinstance(entry, dict) and any(key in STEPS for key in entry)):
        return
    for field, other in reversed([*making.items()]):
        step = step_of(other) if isinstance(other, dict) else None
        if step is not None and name not in other and name in STEPS[step].model_fields:
            written = f"{name}: {_as_yaml(entry)}"
            hint = f"indent it, below `{step}` of `{field}`: `{written}`"
            values.refuse("E202", f"`{name}` is a key of `{step}`, not a new field", hint, name)


class _MayLeaveOut:
    """The values of `make` with which samples may be left out because of what is in them."""

    def __contains__(self, making: object) -> bool:
        return isinstance(making, dict) and any(recipe.leaving_out for recipe in making.values())


LEAVING_OUT = _MayLeaveOut()
Making = Annotated[
    dict[str, Annotated[AnyStep, BeforeValidator(read_step)]],
    BeforeValidator(read_making),
    values.FilePath(in_steps=True),
]


def names_in(recipe: Recipe) -> frozenset[str]:
    """The fields from which a field is made."""
    return frozenset(str(path[0]) for path in recipe.origins)


def names_made(making: Mapping[str, Recipe]) -> Iterator[tuple[str, str]]:
    """Pairs of a field that a map makes, and the key of its entry: most fields, and further results."""
    for name, recipe in making.items():
        yield name, name
        yield from ((each, name) for each in recipe.results)


def in_order(making: Mapping[str, Recipe]) -> tuple[str, ...]:
    """Return the keys of a map, each after those that it is made from. Those in a circle are left out."""
    home, done = dict(names_made(making)), dict[str, None]()
    while True:
        ready = [
            name
            for name, recipe in making.items()
            if name not in done
            and all(home.get(each, each) not in {*making} - {*done} for each in names_in(recipe))
        ]
        if not ready:
            return tuple(done)
        done |= dict.fromkeys(ready)


def behind(making: Mapping[str, Recipe], names: Iterable[str]) -> frozenset[str]:
    """Return the keys of the entries that some fields need, through others that they are made from."""
    home, found = dict(names_made(making)), set[str]()
    pending = [home[name] for name in names if name in home]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [home[each] for each in names_in(making[name]) if each in home]
    return frozenset(found)
