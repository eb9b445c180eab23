"""Options of a run: mixing, epochs, topology, errors, loading."""

from typing import Annotated, Any, Literal, NamedTuple, NoReturn, get_args

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from wdspec.base.errors import did_you_mean
from wdspec.spec.language import values
from wdspec.spec.language.advice import EACH_ONCE, ONCE
from wdspec.spec.language.effects import (
    COUNT_BATCHES_OR_TOKENS,
    WINDOWED,
    AffectsNeither,
    AffectsPlan,
    Drops,
    Excludes,
    Key,
    Needs,
    Which,
)
from wdspec.spec.problems import describe, quote

_NOT_SCHEDULED = Excludes("schedule", "remove it", "W102")


Unit = Literal["samples", "batches", "tokens"]


class StreamPoint(NamedTuple):
    """A point of the stream, in one unit."""

    unit: Unit
    """What is counted, across all ranks; `batches` are global batches."""
    number: int
    """How many there are before it."""


_UNITS: tuple[Unit, ...] = get_args(Unit)
_POINT_FORM = {
    "anyOf": [
        values.COUNT_FORM,
        {
            "type": "object",
            "properties": dict.fromkeys(_UNITS, values.COUNT_FORM),
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": False,
        },
    ]
}


def read_point(value: Any) -> Any:
    """Read a number of samples, or `{tokens: 10e9}`."""
    if isinstance(value, StreamPoint):
        return value
    unit: Unit = "samples"
    number = value
    if isinstance(value, dict):
        for key in value:
            if key not in _UNITS:
                hint = did_you_mean(str(key), _UNITS) or f"write one of {', '.join(_UNITS)}"
                values.refuse("E201", f"unknown unit {quote(str(key))}", hint)
        if len(value) != 1:
            hint = "write `at: {tokens: 10e9}`"
            values.refuse("E206", f"a point has one unit, and this has {len(value)}", hint)
        ((unit, number),) = value.items()
    meant = None if isinstance(number, bool) else values.number_meant(number)
    if meant is not None and "." not in meant:
        hint = f"write `{meant}`"
        if unit == "samples":
            hint = f"is it `{meant}` samples, or `at: {{tokens: {meant}}}`?"
        values.refuse("E202", f"expected a whole number, but this is {describe(number)}", hint)
    count = values.read_integer(number)
    if not 0 <= count < 2**63:
        values.refuse("E204", f"`at` must be at least 0, but this is {describe(number)}")
    return StreamPoint(unit, count)


class ScheduleStep(values.Model):
    """Shares that apply from a given point of the stream."""

    at: AffectsPlan[
        Annotated[
            StreamPoint,
            BeforeValidator(read_point),
            PlainSerializer(lambda at: at.number if at.unit == "samples" else {at.unit: at.number}),
            WithJsonSchema(_POINT_FORM),
        ]
    ] = Field(
        description="Where these shares begin to apply, rounded up to a whole batch: a number of global samples, "
        "`{batches: 1000}`, or `{tokens: 10e9}`, which follow from the `mean_cost` of the sources (or the `length` in "
        "token files). 0 in the first step."
    )
    shares: AffectsPlan[dict[str, values.Share]] = Field(
        description="Relative shares of sources and nested mixes of the top level, by name; by default 0."
    )
    ramp: AffectsPlan[Literal["none", "linear"]] = Field(
        "none",
        description="With `linear`, the shares change linearly from those of the previous step to these, which they "
        "reach at `at`.",
    )


