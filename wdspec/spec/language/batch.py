"""The key `batch`: how many samples a batch has, and how the values of each field become one value."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, WithJsonSchema, model_serializer

from wdspec.base.errors import did_you_mean
from wdspec.spec.language import values
from wdspec.spec.language.effects import AffectsSamples, Excludes, Key, Needs, Which
from wdspec.spec.language.samples import Call
from wdspec.spec.problems import describe, quote

Way = Literal["stack", "list", "pad", "nested", "call"]
_WORDS = ("stack", "list", "pad", "nested")
_FORMS = (
    "write `stack`, `list`, `pad`, `nested`, `{pad: {side: left, value: 0, multiple: 8}}`, or a function of the list "
    "of values, `package.module:function`"
)
_NAMED = ("mask", "lengths")
_PAD_KEYS = ("side", "value", "axis", "multiple", "limit", "length", *_NAMED)


class Padding(values.Model):
    """How values of different lengths are padded."""

    side: Literal["right", "left"] = "right"
    """Where to add padding."""
    value: float | int = 0
    """The value of the padding."""
    axis: tuple[int, ...] = (0,)
    """The axes of a value whose lengths differ; negative ones count from the last one."""
    multiple: int | None = None
    """Pad to a multiple of this length."""
    limit: int | None = None
    """Cut longer values to this length."""
    length: int | None = None
    """Pad all values to this length. Longer ones are cut, with a warning."""
    mask: str | None = None
    """A field to add: 1 for values, 0 for padding. All padded fields of the batch are then plain tensors."""
    lengths: str | None = None
    """A field to add: the length of each value. All padded fields of the batch are then plain tensors."""

    @model_serializer(mode="wrap")
    def _leave_out_names(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out names that are not set, so that the digests of specs without them stay as they were."""
        return {key: value for key, value in dump(self).items() if value is not None or key not in _NAMED}

    @property
    def added(self) -> tuple[str, ...]:
        """The names of the fields to add."""
        return tuple(name for name in (self.mask, self.lengths) if name is not None)


class FieldCollation(values.Model):
    """How the values of one field become one value of a batch."""

    way: Way = "stack"
    padding: Padding | None = None
    """Set if the way is `pad`."""
    call: Call | None = None
    """Set if the way is `call`: a function from the list of values to one value."""


class Collation(values.Model):
    """How samples become a batch, if not all fields are just stacked."""

    call: Call | None = None
    """A function from the list of samples to the batch."""
    fields: dict[str, FieldCollation] = Field({})
    """By field; all others are stacked."""

    @property
    def added(self) -> tuple[str, ...]:
        """The names of the fields that padding adds to a batch."""
        return tuple(name for how in self.fields.values() if how.padding for name in how.padding.added)

    @property
    def functions(self) -> list[str]:
        """The names of the user functions in it."""
        calls = [self.call, *(how.call for how in self.fields.values())]
        return [call.call for call in calls if call is not None]


def read_collation(value: Any) -> Any:
    """Read `{field: way, …}`, or a function of the samples: `package.module:function` or `{call: …, args: {…}}`."""
    if isinstance(value, Collation):
        return value
    if isinstance(value, str) and ":" in value:
        return {"call": _read_call(value)}
    if isinstance(value, dict) and "call" in value:
        return {"call": _read_call(value)}
    if isinstance(value, dict):
        return {"fields": {str(name): _read_way(way, str(name)) for name, way in value.items()}}
    hint = (
        "name the fields, `collate: {tokens: pad}`, or a function of the samples, `package.module:function`"
    )
    if value == "list":
        hint = (
            "write `ragged: list` for all fields that do not stack, or name fields: `collate: {boxes: list}`"
        )
    return values.refuse("E202", f"expected a map of fields, but this is {describe(value)}", hint)


def _read_way(value: Any, name: str) -> Any:
    """Read how the values of one field become one."""
    if isinstance(value, str) and ":" in value:
        return {"way": "call", "call": _read_call(value)}
    if isinstance(value, str):
        if value not in _WORDS:
            hint = did_you_mean(value, _WORDS) or _FORMS
            values.refuse("E203", f"{quote(value)} is not a way to collate `{name[:60]}`", hint)
        return {"way": value, "padding": {}} if value == "pad" else {"way": value}
    if isinstance(value, dict) and "call" in value:
        return {"way": "call", "call": _read_call(value)}
    if isinstance(value, dict) and set(value) == {"pad"}:
        return {"way": "pad", "padding": _read_padding(value["pad"])}
    if isinstance(value, dict) and value:
        wrong = next(str(key) for key in value if key != "pad")
        hint = "write `{pad: {…}}`" if wrong in _PAD_KEYS else did_you_mean(wrong, ("pad", "call")) or _FORMS
        values.refuse("E201", f"unknown key {quote(wrong)} in the collation of `{name[:60]}`", hint)
    return values.refuse(
        "E202", f"expected a way to collate `{name[:60]}`, but this is {describe(value)}", _FORMS
    )


