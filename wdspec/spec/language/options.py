"""The small models of how a run goes: mixing, epochs, topology, errors, loading."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from wdspec.base.errors import did_you_mean
from wdspec.spec.language.effects import AffectsNeither, AffectsOrder, Drops
from wdspec.spec.language.values import (
    ALLOWABLE,
    SKIP_CAUSES,
    Boolean,
    Count,
    Duration,
    Fraction,
    Model,
    Positive,
    PositiveNumber,
    Share,
    SkipCause,
    Text,
    Workers,
    read_list,
    read_text,
    read_words,
    refuse,
    text_form,
    words_form,
)
from wdspec.spec.problems import quoted, shown


class ScheduleStep(Model):
    """The shares from one point of the stream on."""

    at: AffectsOrder[Count] = Field(
        description="The global sample at which these shares begin, or rather the next batch; 0 first."
    )
    shares: AffectsOrder[dict[str, Share]] = Field(
        description="Relative share by name of a source or nested mix of the top list; 0 if left out."
    )
    ramp: AffectsOrder[Literal["none", "linear"]] = Field(
        "none",
        description="`linear`: shares go in a line from the step before to these, which hold from `at` on.",
    )


class MixOptions(Model):
    """How the sources of one list are mixed."""

    draw: AffectsOrder[Literal["even", "random", "round_robin"]] = Field(
        "even",
        description="`even` keeps every batch at the asked shares; `random` draws; `round_robin` takes turns.",
    )
    unit: AffectsOrder[Literal["sample", "batch"]] = Field(
        "sample",
        description="`batch` draws one source for each global batch, for sources whose shapes differ. Needs `batch`.",
    )
    schedule: tuple[ScheduleStep, ...] | None = Field(
        None,
        description="Shares of the top list that change with the samples seen, instead of its sources' own.",
    )
    by: AffectsOrder[Literal["shards", "samples", "bytes", "equal"]] = Field(
        "shards",
        description="What the size of a source is counted in where no share is given; samples and bytes are those that "
        "the sources declare, or that `stats` has.",
    )
    cap: AffectsOrder[Positive | None] = Field(None, description="Sizes above this count as this.")
    temperature: AffectsOrder[PositiveNumber | None] = Field(None, description="T: size becomes size^(1/T).")


class Epoch(Model):
    """The length of an epoch."""

    # Not the order: an epoch is a cut of one stream.
    samples: AffectsNeither[Positive | None] = Field(None, description="Samples over all ranks together.")
    batches: AffectsNeither[Positive | None] = Field(None, description="Global batches.")
    remainder: AffectsOrder[Literal["pad", "drop"] | None] = Field(
        None,
        alias="pass",
        description="One finite pass over every sample, for evaluation, the same each time: `pad` (also plain "
        "`epoch: pass`) fills up the last global batch with repeated samples, `drop` leaves it out. Sources are read "
        "one after the other, by name: shares and `mix` cannot be given, `order` is `sequential` and `shuffle` 0 if "
        "left out. Each sample gets a field `__mask__`: true, and false for padding and in place of a dropped sample.",
    )


def read_epoch(value: Any) -> Any:
    """`100_000`, `{samples: …}`, `{batches: …}`, `pass` or `{pass: …}`."""
    if isinstance(value, (dict, Epoch)):
        return value
    if isinstance(value, str) and not any(c.isdigit() for c in value):
        if value == "pass":
            return {"pass": "pad"}
        hint = (
            did_you_mean(value, ["pass"])
            or "write a number of samples, `{batches: n}` or `pass`; leave it out for no end"
        )
        refuse("E203", f"{shown(value)} is no length of an epoch", hint)
    return {"samples": value}


class Elastic(Model):
    """The canonical topology, to which every run keeps the order."""

    ranks: AffectsOrder[Positive] = Field(description="Ranks of the canonical topology.")
    workers: AffectsOrder[Positive] = Field(1, description="Workers for each rank of the canonical topology.")


def read_skip(value: Any) -> Any:
    """`true` or `false`, or the causes that are skipped, as words."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, (str, list, tuple)):
        refuse("E202", f"expected true, false or a list of causes, but this is {shown(value)}")
    causes = tuple(map(read_text, read_words(value)))
    for cause in causes:
        if cause not in SKIP_CAUSES:
            hint = did_you_mean(cause, SKIP_CAUSES) or f"write `true`, or some of {', '.join(SKIP_CAUSES)}"
            refuse("E203", f"{quoted(cause)} is no cause of errors", hint)
    return causes


