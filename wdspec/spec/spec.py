"""The models of a spec and its sources: merged, without variables, checked and immutable.

They are also the reference: a field with a description is a key of the language. A field without one (it has a
docstring instead) is filled in by the loader, and left out of dumps if it depends on where the file is.
"""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SkipValidation

from wdspec.base.redaction import redacted_urls
from wdspec.spec.language.batch import Batch, ExpressionText, read_batch
from wdspec.spec.language.companions import Companions
from wdspec.spec.language.display import Discreet, Tabular, in_a_line
from wdspec.spec.language.effects import (
    COUNT_BATCHES,
    WINDOWED,
    AffectsNeither,
    AffectsPlan,
    DeclaredKey,
    Drops,
    Excludes,
    Key,
    Needs,
    Only,
    Which,
    declared_keys,
)
from wdspec.spec.language.expect import Expectations
from wdspec.spec.language.expressions import PathBeforeMap, parse_expression
from wdspec.spec.language.fetching import SKIPPING, Fetching, measured_objects
from wdspec.spec.language.joins import Joins, Lookups
from wdspec.spec.language.locations import (
    AIStoreOrNone,
    CacheOrNone,
    Etl,
    OutputOptions,
    RewriteRule,
    StorageOrNone,
    read_output,
)
from wdspec.spec.language.making import LEAVING_OUT, Making, names_made
from wdspec.spec.language.options import (
    Allowances,
    Elastic,
    Epoch,
    Errors,
    LoaderOptions,
    MixOptions,
    TarOptions,
    TokenOptions,
    read_epoch,
    read_errors,
)
from wdspec.spec.language.requirements import Requirement
from wdspec.spec.language.samples import (
    BatchCallOrNone,
    Calls,
    Decoding,
    KeyRule,
    KeyRuleOrWord,
    RenameTargets,
    Scale,
    StageOrNone,
    fields_set_by,
)
from wdspec.spec.language.selection import Repeat, SubsetOrNone
from wdspec.spec.language.steps import SkippedSteps, StepRanges
from wdspec.spec.language.values import (
    SUFFIXES,
    CallableNames,
    Count,
    FieldPatterns,
    Format,
    Fraction,
    Integer,
    KeysOrFiles,
    Model,
    PathsOrUrls,
    Positive,
    PositiveNumber,
    Seed,
    Share,
    Size,
    Text,
    share_default,
)
from wdspec.spec.tree import Position

_Origin = AffectsNeither[Text | None]
_NOT_IN_A_PASS = Excludes("/epoch.pass", "remove it; `{key}: null`{place} removes an inherited one", "E312")


def _suffixes(formats: Iterable[Format]) -> str:
    return ", ".join(f"`{suffix}`" for format in formats for suffix in SUFFIXES[format])


_RECORDS: tuple[Format, ...] = ("cbor", "msgpack", "jsonl")
_OF_RECORDS, _OF_TOKENS, _OF_TABLES = (
    _suffixes(_RECORDS),
    _suffixes(("tokens",)),
    _suffixes(("parquet", "arrow")),
)