def _read_padding(value: Any) -> Any:
    """Read `left`, `right`, or a map of the fields of `Padding`."""
    if value in ("left", "right"):
        return {"side": value}
    if not isinstance(value, dict):
        values.refuse(
            "E202", f"expected a map, but this is {describe(value)}", "write `{pad: {side: left, value: 0}}`"
        )
    for key in value:
        if key not in _PAD_KEYS:
            is_fill = str(key) in (
                "pad_token_id",
                "pad_id",
                "padding_value",
                "fill",
                "fill_value",
                "ignore_index",
            )
            hint = (
                "write `pad: {value: 0}`, with the number" if is_fill else did_you_mean(str(key), _PAD_KEYS)
            )
            hint = hint or f"the keys here are {', '.join(_PAD_KEYS)}"
            values.refuse("E201", f"unknown key {quote(str(key))} in `pad`", hint)
    said = {key: each for key, each in value.items() if each is not None}
    if said.get("side", "right") not in ("left", "right"):
        values.refuse("E203", f"{describe(said['side'])} is not a side of `pad`", "write `left` or `right`")
    if "value" in said and not (isinstance(said["value"], int) and not isinstance(said["value"], bool)):
        said["value"] = values.read_number(said["value"])
    if "axis" in said:
        said["axis"] = tuple(values.read_integer(each) for each in values.read_list(said["axis"]))
    for key in _NAMED:
        if key in said:
            values.read_text(said[key])
    for key in ("multiple", "limit", "length"):
        if key in said and (not isinstance(values.read_integer(said[key]), int) or int(said[key]) < 1):
            values.refuse("E204", f"`{key}` of `pad` must be at least 1, but this is {describe(said[key])}")
        if key in said:
            said[key] = values.read_integer(said[key])
    if "length" in said and {"multiple", "limit"} & said.keys():
        values.refuse(
            "E203", "`pad` takes either `length`, or `multiple` and `limit`", "write one or the other"
        )
    if said.get("limit", 0) % said.get("multiple", 1):
        hint = f"write a multiple of {said['multiple']}"
        values.refuse("E203", f"the `limit` {said['limit']} is not a multiple of {said['multiple']}", hint)
    return said


def _read_call(value: Any) -> Any:
    if isinstance(value, dict):
        for key in value:
            if key not in ("call", "args"):
                hint = "write `{call: package.module:function, args: {…}}`"
                values.refuse("E201", f"unknown key {quote(str(key))} next to `call`", hint)
        if not isinstance(value.get("args") or {}, dict):
            values.refuse(
                "E202",
                f"`args` is a map, but this is {describe(value['args'])}",
                "write `args: {name: value}`",
            )
        return {"call": values.read_callable(value["call"]), "args": value.get("args") or {}}
    return {"call": values.read_callable(value)}


def read_ragged(value: Any) -> Any:
    """Read `error` or `list`, which are for all fields. `collate` names fields."""
    if isinstance(value, (dict, list, tuple)) and value:
        ways = value if isinstance(value, dict) else dict.fromkeys(map(str, value), "list")
        named = (f"{name}: {'stack' if way == 'error' else 'list'}" for name, way in ways.items())
        hint = f"write `collate: {{{', '.join(named)[:200]}}}`"
        values.refuse("E203", "`ragged` is for all fields; `collate` says it for some", hint)
    return value