class MixOptions(values.Model):
    """How the sources of a list are mixed."""

    draw: Annotated[
        Literal["even", "random", "round_robin"],
        Key("plan top", Which("takes turns, whatever the shares are", "round_robin")),
    ] = Field(
        "even",
        description="How to choose the source of each sample: `even` keeps the shares in every batch; `random` draws "
        "at random; `round_robin` takes turns.",
    )
    unit: Annotated[
        Literal["sample", "batch"],
        Key(
            "plan top",
            Needs("/batch", "add `batch: n`, or remove `unit`", value="batch", unless="/epoch.pass"),
            Excludes(
                WINDOWED,
                "remove it; `group_by: __source__` keeps sources apart",
                "E331",
                value="batch",
                at_value=True,
            ),
        ),
    ] = Field(
        "sample",
        description="`batch` draws one source for each global batch, for sources with different shapes. Needs `batch`.",
    )
    schedule: Annotated[
        tuple[ScheduleStep, ...] | None,
        Key(
            "top",
            Excludes("draw=round_robin", unless="/epoch.pass"),
            Which("sets the shares itself", shown="mix.schedule"),
        ),
    ] = Field(
        None,
        description="Shares of the top level that change with the number of samples read so far.",
    )
    by: Annotated[Literal["shards", "samples", "bytes", "equal"] | None, Key("plan", _NOT_SCHEDULED)] = Field(
        None,
        description="How to measure the size of sources without `weight` and `probability`; their shares are "
        "proportional to it. Samples and bytes are the numbers that sources declare, or those in `stats`. By default "
        "`samples` if they are known of all sources of the list, otherwise `shards`.",
    )
    cap: Annotated[values.Positive | None, Key("plan", _NOT_SCHEDULED)] = Field(
        None, description="Sizes above this number count as this number."
    )
    shares_in: AffectsPlan[Literal["samples", "cost", "tokens"]] = Field(
        "samples",
        description="What shares are fractions of: `samples`, or with `cost` the sum of `batch.cost`. Samples are then "
        "drawn in proportion to share / `mean_cost`. `tokens` is the cost if it counts tokens; it is an error if it "
        "counts the characters of a text.",
    )
    temperature: Annotated[values.PositiveNumber | None, Key("plan", _NOT_SCHEDULED)] = Field(
        None,
        description="T makes shares by size more equal. They are proportional to size^(1/T): with 1, to the sizes; "
        "with large numbers, they are equal.",
    )

    @property
    def needs_costs(self) -> bool:
        """Whether the mean cost of samples must be known."""
        return self.shares_in != "samples" or any(step.at.unit == "tokens" for step in self.schedule or ())


_KEEP_ONE = "keep one; `{key}: null`{place} removes an inherited one"


class Epoch(values.Model):
    """The length of an epoch."""

    # Not the order: an epoch is a cut of one stream.
    samples: Annotated[
        values.PositiveOrTotal | None,
        Key(
            "neither",
            Excludes("pass", _KEEP_ONE),
            Excludes(WINDOWED, COUNT_BATCHES_OR_TOKENS, "E331", unless="batches pass", at_value=True),
            Which("counts samples", shown="epoch: {samples: …}"),
        ),
    ] = Field(
        None,
        description="Samples across all ranks. `total` is as many as all sources have together, by their `samples` or "
        "by `stats`.",
    )
    tokens: Annotated[
        values.Positive | None,
        Key(
            "neither",
            Excludes("pass samples batches", _KEEP_ONE),
            Which("counts tokens", shown="epoch: {tokens: …}"),
        ),
    ] = Field(
        None,
        description="About so many tokens across all ranks, by the `mean_cost` of the sources (or the `length` in "
        "token files).",
    )
    batches: Annotated[
        values.Positive | None,
        Key(
            "neither",
            Excludes("pass", _KEEP_ONE),
            Excludes("samples", "keep one; `samples: null`{place} removes an inherited one", unless="pass"),
            Needs("/batch", "add `batch:`, or state the epoch in samples", "E306", unless="samples pass"),
            Which("counts batches", shown="epoch: {batches: …}"),
        ),
    ] = Field(None, description="Global batches.")
    remainder: Annotated[
        Literal["pad", "drop"] | None, Key("plan", Which("reads every sample once", shown="epoch: pass"))
    ] = Field(
        None,
        alias="pass",
        description="One finite pass that reads every sample once, in the same order each time, for evaluation (for "
        "training, see `reshuffle`). `pad` (also `epoch: pass`) fills the last global batch with repeated samples, "
        "`drop` leaves it out. Sources are read one after another, by name; shares and `mix` are not allowed. The "
        "defaults are `order: sequential` and `shuffle: 0`. Each sample gets a field `__mask__`: true for samples, "
        "false for padding and in the positions of dropped samples.",
    )
    reshuffle: Annotated[
        values.Boolean,
        Key("plan", Needs("pass", "add `pass: drop`", value="true")),
    ] = Field(
        False,
        description="For training: each pass has another order and other random numbers and, with `drop`, leaves out "
        "other samples. Sources are mixed in proportion to their samples, and `order`, `shuffle` and `interleave` have "
        "the defaults of an endless mix.",
    )


def read_epoch(value: Any) -> Any:
    """`100_000`, `{samples: …}`, `{tokens: …}`, `{batches: …}`, `pass` or `{pass: …}`."""
    if isinstance(value, dict):
        return {**value, "samples": values.TOTAL} if value.get("samples") == "total" else value
    if isinstance(value, Epoch):
        return value
    if isinstance(value, str):
        return {"pass": "pad"} if value == "pass" else _read_text(value)
    return {"samples": value}