class SourceOptions(Model):
    """The keys of a source that may also be in `defaults`."""

    probability: Annotated[Fraction | None, Key("plan group", _NOT_IN_A_PASS)] = Field(
        None, description="Absolute share of this source in its list; all shares of a list must sum to 1."
    )
    weight: Annotated[
        Share | None, Key("plan group", _NOT_IN_A_PASS, Excludes("probability", "keep one of them"))
    ] = Field(None, description="Share of this source, relative to the other sources in its list.")
    upsample: Annotated[
        Share | None, Key("plan group", _NOT_IN_A_PASS, Excludes("probability weight", "keep one of them"))
    ] = Field(
        None,
        description="Multiplies the size of this source, if shares depend on size (no `probability` or `weight`).",
    )
    extensions: Annotated[FieldPatterns | None, Key("order choice values whole")] = Field(
        None,
        description="Which files of a sample to read: `jpg;png txt` means two fields, where `png` is an alternative "
        "to `jpg`. By default, all files.",
    )
    missing: Annotated[Literal["error", "skip", "none"], Key("order values cost whole", Drops(("skip",)))] = (
        Field(
            "error",
            description="What to do with a sample that lacks a field required by `extensions`, `rename`, `fields` or "
            "`to_tuple`: `error`; `skip` drops and counts it; `none` sets the field to None. This is about fields; "
            "for shards and damaged data, see `errors`.",
        )
    )
    rename: Annotated[dict[str, RenameTargets], Key("fields read choice values whole")] = Field(
        default_factory=dict,
        description="New names for fields: `{image: jpg;png}` uses the first file that is present. Other fields "
        "keep their names.",
    )
    lookup: Annotated[Lookups, Key("choice values")] = Field(
        (),
        description="Tables with additional fields for the samples, by key: `{table: scores.parquet, fields: "
        "[score]}`.",
    )
    fetch: Annotated[Fetching, Key("fields values", Drops(SKIPPING))] = Field(
        default_factory=dict,
        description="New fields, whose values are objects that samples name: `{image: {url: json.path, root: "
        "s3://bucket/images/}}`. They are fetched ahead, after samples are selected and before they are decoded. See "
        "docs/references.md.",
    )
    decode: Annotated[Decoding | None, Key("samples read choice values whole")] = Field(
        None,
        description="How to decode fields: an image decoder (`rgb8`, `rgb`, `torchrgb`, `pil`, `l8`, …), `audio`, "
        "`video`, an extension (`json`, `npy`, …), a function of the bytes (`package.module:function`), `raw` for "
        "no decoding, or `auto` for the default. Set one of these; a list, from which each field uses the first "
        "that supports it; or a map with a decoder for each field. Other fields are decoded by their extension; "
        "images, audio and video stay bytes. Options follow a `+`: `rgb8+random_resized_crop=224` and "
        "`rgb8+resize=256+center_crop=224` resize images, `rgb8+upright` rotates them by EXIF, `rgb8+pillow` "
        "disables the faster JPEG reader; `video+frames=8`, `+fps=2` and `+clip=2s` select parts of a video. See "
        "docs/decoders.md for all decoders.",
    )
    # `scale` adds an image decoder to `decode`, on which expressions may depend.
    scale: Annotated[Scale | None, Key("samples read choice values whole")] = Field(
        None,
        description="Factor by which images are rescaled, or a range [lo, hi] from which it is drawn log-uniformly for "
        "each sample. All images of a sample get the same factor. `1` turns it off.",
    )
    scaleprob: Annotated[Fraction, Key("samples values whole")] = Field(
        1.0,
        description="Probability that a sample is rescaled; it is not a share of the mix. Without `scale`, the range "
        "is that of `defaults.scale`, or else [0.5, 2.0]. `0` turns rescaling off.",
    )
    make: Annotated[Making, Key("fields read choice values", Drops(LEAVING_OUT))] = Field(
        default_factory=dict,
        description="New fields, made from others by steps: `{ids: {tokenize: text, file: tokenizer.json}}`. "
        "They are made after decoding, and are like other fields in `where`, `batch`, `select` and `map`. "
        "docs/steps.md has the steps.",
    )
    companions: Annotated[Companions, Key("plan")] = Field(
        default_factory=dict,
        description="Samples of other sources beside each sample, by field: `{noise: {source: musan, chance: 0.5}}`. "
        "Steps of `make` and functions read them: `noise.wav`. docs/companions.md has the rules.",
    )
    where: Annotated[ExpressionText | None, Key("order choice both", Drops(when_read=True))] = Field(
        None,
        description="An expression: only samples for which it is true are kept, such as `json.score >= 0.5 and cls "
        "in [1, 3]` or `jpg.width >= 256`. It has the same grammar as `batch.cost`, and is evaluated before images "
        "are decoded.",
    )
    subset: Annotated[SubsetOrNone, Key("order choice both", Drops(when_read=True))] = Field(
        None,
        description="A part of the samples, by a hash of their keys: `10%`, `[95%, 100%]`, or `{of: json.user, "
        "part: [0%, 95%]}` to keep all samples of a user together.",
    )
    only_keys: Annotated[KeysOrFiles | None, Key("order choice both", Drops(when_read=True))] = Field(
        None,
        alias="keys",  # not the attribute: a mapping has a method of that name
        description="Only samples with these keys are kept: a list of keys, or `@file.txt` with one key per line.",
    )
    exclude: Annotated[KeysOrFiles | None, Key("order choice both", Drops(when_read=True))] = Field(
        None,
        description="Samples with these keys are left out: a list of keys, or `@file.txt` with one key per line.",
    )
    keys_of: Annotated[Text | None, Key("order choice", Needs("keys exclude", "add one"))] = Field(
        None,
        description="What `keys` and `exclude` contain, if not sample keys: a field, or a value within a field, "
        "such as `json.uid`.",
    )
    select: Annotated[CallableNames | None, Key("order values cost whole both", Drops())] = Field(
        None,
        description="A function, `package.module:function`, or a list of functions: only samples for which all are "
        "true are kept.",
    )
    map: Annotated[Calls, Key("values whole")] = Field(
        (),
        description="Functions applied to each sample after decode, scale and select: `package.module:function` takes "
        "and returns a sample; `{image: [functions], text: …}` applies functions to the values of fields. A field that "
        "is None stays None.",
    )
    shuffle: AffectsPlan[Count] = Field(
        1000,
        description="Average number of samples in the shuffle buffer of a slot if this were its only source; "
        "sources divide the buffer according to their shares.",
    )
    order: Annotated[
        Literal["shuffled", "resampled", "sequential"],
        Key(
            "plan",
            Excludes(
                "/epoch.pass",
                "leave it out, or write `order: shuffled`",
                "E312",
                value="resampled",
                at_value=True,
            ),
        ),
    ] = Field(
        "shuffled",
        description="Order of the shards: `shuffled` in a new permutation for each pass; `resampled` with replacement; "
        "`sequential` as listed.",
    )
    interleave: AffectsPlan[Positive] = Field(
        8,
        description="How many shards a slot would read in turn, sample by sample, if this were its only source; "
        "sources divide this number according to their shares, with at least 1 each. By default 1 with "
        "`order: sequential`.",
    )
    key: Annotated[KeyRuleOrWord, Key("shard")] = Field(
        default_factory=share_default(KeyRule),
        description="How a file name is split into the sample's key and the field.",
    )
    rewrite: tuple[RewriteRule, ...] = Field(
        (), description="Rewrite rules for this source; they come before those of the top level."
    )
    aistore: AIStoreOrNone = Field(
        None, description="The AIStore cluster of this source; `false` for no cluster."
    )
    storage: StorageOrNone = Field(
        None, description="Replaces the whole top-level `storage` for this source; `false` removes it."
    )
    cache: CacheOrNone = Field(None, description="The cache of this source; `false` for no cache.")
    errors: Annotated[Errors, BeforeValidator(read_errors)] = Field(
        default_factory=share_default(Errors),
        description="What happens if a sample of this source cannot be read; merged over the top-level `errors`.",
    )
    license: _Origin = Field(None, description="License: an SPDX name such as `CC-BY-4.0`, or a URL.")
    homepage: _Origin = Field(None, description="URL of a page about the data.")
    revision: _Origin = Field(
        None,
        description="Version of the data, for the record. On the Hugging Face Hub, `@` in a URL decides what is read: "
        "`hf://datasets/owner/name@revision/…`.",
    )
    meta: Annotated[dict[str, Any], Key("neither")] = Field(
        default_factory=dict,
        description="Facts for people and policies, such as `{owner: vision, ticket: DATA-12}`. No effect on samples; "
        "see `tags` for values in samples.",
    )
    tags: Annotated[dict[str, Any], Key("samples read choice values whole group")] = Field(
        default_factory=dict, description="Constants added to every sample."
    )
    samples: AffectsPlan[Positive | None] = Field(
        None, description="Number of samples in the source; by default the number in `stats`."
    )
    max_passes: Annotated[
        PositiveNumber | None,
        Key(
            "order",
            Needs("samples /stats", "{measure}, or declare the number in `samples`", "E322"),
            Excludes("/epoch.pass /mix.draw=round_robin"),
        ),
    ] = Field(
        None,
        description="Maximum number of times that the samples of the source are read in a run, on average: `4`, `0.5`. "
        "One sample may be read more often than another. Requires the number of `samples`, without those that `where` "
        "and similar keys drop.",
    )
    on_exhausted: Annotated[
        Literal["error", "drop", "stop"],
        Key(
            "order",
            Needs("max_passes", "add it"),
            Excludes(
                f"{WINDOWED} /stage",
                "write `drop` or `error`",
                value="stop",
                only="max_passes",
                unless="/epoch.pass /mix.draw=round_robin",
                at_value=True,
            ),
        ),
    ] = Field(
        "error",
        description="What happens before the first global batch that would exceed `max_passes`: an `error`; `drop` "
        "continues with the other sources, in proportion to their shares; `stop` ends the run, on all ranks at the "
        "same step.",
    )
    repeat: Annotated[
        Repeat | None,
        Key(
            "order again",
            Needs("/epoch.pass", "write `upsample: {value}` or a larger `weight`, or `epoch: pass`", "E345"),
        ),
    ] = Field(
        None,
        description="With `epoch: pass`, how many times each sample of the source is read: `2.5` reads all of them "
        "twice, and half of them, always the same, a third time.",
    )
    bytes: AffectsPlan[Size | None] = Field(
        None,
        description="Total uncompressed size of the files in its shards: a number of bytes, or text such as "
        "`1.2TB`; by default the number in `stats`.",
    )
    mean_cost: AffectsPlan[PositiveNumber | None] = Field(
        None,
        description="Mean cost of its samples according to `batch.cost`, for `mix: {shares_in: cost}`; by default "
        "the number in `stats`.",
    )
    # Not the samples: `auto` and the right word read the same, and a wrong one is an error.
    format: Annotated[Literal["auto", Format], Key("neither shard")] = Field(
        "auto",
        description=f"Format of the shards. `auto` uses the name of each shard: {_OF_RECORDS} (compressed or not) are "
        f"sequences of records, {_OF_TABLES} are tables of samples, {_OF_TOKENS} are token files, "
        "`.mds` (compressed or not) are shards of MosaicML Streaming, folders with the suffix `.lance` are Lance data "
        "sets, and all others are tars.",
    )
    # Not the samples: it decides whether a run ends with an error at an empty shard.
    empty: Annotated[Literal["error", "allow"], Key("neither shard")] = Field(
        "error",
        description="How to treat an empty shard: as an error, because full disks and failed uploads leave empty "
        "files behind; or, with `allow`, as a shard without samples.",
    )
    expect: Expectations | None = Field(
        None,
        description="What the samples of the source must look like, after its own `map` and `tags`; `errors` says what "
        "happens to other samples.",
    )
    tar: TarOptions = Field(
        default_factory=share_default(TarOptions), description="How strictly tars are read."
    )
    tokens: TokenOptions | None = Field(
        None,
        description="For files of token ids (`.bin` of Megatron, `.npy`, `.ds`): how they are split into samples, "
        "which have one field, `tokens`.",
    )


