"""A spec as the program sees it: everything merged, expanded, checked and immutable.

The classes double as the reference: a field with a description is a key of the language; one without (it
carries a docstring instead) is filled in by the loader and is no key.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SkipValidation

from wdspec.base.redaction import redacted_urls
from wdspec.spec.language.aistore import AIStoreOrNone
from wdspec.spec.language.batch import Batch, read_batch
from wdspec.spec.language.display import Discreet, in_a_line, sources_as_html
from wdspec.spec.language.effects import Affects, AffectsNeither, AffectsOrder, AffectsSamples, AsksForFields
from wdspec.spec.language.expect import Expectations
from wdspec.spec.language.functions import Calls, StageOrNone
from wdspec.spec.language.locations import CacheOrNone, OutputOptions, RewriteRule, StorageOrNone, read_output
from wdspec.spec.language.options import (
    Allowances,
    Elastic,
    Epoch,
    Errors,
    LoaderOptions,
    MixOptions,
    TarOptions,
    read_epoch,
    read_errors,
)
from wdspec.spec.language.samples import Decoding, KeyRule, KeyRuleOrWord, RenameTargets, Scale
from wdspec.spec.language.steps import SkippedSteps
from wdspec.spec.language.values import (
    SUFFIXES,
    CallableName,
    Count,
    FieldPatterns,
    Format,
    Fraction,
    Integer,
    Model,
    Positive,
    Seed,
    Share,
    Size,
    Text,
    Texts,
    shared,
)
from wdspec.spec.tree import Position

_Origin = AffectsNeither[Text | None]
_OF_RECORDS = ", ".join(f"`{suffix}`" for kind in SUFFIXES if kind != "tar" for suffix in SUFFIXES[kind])


class SourceOptions(Model):
    """The keys that a source takes, and that `defaults` may give to all sources."""

    probability: AffectsOrder[Fraction | None] = Field(
        None, description="Share of this source in its list, absolute: the list's must sum to 1."
    )
    weight: AffectsOrder[Share | None] = Field(
        None, description="Share of this source in its list, relative to the others."
    )
    upsample: AffectsOrder[Share | None] = Field(
        None,
        description="Multiplies the size of this source where shares go by size (no probability or weight).",
    )
    extensions: AffectsOrder[FieldPatterns | None] = Field(
        None,
        description="Which files of a sample are wanted, others are never read: `jpg;png txt` is two fields, the "
        "first with an alternative. All files if left out.",
    )
    missing: AffectsOrder[Literal["error", "skip", "none"]] = Field(
        "error",
        description="What happens to a sample that lacks a field asked for by `extensions`, `rename`, `fields` or "
        "`to_tuple`: an error; dropped and counted; or the value None.",
    )
    rename: AsksForFields[dict[str, RenameTargets]] = Field(
        {}, description="New name of a field: `{image: jpg;png}`, the first present wins. Other fields stay."
    )
    decode: AffectsSamples[Decoding | None] = Field(
        None,
        description="How fields become values: an image decoder (`rgb8`, `rgb`, `torchrgb`, `pil`, `l8`, …), `audio`, "
        "`video`, the extension of what a field holds (`json`, `npy`, …), `package.module:function` of its bytes, or "
        "`raw` for none; `auto`, what comes without `decode`; a list of these, the first that fits a field wins; or a "
        "map that sets it for each field. What it says nothing of goes by extension, with images, audio and video left "
        "as bytes. Options follow a `+`: `rgb8+random_resized_crop=224` and `rgb8+resize=256+center_crop=224` bring "
        "images to a size, `rgb8+upright` turns them by EXIF, `rgb8+pillow` keeps faster readers of JPEG out, "
        "`video+frames=8`, `+fps=2` and `+clip=2s` take parts of films. docs/decoders.md has the tables.",
    )
    scale: AffectsSamples[Scale | None] = Field(
        None,
        description="Factor by which images are rescaled, or the range [lo, hi] from which it is drawn "
        "log-uniformly for each sample; all images of a sample get the same. `1` switches it off.",
    )
    scaleprob: AffectsSamples[Fraction] = Field(
        1.0,
        description="The probability that a sample is rescaled at all; never a share of the mix. Alone, the range "
        "is that of `defaults.scale`, else [0.5, 2.0]. `0` switches rescaling off.",
    )
    select: AffectsOrder[CallableName | None] = Field(
        None, description="`package.module:function`; keeps the samples for which it is true."
    )
    map: Calls = Field(
        (),
        description="Functions applied to each sample after decode, scale and select: `package.module:function` from "
        "sample to sample; or by field, `{image: [functions of its value], text: …}`. A field that is None stays so.",
    )
    shuffle: AffectsOrder[Count] = Field(
        1000,
        description="Samples a slot would hold for shuffling, on average, if this were its only source; sources share "
        "them out by their shares.",
    )
    order: AffectsOrder[Literal["shuffled", "resampled", "sequential"]] = Field(
        "shuffled",
        description="Order of the shards: a fresh permutation each pass; with replacement; as listed.",
    )
    interleave: AffectsOrder[Positive] = Field(
        8,
        description="How many shards a slot would read in turn, sample by sample, if this were its only source; "
        "sources share them out by their shares, each at least 1. By default 1 with `order: sequential`.",
    )
    key: KeyRuleOrWord = Field(
        default_factory=shared(KeyRule),
        description="Where the name of a file splits into the sample's key and the field.",
    )
    rewrite: tuple[RewriteRule, ...] = Field(
        (), description="Rewrite rules for this source, before the top ones."
    )
    aistore: AIStoreOrNone = Field(None, description="The AIStore cluster for this source; `false` for none.")
    storage: StorageOrNone = Field(
        None, description="In place of the top `storage`, as a whole, for this source; `false` for none."
    )
    cache: CacheOrNone = Field(None, description="The cache for this source; `false` for none.")
    errors: Annotated[Errors, BeforeValidator(read_errors)] = Field(
        default_factory=shared(Errors),
        description="What happens when a sample of this source cannot be read, merged over the top `errors`.",
    )
    license: _Origin = Field(None, description="Terms of use: an SPDX name such as `CC-BY-4.0`, or a URL.")
    homepage: _Origin = Field(None, description="Where the data is described: a URL.")
    revision: _Origin = Field(None, description="Which version of the data this is, for the record.")
    tags: AffectsSamples[dict[str, Any]] = Field({}, description="Constants added to every sample.")
    samples: AffectsOrder[Positive | None] = Field(
        None, description="How many samples the source has, as declared; else as `stats` has them."
    )
    bytes: AffectsOrder[Size | None] = Field(
        None,
        description="How many bytes the files in its shards have, uncompressed, likewise: a number, or text such as "
        "`1.2TB`.",
    )
    # Not the samples: `auto` and the right word read the same, and a wrong one is an error.
    format: AffectsNeither[Literal["auto", Format]] = Field(
        "auto",
        description=f"Format of the shards; `auto` goes by the name of each: {_OF_RECORDS} (compressed or not) are "
        "sequences of records, all else is tar.",
    )
    # Nor here: it decides whether a run ends at a shard that has nothing to give.
    empty: AffectsNeither[Literal["error", "allow"]] = Field(
        "error",
        description="What a shard with nothing in it is: an error, as stores and full disks make such files; or, with "
        "`allow`, a shard of no samples.",
    )
    expect: Expectations | None = Field(
        None, description="What its samples are, as they leave it; `errors` says what happens to others."
    )
    tar: TarOptions = Field(default_factory=shared(TarOptions), description="How strictly tars are read.")


class Source(Discreet, SourceOptions):
    """A collection of shards, or a nested mix of such collections."""

    name: AffectsOrder[Text] = Field(
        "", description="Unique; the key of the source's order. By default from the shards' name."
    )
    shards: AffectsOrder[Texts | None] = Field(
        None,
        description="Where the shards are: `{000..123}` braces, `a::b`, `${variable}`, globs, `@file.txt` with one "
        "URL a line, a directory ending in `/`; or a list of these.",
    )
    dataset: "tuple[Source, ...] | None" = Field(None, description="The sources of a nested mix.")
    mix: MixOptions = Field(
        default_factory=shared(MixOptions), description="How the sources of the nested mix are mixed."
    )
    base: str = ""
    """Absolute directory against which relative paths in ``shards`` are resolved."""
    where: Annotated[Position | None, SkipValidation] = None
    """Where the source stands in its file."""

    @property
    def leaves(self) -> "Iterator[Source]":
        """The sources with shards in this one, depth first: itself, if it is no nested mix."""
        if self.dataset is None:
            yield self
        for source in self.dataset or ():
            yield from source.leaves

    @property
    def mixes(self) -> "Iterator[Source]":
        """The nested mixes in this one, depth first, and itself, if it is one."""
        if self.dataset is not None:
            yield self
            for source in self.dataset:
                yield from source.mixes


class Spec(Discreet):
    """A spec, for one split and one environment."""

    wdspec: AffectsNeither[Integer] = Field(
        1, description="Version of the format.", json_schema_extra={"const": 1}
    )
    name: AffectsNeither[Text | None] = Field(None, description="Name of the spec.")
    description: AffectsNeither[Text | None] = Field(None, description="What it is for.")
    dataset: tuple[Source, ...] = Field(description="The sources.")
    mix: MixOptions = Field(default_factory=shared(MixOptions), description="How the sources are mixed.")
    seed: AffectsOrder[Seed] = Field(0, description="Seed of all order and randomness.")
    map: Calls = Field((), description="Functions applied to each sample after mixing, as in a source.")
    fields: AsksForFields[FieldPatterns | None] = Field(
        None, description="The fields to keep: `image text`, or a list; `a;b` takes the first present."
    )
    to_tuple: AsksForFields[FieldPatterns | None] = Field(
        None, description="Deliver tuples of these fields instead of dicts: `image;jpg text`, or a list."
    )
    stage: StageOrNone = Field(None, description="A function from an iterator of samples to another.")
    batch: Annotated[Batch, BeforeValidator(read_batch)] | None = Field(
        None, description="Samples in a batch for each rank, or `{global_size: n}` over all ranks."
    )
    epoch: Annotated[Epoch, BeforeValidator(read_epoch)] | None = Field(
        None,
        description="Samples in an epoch over all ranks together, or `{batches: n}` global batches, or `pass`: every "
        "sample once. Endless if left out.",
    )
    skip: SkippedSteps = Field(
        (), description="Steps to leave out, counted as `wdspec batch` does: `1200..1260`, or a list."
    )
    elastic: Elastic | None = Field(None, description="The canonical topology; by default the first run's.")
    rewrite: tuple[RewriteRule, ...] = Field(
        (), description="Rules that rewrite URLs; the first that changes a URL wins."
    )
    aistore: AIStoreOrNone = Field(None, description="An AIStore cluster that serves remote shards.")
    storage: StorageOrNone = Field(
        None,
        description="How object stores are reached: server, profile, region, and where logins are. By default as every "
        "program that uses their packages reaches them.",
    )
    cache: CacheOrNone = Field(None, description="A directory that keeps copies of remote shards.")
    errors: Annotated[Errors, BeforeValidator(read_errors)] = Field(
        default_factory=shared(Errors),
        description="What happens when a sample cannot be read: `raise`, `skip`, or a map with a budget.",
    )
    # Not the order by itself: the numbers in it enter by the shares that are made of them, and by the counts of a pass.
    stats: AffectsNeither[Text | None] = Field(
        None,
        description="A file that `wdspec stats` wrote: its numbers stand in for `samples` and `bytes` of sources that "
        "declare none, and `epoch: pass` counts only shards that changed since.",
    )
    loader: LoaderOptions = Field(
        default_factory=shared(LoaderOptions), description="Arguments of the torch DataLoader."
    )
    output: Annotated[OutputOptions, BeforeValidator(read_output)] | None = Field(
        None,
        description="Where `wdspec process` writes the samples, shard by shard. Training has no use for it.",
    )
    allow: AffectsNeither[Allowances] = Field((), description="What is off by default and wanted: `pickle`.")
    # The order of a pass, which ends with it; elsewhere it is a cut.
    limit: Annotated[Positive | None, Affects("order", only="`epoch: pass`")] = Field(
        None, description="Stop after so many samples, in whole global batches, for smoke runs."
    )
    split: str | None = None
    environment: str | None = None
    file: str | None = None
    """The file the spec was read from, as the user named it."""
    folder: str = ""
    """Absolute path of that file's folder, where the user's functions are looked for first; empty without a file."""

    @property
    def is_pass(self) -> bool:
        """Whether every epoch is one finite pass that gives each sample once (`epoch: pass`)."""
        return self.epoch is not None and self.epoch.remainder is not None

    def __repr__(self) -> str:
        sources = self.sources
        shown = [f"{each.name} of {' '.join(each.shards or ())}" for each in sources[:3]]
        more = [f"{len(sources) - 3} more"] if len(sources) > 3 else []
        return redacted_urls(in_a_line(self, [("sources", " and ".join([*shown, *more]))]))

    def _repr_html_(self) -> str:
        """What a notebook shows: the keys of the top level, and a table of the sources."""
        return sources_as_html(self.name or self.file or "spec", self, self.sources)

    def of(self, sources: Iterable[Source]) -> "Spec":
        """The spec with these of its sources alone, in one list without shares."""
        unshared = {"probability": None, "weight": None, "upsample": None}
        kept = tuple(source.model_copy(update=unshared) for source in sources)
        return self.model_copy(update={"dataset": kept, "mix": MixOptions()})

    @property
    def sources(self) -> tuple[Source, ...]:
        """All sources that have shards, depth first, in file order."""
        return tuple(leaf for source in self.dataset for leaf in source.leaves)

    @property
    def sources_by_name(self) -> tuple[Source, ...]:
        """The same in the order of their names, which is what the order goes by: a list's own order means nothing."""
        return tuple(sorted(self.sources, key=lambda source: source.name))