def _read_text(text: str) -> dict[str, str]:
    """Return the number of samples in a text, or raise the problem of what it says in its place."""
    if not any(c.isdigit() for c in text):
        _refuse_word(text)
    number, unit = values.split_unit(text)
    if number is not None and unit in ("tokens", "batches", "passes"):
        hint = f"write `epoch: {{{unit}: {number}}}`"
        hint = f"the number of epochs is set in the training loop; {EACH_ONCE}" if unit == "passes" else hint
        values.refuse("E202", f"expected a number of samples, but this is {describe(text)}", hint)
    return {"samples": text}


def _refuse_word(word: str) -> NoReturn:
    """Raise the problem of an epoch that is another word than `pass`."""
    hint = (
        _meant_by(word)
        or did_you_mean(word, ["pass"])
        or "write a number of samples, `{batches: n}` or `pass`; leave it out for an endless epoch"
    )
    values.refuse("E203", f"{describe(word)} is not the length of an epoch", hint)


def _meant_by(text: str) -> str:
    """What to write for a word that stands for the length of an epoch elsewhere."""
    word = text.strip().lower().replace(" ", "_").replace("-", "_")
    if word == "total":
        return "write `epoch: {samples: total}`"
    return EACH_ONCE if word in ONCE else ""


class Elastic(values.Model):
    """The canonical topology, which determines the order of samples in all runs."""

    ranks: AffectsPlan[values.Positive] = Field(description="Ranks of the canonical topology.")
    workers: AffectsPlan[values.Positive] = Field(
        1, description="Workers per rank of the canonical topology."
    )