class Source(Discreet, SourceOptions):
    """A collection of shards, or a nested mix of sources."""

    name: Annotated[Text, Key("plan group")] = Field(
        "",
        description="Unique name, on which the order of its samples depends. By default from the shards' name.",
    )
    shards: AffectsPlan[PathsOrUrls | None] = Field(
        None,
        description="URLs or paths of the shards, with braces `{000..123}`, `a::b`, `${variable}` and globs; "
        "`@file.txt` with one URL per line; a directory ending in `/`; or a list of these.",
    )
    join: Annotated[Joins, Key("choice values")] = Field(
        (),
        description="Additional shards with other files of the same samples, merged by key: `[{shards: "
        "captions-{000..123}.tar, missing: skip}]`.",
    )
    dataset: Annotated["tuple[Source, ...] | None", Key("group")] = Field(
        None, description="The sources of a nested mix."
    )
    mix: Annotated[MixOptions, Key("group", _NOT_IN_A_PASS)] = Field(
        default_factory=share_default(MixOptions), description="How the sources of the nested mix are mixed."
    )
    base: str = Field("", exclude=True)
    """Absolute directory where relative paths in ``shards`` start."""
    position: Annotated[Position | None, SkipValidation] = Field(None, exclude=True)
    """Its position in the file."""

    @property
    def leaves(self) -> "Iterator[Source]":
        """The sources with shards in this one, depth first; only itself, unless it is a nested mix."""
        if self.dataset is None:
            yield self
        for source in self.dataset or ():
            yield from source.leaves

    @property
    def mixes(self) -> "Iterator[Source]":
        """The nested mixes in this one, depth first, starting with itself if it is one."""
        if self.dataset is not None:
            yield self
            for source in self.dataset:
                yield from source.mixes

    @property
    def copies(self) -> Decimal:
        """How often a pass reads each sample (`repeat`)."""
        return Decimal(1) if self.repeat is None else self.repeat

    @property
    def drops(self) -> frozenset[str]:
        """How samples may be lost because of their content: `dropped` by a key such as `select`, `skipped` as errors.

        A key that drops samples declares so where it is defined (`Drops`).
        """
        keys = declared_keys(type(self))
        return frozenset(key.drops.counted_as for key in keys if key.drops and key.drops_samples(self))

    @property
    def dropping_keys(self) -> tuple[DeclaredKey, ...]:
        """The keys that drop samples because of their content, without those that skip errors."""
        keys = (key for key in declared_keys(type(self)) if key.drops and key.drops.counted_as == "dropped")
        return tuple(key for key in keys if key.drops_samples(self))

    @property
    def counts_kept(self) -> bool:
        """Whether `stats` can count the samples that remain: some are dropped, and all of these as they are read."""
        keys = [key.drops for key in self.dropping_keys if key.drops]
        return bool(keys) and all(drops.when_read for drops in keys)

    @property
    def limits_kept(self) -> bool:
        """Whether `max_passes` counts samples that `stats` can count."""
        return self.max_passes is not None and self.counts_kept

    @property
    def selects(self) -> tuple[str, ...]:
        """The functions of `select`."""
        return (self.select,) if isinstance(self.select, str) else self.select or ()

    @property
    def drops_samples(self) -> bool:
        """Whether samples must be read to know which ones remain."""
        return bool(self.drops)

    @property
    def drops_decoded(self) -> bool:
        """Whether samples must be decoded to know which ones remain."""
        keys = [key for key in declared_keys(type(self)) if key.drops and not key.drops.when_read]
        return bool([key for key in keys if key.drops_samples(self)])

    @property
    def made_names(self) -> tuple[str, ...]:
        """The fields that `make` makes."""
        return tuple(name for name, _ in names_made(self.make))

    @property
    def selecting_texts(self) -> tuple[str, ...]:
        """The expressions that choose its samples."""
        texts = (self.where, self.keys_of, self.subset and self.subset.of)
        return tuple(text for text in texts if text)

    def selecting_fields(self, costs: Mapping[str, str]) -> tuple[str, ...]:
        """The fields that `where` and `subset` read.

        Args:
            costs: the named expressions of the spec.
        """
        texts = self.selecting_texts
        return tuple(field for text in texts for field in parse_expression(text, costs).fields)

    def asides(self, costs: Mapping[str, str]) -> frozenset[str]:
        """The files that `where` and `subset` read and `extensions` does not ask for: they are not delivered.

        Args:
            costs: the named expressions of the spec.
        """
        if self.extensions is None:
            return frozenset()
        columns = (name for lookup in self.lookup for name in lookup.names)
        olds = (old for each in self.rename.values() for old in each)
        known = {*self.tags, *self.rename, *columns, *olds, *self.made_names}
        spellings = [spelling.lower() for entry in self.extensions for spelling in entry.split(";")]
        names = (name for name in self.selecting_fields(costs) if name == name.lower() and name[:2] != "__")
        return frozenset(
            name
            for name in names
            if name not in known and not any(fnmatchcase(name, spelling) for spelling in spellings)
        )