Skip = Annotated[
    bool | tuple[SkipCause, ...],
    BeforeValidator(read_skip),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "boolean"},
                {"type": "array", "items": {"enum": list(SKIP_CAUSES)}, "minItems": 1},
                words_form("|".join(SKIP_CAUSES)),
            ]
        }
    ),
]


class Errors(Model):
    """What happens when a sample cannot be read."""

    # Not the order: it decides whether a run ends at a failure. Those that go on have the same samples either way, and
    # a run that ended goes on from its state under another policy.
    skip: Annotated[AffectsNeither[Skip], Drops()] = Field(
        False,
        description="Drop and count the sample, instead of raising. `true` skips what is wrong in the data: "
        "`[shard, decode]`, a shard or a sample that cannot be read, and a field that is missing or cannot be decoded. "
        "`map` adds what functions of `map` and `select` and the user's own decoders raise. Mistakes in the spec, its "
        "code or the environment (a function or a library that cannot be imported, a pickle without `allow`) are never "
        "skipped.",
    )
    max_count: AffectsNeither[Count | None] = Field(
        None, description="Raise after this many skips of a source."
    )
    max_rate: AffectsNeither[Fraction | None] = Field(
        None, description="Raise when more than this part of the samples was skipped."
    )
    log: AffectsNeither[Text | None] = Field(
        None,
        description="A file to which every skip is added, as a line of JSON: source, cause, message, URL, key.",
    )
    retry: AffectsNeither[Duration | None] = Field(
        None,
        description="How long a store that fails in a way that may pass is asked again, from its first failure: `2m` "
        "if left out.",
    )
    timeout: AffectsNeither[Duration | None] = Field(
        None,
        description="How long one read may take that gives nothing before it is given up, with an error that names "
        "source and URL: `10m` if left out.",
    )

    def skips(self, cause: SkipCause) -> bool:
        """Whether an error that arose there is skipped; plain `true` is for what is in the data."""
        return cause in (SKIP_CAUSES[:2] if self.skip is True else self.skip or ())


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
        refuse("E203", f"{shown(value)} is no error policy", hint)
    return {"skip": value == "skip"}


def read_allowance(value: Any) -> Any:
    """A word for something that is off by default."""
    word = read_text(value)
    if word not in ALLOWABLE:
        hint = did_you_mean(word, ALLOWABLE) or f"what can be allowed: {', '.join(sorted(ALLOWABLE))}"
        refuse("E203", f"`{word[:60]}` is nothing that can be allowed", hint)
    return word


_ALLOWANCE_FORM = {"anyOf": [{"enum": sorted(ALLOWABLE)}, text_form("(?!)")]}
Allowances = Annotated[
    tuple[Annotated[str, BeforeValidator(read_allowance)], ...],
    BeforeValidator(read_list),
    WithJsonSchema({"anyOf": [_ALLOWANCE_FORM, {"type": "array", "items": _ALLOWANCE_FORM}]}),
]


class LoaderOptions(Model):
    """Workers, and arguments of the torch DataLoader."""

    # Not the order: without `elastic` the first run's workers become canonical, and states remember them.
    workers: AffectsNeither[Workers] = Field(0, description="Worker processes, or threads, for each rank.")
    kind: AffectsNeither[Literal["processes", "threads"]] = Field(
        "processes",
        description="`threads` has workers read in this process: nothing is sent and none is started, but only what "
        "lets go of the interpreter, as decoding does, goes on side by side. For specs without functions of one's own.",
    )
    prefetch: AffectsNeither[Positive | None] = Field(
        None, description="Batches each worker prepares ahead; of small ones, deliveries of several."
    )
    pin_memory: AffectsNeither[Boolean] = Field(False, description="Copy tensors into page-locked memory.")
    persistent: AffectsNeither[Boolean | None] = Field(None, description="Keep workers alive between epochs.")
    timeout: AffectsNeither[Duration | None] = Field(
        None, description="Seconds to wait for a batch, or text such as `5m`."
    )


class TarOptions(Model):
    """How strictly tar shards are read."""

    # Not the order: the samples of a shard without its end marker are all delivered, before the error or the warning.
    end: AffectsNeither[Literal["strict", "lenient"]] = Field(
        "strict",
        description="`lenient` turns a missing end marker into one warning, and so more zeros than the 10,752 bytes "
        "that a tar ends with at most.",
    )