_CALL = {
    "type": "object",
    "properties": {"call": values.CALLABLE_FORM, "args": {"anyOf": [{"type": "object"}, {"type": "null"}]}},
    "required": ["call"],
    "additionalProperties": False,
}
_WHOLE = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "\\$\\{"}]}
_PADDING = {
    "type": "object",
    "properties": {
        "side": {"enum": ["right", "left"]},
        "value": {"type": "number"},
        "axis": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
        "multiple": _WHOLE,
        "limit": _WHOLE,
        "length": _WHOLE,
        "mask": values.TEXT_FORM,
        "lengths": values.TEXT_FORM,
    },
    "additionalProperties": False,
}
_WAY = {
    "anyOf": [
        {"enum": list(_WORDS)},
        {"type": "string", "pattern": ":|\\$\\{"},
        {
            "type": "object",
            "properties": {"pad": {"anyOf": [{"enum": ["right", "left"]}, _PADDING]}},
            "required": ["pad"],
            "additionalProperties": False,
        },
        _CALL,
    ]
}
MaybeCollation = Annotated[
    Collation,
    BeforeValidator(read_collation),
    WithJsonSchema(
        {"anyOf": [values.CALLABLE_FORM, _CALL, {"type": "object", "additionalProperties": _WAY}]}
    ),
]