@cache
def selecting_keys() -> dict[str, str]:
    """The keys of a source that choose samples as they are read → their attributes."""
    return {key.name: key.attributes[0] for key in declared_keys(Source) if key.drops and key.drops.when_read}


class Spec(Tabular, Discreet):
    """A spec of one split and one environment."""

    wdspec: AffectsNeither[Integer] = Field(
        1, description="Version of the spec language.", json_schema_extra={"const": 1}
    )
    requires: AffectsNeither[Requirement | None] = Field(
        None,
        description="Earliest version of wdspec that can read the spec: `wdspec >= 0.2`. It is read before other keys.",
    )
    name: AffectsNeither[Text | None] = Field(None, description="Name of the spec.")
    description: AffectsNeither[Text | None] = Field(None, description="What the spec is for.")
    meta: Annotated[dict[str, Any], Key("neither")] = Field(
        {},
        description="Facts for people and policies, such as `{owner: vision, contact: data@example.org}`. No effect on "
        "samples.",
    )
    dataset: tuple[Source, ...] = Field(description="The sources.")
    companions: dict[str, Source] = Field(
        {},
        description="Sources that are not in the mix, by name, for the `companions` of sources: `{musan: {shards: "
        "musan-*.tar}}`.",
    )
    mix: Annotated[MixOptions, Key("", _NOT_IN_A_PASS)] = Field(
        default_factory=share_default(MixOptions), description="How the sources are mixed."
    )
    seed: Annotated[Seed, Key("plan values")] = Field(
        0, description="Seed of the order and of all randomness."
    )
    map: Annotated[Calls, Key("values whole")] = Field(
        (), description="Functions applied to each sample after mixing; see the `map` of a source."
    )
    fields: Annotated[FieldPatterns | None, Key("fields values whole")] = Field(
        None,
        description="Fields to keep: `image text`, or a list. `a;b` takes the first one that is present.",
    )
    to_tuple: Annotated[FieldPatterns | None, Key("fields values whole")] = Field(
        None, description="Return tuples of these fields instead of dicts: `image;jpg text`, or a list."
    )
    stage: Annotated[StageOrNone, Key("", _NOT_IN_A_PASS, Which("may yield any number of samples"))] = Field(
        None,
        description="A function that takes an iterator of samples and returns another one, such as to filter near "
        "duplicates. Stages of training, with other shares, are in `mix.schedule`.",
    )
    batch: Annotated[
        Annotated[Batch, BeforeValidator(read_batch)] | None,
        Key(
            "",
            Needs(
                "batch.size batch.global_size batch.cost batch.group_by batch.pack",
                "write `batch: 64`, `batch: {{global_size: 512}}`, or `pack: {{fields: ids, length: 2048}}` for rows",
                at_value=True,
            ),
        ),
    ] = Field(None, description="Samples per batch of each rank, or `{global_size: n}` over all ranks.")
    costs: Annotated[dict[str, ExpressionText], Key("order choice cost")] = Field(
        {},
        description="Expressions by name, for `batch.cost` and the keys next to it: `{patches: image.pixels / 784}`.",
    )
    epoch: Annotated[
        Annotated[Epoch, BeforeValidator(read_epoch)] | None,
        Key(
            "",
            Needs(
                "epoch.samples epoch.tokens epoch.batches epoch.pass",
                "write `epoch: 100_000` or `epoch: {{batches: 1000}}`",
                unless="epoch.reshuffle=true",  # which needs `pass`
                at_value=True,
            ),
        ),
    ] = Field(
        None,
        description="Samples per epoch across all ranks, `{tokens: n}`, `{batches: n}` global batches, or `pass` for "
        "every sample once. By default an epoch is endless.",
    )
    # Not the order: all other steps are as they would have been.
    skip: Annotated[SkippedSteps, Key("neither", _NOT_IN_A_PASS)] = Field(
        (),
        description="Training steps to leave out, numbered as in `wdspec batch`: `1200..1260`, or a list. Not samples: "
        "see `subset`, and `errors` for those that cannot be read.",
    )
    elastic: Elastic | None = Field(
        None, description="The canonical topology; by default that of the first run."
    )
    rewrite: tuple[RewriteRule, ...] = Field(
        (), description="Rules that rewrite URLs; the first one that changes a URL is used."
    )
    aistore: AIStoreOrNone = Field(None, description="An AIStore cluster that serves remote shards.")
    storage: StorageOrNone = Field(
        None,
        description="How to access object stores: server, profile, region, and where to find credentials. By default, "
        "the settings of the packages that read them.",
    )
    cache: CacheOrNone = Field(None, description="A directory that keeps copies of remote shards.")
    errors: Annotated[Errors, BeforeValidator(read_errors)] = Field(
        default_factory=share_default(Errors),
        description="What happens if a sample cannot be read: `raise`, `skip`, or a map with a budget.",
    )
    # Not the order by itself: its numbers enter through the shares that they set, and through the counts of a pass.
    stats: AffectsNeither[Text | None] = Field(
        None,
        description="A file written by `wdspec stats`. Its numbers are used for sources without `samples` or `bytes`. "
        "With `epoch: pass`, only shards that have changed since are counted.",
    )
    loader: LoaderOptions = Field(
        default_factory=share_default(LoaderOptions),
        description="Workers and arguments of the torch DataLoader.",
    )
    map_batches: BatchCallOrNone = Field(
        None,
        description="A function that takes many samples at once, such as a model, for `wdspec process` and "
        "`wdspec.ray.read`. It is applied after `map` and before `fields`. Other commands show the samples before it, "
        "and loaders raise an error.",
    )
    output: Annotated[OutputOptions, BeforeValidator(read_output)] | None = Field(
        None, description="Where `wdspec process` writes the samples, shard by shard. Training ignores it."
    )
    allow: Annotated[Allowances, Key("neither values")] = Field(
        (), description="What to allow that is off by default: `pickle`."
    )
    # The order of a pass, which ends there; in other epochs it only ends the run.
    limit: Annotated[
        Positive | None,
        Key(
            "plan",
            Only("`epoch: pass`"),
            Excludes(WINDOWED, COUNT_BATCHES, "E331", unless="/epoch.pass", at_value=True),
        ),
    ] = Field(None, description="Stop after this many samples, in whole global batches, for smoke tests.")
    split: str | None = None
    environment: str | None = None
    file: str | None = Field(None, exclude=True)
    """The file of the spec, as the user named it."""
    folder: str = Field("", exclude=True)
    """Absolute directory of that file, where user functions are looked for first; empty if there is no file."""

    def __repr__(self) -> str:
        sources = self.sources
        shown = [f"{each.name} of {' '.join(each.shards or ())}" for each in sources[:3]]
        more = [f"{len(sources) - 3} more"] if len(sources) > 3 else []
        return redacted_urls(in_a_line(self, [("sources", " and ".join([*shown, *more]))]))

    def of(self, sources: Iterable[Source]) -> "Spec":
        """The spec with only these sources, in one list without shares."""
        unshared = {"probability": None, "weight": None, "upsample": None}
        kept = tuple(source.model_copy(update=unshared) for source in sources)
        return self.model_copy(update={"dataset": kept, "mix": MixOptions()})

    @property
    def of_companions(self) -> "Spec":
        """The spec by which companions are read: only their own keys apply, not the steps of samples of the mix."""
        through = {
            "map": (),
            "fields": None,
            "to_tuple": None,
            "map_batches": None,
            "stage": None,
            "batch": None,
        }
        return self.model_copy(update=through)

    def by_which(self, source: Source) -> "Spec":
        """The spec by which a source is read: this one, or for a source of companions `of_companions`."""
        return self.of_companions if source.name in self.companions else self

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources of the mix with shards, depth first, in file order."""
        return tuple(leaf for source in self.dataset for leaf in source.leaves)

    @property
    def mixes(self) -> tuple[MixOptions, ...]:
        """How the sources are mixed, then those of each nested mix, depth first."""
        return (self.mix, *(nested.mix for source in self.dataset for nested in source.mixes))

    @property
    def collections(self) -> tuple[Source, ...]:
        """All sources with shards: those of the mix, then those of companions."""
        return (*self.sources, *self.companions.values())

    @property
    def sources_by_name(self) -> tuple[Source, ...]:
        """All sources with shards, sorted by name: samples are ordered by the names, not by the lists."""
        return tuple(sorted(self.sources, key=lambda source: source.name))

    @property
    def is_pass(self) -> bool:
        """Whether an epoch is one finite pass over every sample (`epoch: pass`)."""
        return self.epoch is not None and self.epoch.remainder is not None

    @property
    def reshuffles(self) -> bool:
        """Whether an epoch is a pass, and each pass has another order."""
        return self.epoch is not None and self.epoch.reshuffle

    @property
    def needs_costs(self) -> bool:
        """Whether the mean cost of samples must be known, for shares or for an epoch in tokens."""
        return any(mix.needs_costs for mix in self.mixes) or (
            self.epoch is not None and self.epoch.tokens is not None
        )

    @property
    def counts_tokens(self) -> bool:
        """Whether the spec says that what samples cost are tokens."""
        batch, points = self.batch, [step.at for step in self.mix.schedule or ()]
        return (
            (batch is not None and (batch.pack is not None or batch.max_tokens is not None))
            or (self.epoch is not None and self.epoch.tokens is not None)
            or self.mix.shares_in == "tokens"
            or any(at.unit == "tokens" for at in points)
        )

    @property
    def skipped_steps(self) -> StepRanges:
        """The steps in `skip`."""
        return StepRanges.of((each.first, each.last + 1) for each in self.skip)

    @property
    def functions(self) -> dict[str, list[str]]:
        """The names of all user functions, by the key that has them."""
        collation = None if self.batch is None else self.batch.collate
        decoders = [
            name
            for source in self.collections
            if source.decode is not None
            for name in (*source.decode.names, *source.decode.fields.values())
        ]
        return {
            "map": [
                call.call
                for calls in (self.map, *(source.map for source in self.collections))
                for call in calls
            ],
            "select": [name for source in self.collections for name in source.selects],
            "map_batches": [] if self.map_batches is None else [self.map_batches.call],
            "stage": [] if self.stage is None else self.stage.functions,
            "collate": [] if collation is None else collation.functions,
            "cost": [self.batch.cost] if self.batch and self.batch.cost and self.batch.is_by_function else [],
            "decode": [name for name in decoders if ":" in name],
        }

    @property
    def tuple_of_samples(self) -> tuple[str, ...]:
        """What `to_tuple` asks of samples; the other fields are added by their batch."""
        added = () if self.batch is None else self.batch.added
        return tuple(entry for entry in self.to_tuple or () if entry not in added)

    @property
    def measured_fields(self) -> tuple[str, ...]:
        """The fields that say what a sample costs, by `batch.cost` and the keys next to it."""
        batch = self.batch
        if batch is None or not batch.has_windows:
            return ()
        packed = () if batch.pack is None else batch.pack.fields
        texts = batch.expressions
        return (*packed, *(field for text in texts for field in parse_expression(text, self.costs).fields))

    def measured_objects(self, source: Source) -> frozenset[str]:
        """The entries of `fetch` of a source of which the start is read to say what a sample costs."""
        batch = self.batch
        if not source.fetch or batch is None or not batch.has_windows or self.stage is not None:
            return frozenset()
        paths = [path for text in batch.expressions for path in parse_expression(text, self.costs).paths]
        return frozenset(measured_objects(source.fetch, source.rename, paths).values())

    def fields_after_map(self, source: Source) -> frozenset[str]:
        """The fields that `batch` measures after `map` in a source: those that it sets, or all with a `stage`."""
        batch = self.batch
        if batch is None or not batch.has_windows:
            return frozenset()
        paths = (path for text in batch.expressions for path in parse_expression(text, self.costs).paths)
        read = frozenset(str(path[0]) for path in paths if not isinstance(path, PathBeforeMap))
        return read if self.stage is not None else read & fields_set_by(source.map, source.tags, self.map)

    def class_names(self, field: str) -> list[str] | dict[int, str]:
        """Return the names of the classes of a field that `make` makes by `label`.

        Args:
            field: the made field, such as `class_id`.

        Returns:
            The names by number: a list if the numbers are 0, 1, 2, …, or else a dict. Names with a negative number
            are left out.

        Raises:
            UsageError: no source makes such a field, or two sources number the classes in two ways.
            SpecError: the file of the classes cannot be read.

        Example:
            >>> import wdspec
            >>> spec = wdspec.load({
            ...     "dataset": [{"shards": "a.tar", "make": {"class_id": {"label": "cls", "names": ["cat", "dog"]}}}]
            ... })
            >>> spec.class_names("class_id")
            ['cat', 'dog']
        """
        from wdspec.spec.language.class_files import (
            names_in_sources,  # reads files, as no other spec needs here
        )

        return names_in_sources({source.name: source.make for source in self.sources}, field)

    def etl_of(self, source: Source) -> Etl | None:
        """The ETL of AIStore through which a source is read: its own, or that of the spec unless the source turns it
        off."""
        for holder in (source, self):
            if "aistore" in holder.model_fields_set:
                if holder.aistore is None:
                    return None
                if "etl" in holder.aistore.model_fields_set:
                    return holder.aistore.etl
        return None