def read_skip(value: Any) -> Any:
    """`true` or `false`, or the causes that are skipped, as words."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, (str, list, tuple)):
        values.refuse("E202", f"expected true, false or a list of causes, but this is {describe(value)}")
    causes = tuple(map(values.read_text, values.read_words(value)))
    for cause in causes:
        if cause not in values.SKIP_CAUSES:
            hint = (
                did_you_mean(cause, values.SKIP_CAUSES)
                or f"write `true`, or some of {', '.join(values.SKIP_CAUSES)}"
            )
            values.refuse("E203", f"{quote(cause)} is not a cause of errors", hint)
    return causes


Skip = Annotated[
    bool | tuple[values.SkipCause, ...],
    BeforeValidator(read_skip),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "boolean"},
                {"type": "array", "items": {"enum": list(values.SKIP_CAUSES)}, "minItems": 1},
                values.words_form("|".join(values.SKIP_CAUSES)),
            ]
        }
    ),
]


class Errors(values.Model):
    """What happens if a sample cannot be read."""

    # Not the order: it decides whether a run ends at a failure. Runs that continue have the same samples in any case,
    # and a run that ended resumes from its state with another policy.
    skip: Annotated[
        Skip,
        Key("neither damage", Drops(counted_as="skipped"), Which("raises the first error", False)),
    ] = Field(
        False,
        description="Drop and count samples instead of raising an error. `true` skips errors in the data, "
        "`[shard, decode]`: shards and samples that cannot be read, and fields that are missing or cannot be decoded. "
        "`map` adds errors of user functions in `map`, `select` and `decode`. Mistakes in the spec, its code or the "
        "environment (a function or library that cannot be imported, a pickle without `allow`) are never skipped.",
    )
    max_count: Annotated[values.Count | None, Key("neither", Excludes("skip=false", "remove one"))] = Field(
        None, description="Raise an error after this many skips of a source. Implies `skip: true`."
    )
    max_rate: Annotated[
        values.Fraction | None, Key("neither", Excludes("skip=false", "remove one", unless="max_count"))
    ] = Field(
        None,
        description="Raise an error when more than this fraction of the samples of a source has been skipped: of those "
        "that a worker has read so far, or of 1,000 if it has read fewer. Implies `skip: true`.",
    )
    log: AffectsNeither[values.LocalPath | None] = Field(
        None,
        description="A file to which each skip is appended as a line of JSON: source, code, cause, message, URL, key.",
    )
    retry: AffectsNeither[values.Duration | None] = Field(
        None,
        description="How long to retry a store after its first failure, if the failure may be temporary. By default "
        "`2m`.",
    )
    timeout: AffectsNeither[values.Duration | None] = Field(
        None,
        description="How long a read may take before an error is raised, which names the source and the URL. By "
        "default `10m`.",
    )
    slow_rate: AffectsNeither[values.Size] = Field(
        1_000_000,
        description="A warning is logged, at most once a minute, if fewer bytes per second arrive from a store; 0 logs "
        "nothing.",
    )
    slow_after: AffectsNeither[values.Duration] = Field(
        30.0, description="How long a read has to be below `slow_rate` or `min_rate`."
    )
    min_rate: AffectsNeither[values.Size] = Field(
        0,
        description="An error is raised if fewer bytes per second arrive from a store. It is never skipped.",
    )

    def skips(self, cause: values.SkipCause) -> bool:
        """Whether errors of a cause are skipped; `true` means those in the data."""
        return cause in (values.SKIP_CAUSES[:2] if self.skip is True else self.skip or ())


def read_errors(value: Any) -> Any:
    """`raise`, `skip`, or a map, in which a budget implies `skip: true`."""
    if isinstance(value, Errors):
        return value
    if isinstance(value, dict):
        has_budget = any(value.get(name) is not None for name in ("max_count", "max_rate"))
        return {"skip": True, **value} if has_budget else value
    if value not in ("raise", "skip"):
        hint = (
            did_you_mean(value, ["raise", "skip"])
            or "write `raise`, `skip` or a map such as `{max_rate: 0.001}`"
        )
        values.refuse("E203", f"{describe(value)} is not an error policy", hint)
    return {"skip": value == "skip"}


def read_allowance(value: Any) -> Any:
    """A word for something that is off by default."""
    if not isinstance(value, str) or value not in values.ALLOWABLE:
        words = ", ".join(f"`{each}`" for each in sorted(values.ALLOWABLE))
        hint = did_you_mean(value, values.ALLOWABLE) or f"allow {words}, or leave the key out"
        values.refuse("E203", f"{describe(value)} is not something that can be allowed", hint)
    return value


_ALLOWANCE_FORM = {"anyOf": [{"enum": sorted(values.ALLOWABLE)}, values.text_form("(?!)")]}
Allowances = Annotated[
    tuple[Annotated[str, BeforeValidator(read_allowance)], ...],
    BeforeValidator(values.read_list),
    WithJsonSchema({"anyOf": [_ALLOWANCE_FORM, {"type": "array", "items": _ALLOWANCE_FORM}]}),
]


class LoaderOptions(values.Model):
    """Workers, and arguments of the torch DataLoader."""

    # Not the order: without `elastic` the workers of the first run become canonical, and states remember them.
    workers: AffectsNeither[values.Workers] = Field(
        0, description="Worker processes, threads or Ray actors per rank."
    )
    kind: Annotated[
        Literal["processes", "threads", "ray"],
        Key("neither", Which("keeps its workers in any case", "threads")),
    ] = Field(
        "processes",
        description="With `threads`, workers are threads of this process. No processes are started and nothing is "
        "copied between them, but only code that releases the interpreter lock, such as decoders, runs in parallel. "
        "For specs without user functions. With `ray`, workers are actors on the nodes of a Ray cluster "
        "(`RAY_ADDRESS`); order and states are the same.",
    )
    prefetch: AffectsNeither[values.Positive | None] = Field(
        None,
        description="Number of batches that each worker prefetches; several small batches are sent "
        "together and count as one.",
    )
    pin_memory: AffectsNeither[values.Boolean] = Field(
        False, description="Copy tensors into page-locked memory."
    )
    persistent: Annotated[
        values.Boolean | None, Key("neither", Excludes("kind=threads kind=ray", "remove it", "W102"))
    ] = Field(None, description="Keep workers alive between epochs.")
    timeout: AffectsNeither[values.Duration | None] = Field(
        None, description="How long to wait for a batch: seconds, or text such as `5m`."
    )
    fetch_memory: AffectsNeither[Annotated[values.Size, Field(gt=0)]] = Field(
        64_000_000,
        description="Bytes of objects of `fetch` that each worker process reads and holds ahead, and of the largest "
        "object that it reads.",
    )


TokenType = Literal["uint8", "int8", "uint16", "int16", "uint32", "int32", "int64"]


class TokenOptions(values.Model):
    """How token files are split into samples."""

    length: Annotated[values.Positive | None, Key("order shard")] = Field(
        None, description="Tokens of a sample. By default, samples are documents."
    )
    dtype: Annotated[TokenType | None, Key("samples shard")] = Field(
        None,
        description="The type of the numbers in files that do not declare it: those without an index (`.idx`) and "
        "without a npy header.",
    )
    eos: Annotated[values.Count | None, Key("order shard")] = Field(
        None, description="The token at the end of each document, in files without an index."
    )
    vocabulary: Annotated[values.Positive | None, Key("order shard")] = Field(
        None,
        description="The size of the vocabulary: ids outside of it raise an error, because they usually mean "
        "that `dtype` is wrong.",
    )


class TarOptions(values.Model):
    """How strictly tar shards are read."""

    # Not the order: all samples of a shard without end marker come before the error or the warning.
    end: Annotated[Literal["strict", "lenient"], Key("neither shard")] = Field(
        "strict",
        description="With `lenient`, a missing end marker is only a warning, and so are more zeros at the end than the "
        "10,752 bytes that tars end with at most.",
    )