def read_expression(value: Any) -> Any:
    """Read a number or the text of an expression; `rules/batches.py` checks its grammar."""
    return (
        str(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else values.read_text(value)
    )


ExpressionText = Annotated[
    str,
    BeforeValidator(read_expression),
    WithJsonSchema({"anyOf": [values.TEXT_FORM, {"type": "number", "exclusiveMinimum": 0}]}),
]


class Packing(values.Model):
    """How the samples of a batch are concatenated into one row."""

    fields: Annotated[values.Texts, Key("samples cost")] = Field(
        description="The fields to concatenate along their first axis. They must have the same length in a sample. "
        "Other fields become lists."
    )
    length: Annotated[values.Positive | None, Key("order packing")] = Field(
        None,
        description="Pad the row to this length; this is also the default for `max_cost`. Without it, rows are as "
        "long as their samples.",
    )
    pad: AffectsSamples[dict[str, float | int]] = Field(
        {}, description="The padding of each field, by default 0: `{labels: -100}`."
    )
    pad_to_multiple_of: Annotated[values.Positive, Key("order cost")] = Field(
        1, description="Pad each sample to a multiple of this length, as context parallelism requires."
    )
    method: Annotated[Literal["best_fit", "in_order", "concatenate"], Key("order packing")] = Field(
        "best_fit",
        description="`best_fit` starts with the longest sample and puts each one into the fullest row that has room "
        "for it; `in_order` fills one row after another; `concatenate` joins all samples of a window and cuts the "
        "result into rows of `max_cost`, even within a sample.",
    )
    position_ids: AffectsSamples[values.Text | None] = Field(
        None, description="Name of a field to add: the position of each element in its sample."
    )
    cu_seqlens: AffectsSamples[values.Text | None] = Field(
        None,
        description="Name of a field to add: the offsets at which samples start in the row, then the end of the row, "
        "for variable-length attention. Padding counts as one more sample.",
    )
    max_seqlen: AffectsSamples[values.Text | None] = Field(
        None, description="Name of a field to add: the length of the longest sample."
    )
    segment_ids: AffectsSamples[values.Text | None] = Field(
        None,
        description="Name of a field to add: for each element, the number of its sample, from 1; 0 for padding.",
    )

    @property
    def added(self) -> tuple[str, ...]:
        """The names of the fields to add."""
        names = (self.position_ids, self.cu_seqlens, self.max_seqlen, self.segment_ids)
        return tuple(name for name in names if name is not None)


def read_packing(value: Any) -> Any:
    """Read the map, or only its fields."""
    if isinstance(value, int) and not isinstance(value, bool):
        values.refuse(
            "E202",
            "expected the fields to pack, but this is a number",
            f"write `pack: {{fields: ids, length: {value}}}`",
        )
    return value if isinstance(value, (dict, Packing)) else {"fields": value}


OF_PARTS: tuple[str, ...] = ()
"""The keys of `batch` that are expressions for a part of a slot below windows. None is built in; docs/architecture.md
says how to add one."""
MEASURING = ("cost", "balance", "group_by", *OF_PARTS)
"""The keys of `batch` that are expressions. The keys of `limits` are some, too."""


class Batch(values.Model):
    """The number of samples in a batch, and how their values are combined."""

    size: Annotated[
        values.BatchSize | None,
        Key(
            "plan",
            Excludes("cost"),
            Excludes(
                "pack",
                "remove it: a batch is one row. For more tokens in a step, make rows longer, or accumulate gradients",
            ),
            Which("is the batch of one rank"),
        ),
    ] = Field(None, description="Samples per rank.")
    global_size: Annotated[
        values.Positive | None,
        Key(
            "plan",
            Excludes("size", "keep one; `size: null`{place} removes an inherited one"),
            Excludes("cost group_by pack"),
        ),
    ] = Field(None, description="Samples across all ranks.")
    accumulate: Annotated[values.Boolean, Key("neither", Excludes("cost group_by pack"))] = Field(
        False,
        description="With fewer ranks than `elastic.ranks`, each rank gets its part of a global batch as several "
        "consecutive batches of `size`, instead of one large batch.",
    )
    ragged: AffectsSamples[Annotated[Literal["error", "list"], BeforeValidator(read_ragged)]] = Field(
        "error",
        description="What to do with fields whose values cannot be stacked because shapes or types differ: raise an "
        "`error` that lists them, or make a `list` (of some fields only: `collate: {boxes: list}`).",
    )
    collate: AffectsSamples[MaybeCollation | None] = Field(
        None,
        description="How to combine the values of each field: `{tokens: pad}`. Possible are `stack`; `list`; `pad`, "
        "which returns (values, mask, lengths) and has options, `{pad: {side: left, value: 0, axis: 0, multiple: 8, "
        "limit: 2048}}` or `length: 2048`, and `{pad: {mask: attention_mask, lengths: n}}` for tensors of their own; "
        "`nested` for a nested tensor of torch; and a function of the list of "
        "values, `package.module:function`. If you set a function instead of a map, it builds the batch from the "
        "list of samples.",
    )
    cost: Annotated[
        ExpressionText | None,
        Key(
            "order cost",
            Needs(
                "max_cost max_tokens max_size size pack.length",
                "add a limit, such as `max_cost: 8192`",
            ),
            Which("makes batches of different sizes"),
        ),
    ] = Field(
        None,
        description="The cost of a sample: an expression over its fields, such as `text.length` or "
        "`ceil(image.width/28) * ceil(image.height/28)`, or a function of the decoded sample, "
        "`package.module:function`. Batches are then limited by `max_cost`, not by a number of samples.",
    )
    max_cost: Annotated[values.PositiveNumber | None, Key("order packing", Needs("cost pack"))] = Field(
        None, description="The maximum cost of one batch of a rank."
    )
    max_tokens: Annotated[
        values.Positive | None,
        Key("order packing", Needs("cost pack"), Excludes("max_cost", "keep one")),
    ] = Field(
        None,
        description="The same as `max_cost` for a cost that counts tokens; it is an error if it counts the characters "
        "of a text.",
    )
    padded: Annotated[values.Boolean, Key("order", Needs("cost"))] = Field(
        True,
        description="Whether the cost of a batch is its size times the cost of its largest sample, as for padded "
        "batches. With `false`, and always with `pack`, it is the sum of the costs.",
    )
    max_size: Annotated[
        values.Positive | None,
        Key(
            "order",
            Needs("cost", unless="group_by"),
            Excludes("group_by", "write `size: {value}`", unless="cost"),
        ),
    ] = Field(None, description="The maximum number of samples in a batch by `cost`.")
    size_multiple: Annotated[values.Positive, Key("order", Needs("cost group_by"))] = Field(
        1, description="Batch sizes above this number are rounded down to a multiple of it."
    )
    window: Annotated[values.BatchSize, Key("order", Needs("cost pack group_by"))] = Field(
        1000,
        description="Number of samples of a slot whose batches are planned together. Batches do not cross windows. "
        "With `group_by`, the number of samples to buffer, so that ranks can use the same group at the same step.",
    )
    overlong: Annotated[
        Literal["error", "drop", "alone", "truncate", "split"],
        Key(
            "order packing",
            Needs("cost pack"),
            Needs(
                "pack",
                "write `drop`, `alone` or `error`, or add `pack`",
                "E207",
                value=("truncate", "split"),
                only="cost group_by",
                at_value=True,
            ),
            Excludes("pack", "write `drop`, `truncate` or `split`", value="alone", at_value=True),
        ),
    ] = Field(
        "error",
        description="What to do with a sample that costs more than `max_cost` or exceeds one of the `limits`: raise an "
        "`error`; `drop` it; put it `alone` into a batch; with `pack` also `truncate` it, or `split` it into several "
        "samples.",
    )
    limits: Annotated[dict[str, values.PositiveNumber], Key("order packing", Needs("cost pack group_by"))] = (
        Field(
            {},
            description="Additional limits for a batch: the maximum sum of each expression, `{patches: 12000}`.",
        )
    )
    balance: Annotated[
        ExpressionText | None,
        Key("order packing", Needs("cost pack"), Which("orders batches by their sums")),
    ] = Field(
        None,
        description="Balances ranks, not sources or classes: an expression, such as the number of image patches. At "
        "each step, all ranks take batches with similar sums of it from their windows, "
        "without communication.",
    )
    group_by: Annotated[
        values.Text | None,
        Key(
            "order packing",
            Needs(
                "size",
                "add the samples of a batch, such as `size: 32`",
                unless="cost max_cost max_tokens max_size",
            ),
            Excludes("pack balance"),
            Which("makes batches of different sizes"),
        ),
    ] = Field(None, description="An expression. All samples of a batch have the same value of it.")
    group_wait: Annotated[values.BatchSize, Key("order", Needs("group_by"))] = Field(
        10_000, description="Number of samples of a slot after which groups that are not full are closed."
    )
    incomplete: Annotated[Literal["keep", "merge", "drop"], Key("order", Needs("group_by"))] = Field(
        "keep",
        description="What to do with groups that are closed before they are full: `keep` them as smaller batches; "
        "`merge` them into batches of several values, in the order of the values; or `drop` their samples.",
    )
    pack: Annotated[
        Annotated[Packing, BeforeValidator(read_packing)] | None,
        Key(
            "",
            Needs(
                "max_cost max_tokens pack.length",
                "add the length of rows to `pack`, such as `length: 2048`",
                unless="cost",
            ),
            Excludes("collate ragged padded"),
            Which("fills rows"),
        ),
    ] = Field(
        None, description="Concatenate the samples of a batch into one row, instead of padding each sample."
    )

    @property
    def added(self) -> tuple[str, ...]:
        """The names of the fields that a batch has besides those of its samples."""
        return (*(self.pack.added if self.pack else ()), *(self.collate.added if self.collate else ()))

    @property
    def has_windows(self) -> bool:
        """Whether batches are planned from windows of samples, by what these cost or have in common."""
        return self.cost is not None or self.group_by is not None or self.pack is not None

    @property
    def limit_name(self) -> str:
        """The key that says what a batch may cost at most, as messages name it."""
        if self.max_cost is None and self.max_tokens is None and self.pack is not None:
            return "`length` of `pack`"
        return "`max_cost`" if self.max_tokens is None else "`max_tokens`"

    @property
    def limit(self) -> float | None:
        """What a batch may cost at most: by default, the length of a packed row."""
        most = self.max_tokens if self.max_cost is None else self.max_cost
        return self.pack.length if most is None and self.pack else most

    @property
    def remedy_for_long(self) -> str:
        """What to do about a sample that exceeds the limits alone."""
        is_length = self.pack is not None and self.cost is None and self.pack.pad_to_multiple_of == 1
        can_be_cut = is_length and not self.limits
        others = "`drop`, `truncate` or `split`" if can_be_cut else "`drop`"
        return f"raise it, or set `overlong` to {'`drop` or `alone`' if self.pack is None else others}"

    @property
    def cuts_samples(self) -> bool:
        """Whether a packed row may have only a part of a sample."""
        by_length = self.overlong in ("truncate", "split")
        return self.pack is not None and (by_length or self.pack.method == "concatenate")

    @property
    def expressions(self) -> tuple[str, ...]:
        """The expressions by which samples are measured; the cost comes first, unless a function says it.

        By default, the cost is the length of the first packed field.
        """
        cost = None if self.is_by_function else self.cost
        if self.cost is None and self.pack is not None:
            cost = f"fields[{self.pack.fields[0]!r}].length"
        others = (getattr(self, key) for key in MEASURING[1:])
        return tuple(text for text in (cost, *self.limits, *others) if text is not None)

    @property
    def of_parts(self) -> dict[str, str]:
        """Key -> its expression, for the keys of parts below windows."""
        return {key: text for key in OF_PARTS if (text := getattr(self, key)) is not None}

    @property
    def is_by_function(self) -> bool:
        """Whether a user function of the decoded sample says what it costs."""
        return self.cost is not None and values.is_callable_name(self.cost)


def read_batch(value: Any) -> Any:
    """Read `32`, `{size: 32}` or `{global_size: 512}`."""
    return value if isinstance(value, (dict, Batch)) else {"size": value}
