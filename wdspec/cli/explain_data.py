"""Examines the data of a spec: measures each source by the headers of its first shard, and gives advice.

Advice is about missing shards, fields without files, useless rewrite rules, and more. Only names and the headers of
local shards are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

from wdspec.base.errors import UsageError, WdspecError, did_you_mean
from wdspec.base.user_code import find_mistake
from wdspec.cli.report import pluralize
from wdspec.formats.compression import format_of
from wdspec.formats.decompress import decompress
from wdspec.formats.tar.members import iter_members
from wdspec.formats.tar.reader import splitter
from wdspec.planning.passes import SourceCount
from wdspec.read.budget import Budget
from wdspec.read.selection import Selection
from wdspec.read.shard import Piece
from wdspec.read.transform import SourceParts
from wdspec.shards.shards import Shards
from wdspec.spec.language.decoders import (
    BY_NAME,
    RAW,
    endings,
    require_libraries,
    split_decoder,
    split_packing,
)
from wdspec.spec.measurements import MeasuredSource
from wdspec.spec.problems import list_names as quoted
from wdspec.spec.reading import digest_keeping
from wdspec.spec.rules.fields import decoders_of, field_names
from wdspec.spec.spec import Source, Spec
from wdspec.storage.storage import Storage
from wdspec.stores.filesystems import find_missing
from wdspec.stores.local import open_file
from wdspec.urls.urls import AIS_PROVIDERS, FSSPEC, MAGIC, UrlSequence, local_path, row_of, scheme_of

MOST_MEMBERS = 100_000
"""Maximum number of headers to read from a shard (about half a second). The rest is assumed to be similar."""
MOST_SELECTED = 4_000
"""Samples of a source that are read to estimate how many its selection keeps."""
MOST_SELECTED_SHARDS = 4
"""Number of shards that these samples come from."""
MOST_UNPACKED = 64 * 1024 * 1024
"""Bytes to read from a compressed shard, in which seeking is not possible."""


@dataclass(frozen=True)
class Measure:
    """Facts from the headers of one shard."""

    samples: float
    """Samples of the shard."""
    sample_bytes: float
    """Mean size of the requested members of a sample."""
    whole: bool = True
    """Whether all headers were read."""
    suffixes: frozenset[str] = frozenset()
    """Suffixes of all files in it, requested or not, in lower case."""


def measure(
    source: Source, shards: UrlSequence, storage: Storage, field_of: Callable[[str], str | None]
) -> Measure | WdspecError | None:
    """Measure the first shard of a source.

    Args:
        source: the source.
        shards: its shards.
        storage: its storage.
        field_of: maps the suffix of a member to its field; None for members that are not requested.

    Returns:
        The measure; the error that reading would raise; None for a shard that is not a local tar file, whose samples
        can only be counted by reading them.
    """
    try:
        location = storage.resolve(shards[0]).location
        path = local_path(location)
        if path is None or (os.path.exists(path) and not os.path.isfile(path)):
            return None
        if format_of(location, source.format) != "tar" and os.path.exists(path):
            return None
        return _measure(path, source, field_of)
    except WdspecError as error:
        return error.at(source=source.name, url=shards[0].text)


def recall_measure(totals: MeasuredSource, field_of: Callable[[str], str | None]) -> Measure | None:
    """The measure of a source from its measurements by `wdspec stats`."""
    if not totals.samples or not totals.measured:
        return None
    size = sum(each.count * each.mean for name, each in totals.fields.items() if field_of(name) is not None)
    suffixes = frozenset(totals.fields)
    return Measure(totals.samples / totals.measured, size / totals.samples, suffixes=suffixes)


def _measure(path: str, source: Source, field_of: Callable[[str], str | None]) -> Measure:
    split = splitter(source.key)
    samples = size = members = 0
    last: bytes | None = None
    suffixes: set[bytes] = set()
    with open_file(path) as raw:
        total = os.fstat(raw.fileno()).st_size
        file = decompress(raw)
        most_bytes = total if file is raw else MOST_UNPACKED
        rules = {"lenient_end": source.tar.end == "lenient", "may_be_empty": source.empty == "allow"}
        for member in iter_members(file, **rules):
            parts = split(member.name) if member.may_be_sampled else None
            if parts is None:
                continue
            key, suffix = parts
            suffixes.add(suffix)
            if key != last:
                if members >= MOST_MEMBERS or member.offset > most_bytes:
                    estimate = samples * max(1.0, total / max(1, raw.tell()))
                    return Measure(estimate, size / samples, whole=False, suffixes=_texts(suffixes))
                samples, last = samples + 1, key
            members += 1
            if field_of(suffix.decode("utf-8", "surrogateescape")) is not None:
                size += member.file_size
    return Measure(samples, size / samples if samples else 0.0, suffixes=_texts(suffixes))


class KeptSamples(NamedTuple):
    """How many samples of a source `where`, `subset`, `keys` and `exclude` keep, as far as it was read."""

    kept: int
    looked_at: int
    shards: int
    """Shards that were read, in part."""
    by: Literal["sample", "stats", "count"] = "sample"
    """Whether only some samples were read (`sample`), or `stats` or counting for `epoch: pass` has read all of them."""

    @property
    def fraction(self) -> float:
        """The fraction of the samples that is kept."""
        return self.kept / max(1, self.looked_at)


def measure_selection(parts: SourceParts, source: Source, shards: UrlSequence) -> KeptSamples:
    """Read some samples of a source, and count those that its selection keeps.

    Raises:
        WdspecError: a shard cannot be read, or an expression cannot be evaluated.
    """
    budget = Budget(source.errors, source.name).without_log()
    choose = parts.build_choice(budget)
    kept = looked_at = 0
    places = _spread(len(shards), MOST_SELECTED_SHARDS)
    for place in places:
        with closing(
            parts.selecting(Piece(shards[place]), on_error=lambda error: budget(error, "shard"))
        ) as samples:
            for raw in islice(samples, MOST_SELECTED // len(places)):
                looked_at += 1
                kept += choose(raw)
    return KeptSamples(kept, looked_at, len(places))


def selection_in_stats(
    totals: MeasuredSource | None, spec: Spec, source: Source, files: Mapping[str, str]
) -> KeptSamples | None:
    """Return what `stats` counted; None if it did not count this selection, or not in all shards.

    Args:
        totals: what `stats` measured.
        spec: the spec.
        source: the source.
        files: digests of the files that its selection names.
    """
    if totals is None or totals.kept is None or not totals.is_whole:
        return None
    if totals.keeping != digest_keeping(spec, source, files):
        return None
    return KeptSamples(totals.kept, totals.samples, totals.measured, "stats")


def selection_in_pass(count: SourceCount | None, selection: Selection) -> KeptSamples | None:
    """Return what counting for `epoch: pass` found; None if it did not count all that the selection leaves out."""
    if count is None or not (count.counted == "all" or (count.counted and selection.by_value is None)):
        return None
    kept = count.of_a_copy
    return KeptSamples(
        kept, kept + count.uncounted, count.turns, "stats" if count.counted == "all" else "count"
    )


def _texts(suffixes: set[bytes]) -> frozenset[str]:
    return frozenset(suffix.decode("utf-8", "surrogateescape").lower() for suffix in suffixes)


def memory_of_machine() -> int | None:
    """Bytes of memory of this machine, or of its container; None if unknown."""
    sizes = []
    with suppress(AttributeError, OSError, ValueError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError), open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
        sizes.append(int(file.read()))
    return min(sizes) if sizes else None


MOST_LOOKED_AT = 10_000
"""Number of shards per source that are checked for existence, evenly spaced in longer lists."""
MOST_OF_ALL = 100_000
"""The same for all sources together."""
MOST_TRIED = 100
"""Shards of a source on which the rules of WDS_REWRITE are tried."""
FEW_SAMPLES = 1_000
"""An `epoch` up to this is probably meant as a number of epochs, if there are `MANY_EPOCHS` times as many samples."""
MANY_EPOCHS = 20


class Advice(NamedTuple):
    """A finding about the data of a spec."""

    code: str
    text: str
    source: Source | None = None
    """The source that it is about."""

    def __str__(self) -> str:
        where = None if self.source is None else self.source.position
        return f"{f'{where}: ' if where is not None and where.line else ''}{self.code} {self.text}"


def advice_on_data(spec: Spec, shards: Shards, measures: Mapping[str, Measure]) -> Iterator[Advice]:
    """Yield findings about the sources that are read.

    Args:
        spec: the spec.
        shards: its shards.
        measures: the known measures, by source.
    """
    files: dict[str, tuple[str, int]] = {}
    most = max(MOST_TRIED, min(MOST_LOOKED_AT, MOST_OF_ALL // max(1, len(spec.sources))))
    for source in spec.sources:
        urls, storage = shards.lists[source.name], shards.storages[source.name]
        if urls:
            yield from _about_files(source, urls, storage, files, most)
            if source.name in measures:
                yield from _about_fields(spec, source, measures[source.name].suffixes)
            yield from _about_cluster(source, urls, storage)
    yield from _about_rules(shards)
    yield from _about_functions(spec)
    yield from _about_libraries(spec, shards)


def _about_functions(spec: Spec) -> Iterator[Advice]:
    """Functions that their modules do not define."""
    for role, names in spec.functions.items():
        for name in dict.fromkeys(names):
            if (mistake := find_mistake(name, spec.folder)) is not None:
                yield Advice("W514", f"`{role}: {name}` cannot be imported: {mistake}")


def _about_libraries(spec: Spec, shards: Shards) -> Iterator[Advice]:
    """Libraries of stores and decoders that are not installed, also of those that are chosen by extension."""
    for scheme in dict.fromkeys(_store_schemes(shards)):
        if (missing := find_missing(scheme)) is not None:
            yield Advice("W515", missing)
    known = {each: None for source in spec.sources for each in _decoders(source)}
    for name in known:
        try:
            require_libraries(name)
        except UsageError as error:
            yield Advice("W515", error.message)


def _store_schemes(shards: Shards) -> Iterator[str]:
    """The schemes of the first shards that fsspec reads."""
    for name, urls in shards.lists.items():
        storage = shards.storages[name]
        with suppress(WdspecError):
            location = storage.resolve(urls[0]).location if urls else ""
            if row_of(location).store == FSSPEC and scheme_of(location) not in storage.users:
                yield scheme_of(location)


def _decoders(source: Source) -> Iterator[str]:
    """The decoders that a source names, then those that its extensions choose."""
    if source.decode is not None:
        yield from (*source.decode.names, *source.decode.fields.values())
    for field in field_names(source) or ():
        yield from (each for each in decoders_of(source, field) if each is not None)


def advice_on_epoch(spec: Spec, samples: float | None) -> Iterator[Advice]:
    """Whether `epoch` looks like a number of epochs; `samples` are those of all sources, if known."""
    epoch = spec.epoch.samples if spec.epoch is not None else None
    if epoch and samples and spec.limit is None and epoch <= FEW_SAMPLES and epoch * MANY_EPOCHS <= samples:
        yield Advice(
            "W507",
            f"`epoch: {epoch}` means {pluralize(epoch, 'sample')}, but the sources have about {samples:,.0f}; "
            "the number "
            "of epochs is set in the training loop",
        )


def _about_files(
    source: Source, shards: UrlSequence, storage: Storage, files: dict[str, tuple[str, int]], most: int
) -> Iterator[Advice]:
    """Missing and repeated shards. `files`: path → name of the source, and the shard's index."""
    looked = 0
    missing: list[tuple[str, str]] = []
    repeated: str | None = None
    for index in _spread(len(shards), most):
        url = shards[index]
        try:
            path = local_path(storage.resolve(url).location)
        except WdspecError:
            continue  # W502 reports it for the first
        if path is None or path == "-":
            continue
        looked += 1
        if os.path.isdir(path):
            text = f"`{url.text}` is a directory, but is read as one shard"
            yield Advice("W502", f"{text}; write `{url.text}/` for all shards in it", source)
            continue
        if not os.path.exists(path):
            missing.append((url.text, path))
            continue
        owner = files.setdefault(os.path.realpath(path), (source.name, index))
        if owner != (source.name, index) and repeated is None:
            repeated = f"`{url.text}` is also a shard of `{owner[0]}`"
            if owner[0] == source.name:
                repeated = f"`{url.text}` is listed twice in `{source.name}`"
    if missing:
        part = " checked" if looked < len(shards) else ""
        seen = f"{len(missing):,} of {pluralize(looked, 'shard')}{part}" if looked > 1 else "the shard"
        verb = "does" if looked == 1 else "do"
        text = f"{seen} of `{source.name}` {verb} not exist, the first is `{missing[0][0]}`"
        yield Advice("W501", f"{text}; {_describe_folder(missing[0][1])}", source)
    if repeated is not None:
        yield Advice("W508", f"{repeated}; list each file once, in one source", source)


def _describe_folder(path: str) -> str:
    """What exists in place of a missing file, and what to do."""
    folder = os.path.dirname(path)
    while folder != "/" and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    if folder != os.path.dirname(path):
        return (
            f"the directory {os.path.dirname(path)} does not exist; paths in a spec are relative to the spec"
        )
    with os.scandir(folder) as entries:
        names = sorted(name for _, entry in zip(range(1000), entries, strict=False) if (name := entry.name))
    ending = os.path.splitext(path)[1]
    similar = [name for name in names if name.endswith(ending)] or names
    return f"{folder} has {quoted(similar, 3)}; compare the pattern with these names"


def _about_fields(spec: Spec, source: Source, suffixes: frozenset[str]) -> Iterator[Advice]:
    """Fields that are requested or decoded, but have no file in the first shard."""
    if not suffixes:
        return
    existing = quoted(sorted(suffixes), 8)
    ends = {
        end for suffix in suffixes for plain in (suffix, split_packing(suffix)[0]) for end in endings(plain)
    }
    if source.missing == "error":
        for entry in _absent(spec, source, suffixes):
            hint = did_you_mean(entry, suffixes) or "rename one of these, or set `missing: skip`"
            text = f"no sample of the first shard of `{source.name}` has the field `{entry}`; its files are {existing}"
            yield Advice("W503", f"{text}; {hint}", source)
    if source.extensions is None:
        renamed = {old.lower() for olds in source.rename.values() for old in olds}
        for name in sorted(source.tags.keys() & (suffixes - renamed)):
            text = f"the tag `{name}` of `{source.name}` replaces the field `{name}` of its samples"
            yield Advice("W380", f"{text}; choose another name for the tag", source)
    if source.decode is None:
        return
    named = {name.lower() for entry in source.extensions or () for name in entry.split(";")[:1]}
    for key, decoder in source.decode.fields.items():
        if key.lower() not in ends | named and key not in source.rename:
            text = (
                f"`decode: {{{key}: {decoder}}}` decodes nothing: the files of `{source.name}` are {existing}"
            )
            yield Advice("W504", f"{text}; use the extension of an existing file", source)
    scaled = any(each.scale is not None for each in spec.sources)  # then images are decoded in all sources
    for name in () if scaled else source.decode.names:
        base = split_decoder(name)[0]
        lasts = {end.rpartition(".")[2] for end in ends}
        if ":" not in name and base != RAW and not any(BY_NAME[base].takes(base, last) for last in lasts):
            text = f"`decode: {name}` decodes nothing: the files of `{source.name}` are {existing}"
            yield Advice("W504", f"{text}; choose a decoder of existing files", source)


def _absent(spec: Spec, source: Source, suffixes: frozenset[str]) -> Iterator[str]:
    """The fields that the spec requests, but that no file of the shard has."""

    def exists(names: Iterable[str], known: Iterable[str]) -> bool:
        return any(MAGIC.search(name) or name.lower() in known for name in names)

    for entry in source.extensions or ():
        if not exists(entry.split(";"), suffixes):
            yield entry
    names = (
        suffixes
        if source.extensions is None
        else {entry.split(";")[0].lower() for entry in source.extensions if not MAGIC.search(entry)}
    )
    for new, olds in source.rename.items():
        if source.extensions is None and not exists(olds, suffixes):
            yield ";".join(olds)
        names = names - {old.lower() for old in olds} | {new.lower()}
    if source.extensions is None and not source.map and not spec.map:
        known = names | {tag.lower() for tag in source.tags}
        for entry in (*(spec.fields or ()), *(spec.to_tuple or ())):
            if not entry.startswith("__") and not exists(entry.split(";"), known):
                yield entry


def _about_cluster(source: Source, shards: UrlSequence, storage: Storage) -> Iterator[Advice]:
    """Buckets that are read without the cluster that AIS_ENDPOINT names."""
    if storage.ais is None or not storage.environment.ais.endpoints:
        return
    try:
        scheme = scheme_of(storage.resolve(shards[0]).location)
    except WdspecError:
        return
    if scheme in AIS_PROVIDERS and scheme != "ais" and not storage.ais.schemes - {"ais"}:
        text = f"AIS_ENDPOINT is set, but the shards of `{source.name}` are read from `{scheme}://` directly"
        hint = f"also set USE_AIS_FOR={scheme}, or `aistore: {{use_for: {scheme}}}`"
        yield Advice("W506", f"{text}; {hint}", source)


def _about_rules(shards: Shards) -> Iterator[Advice]:
    """Rules of WDS_REWRITE without effect."""
    rules = next((storage.environment.rules for storage in shards.storages.values()), ())
    urls = [urls[index].text for urls in shards.lists.values() for index in _spread(len(urls), MOST_TRIED)]
    for rule in rules:
        if urls and not any(rule.apply(url) != url for url in urls):
            text = f"{rule.origin}: no shard starts with `{rule.pattern}`, so the rule has no effect"
            yield Advice("W505", f"{text}; the first shard is `{urls[0]}`")


def _spread(count: int, most: int) -> Sequence[int]:
    """At most `most` indexes of a list, from the first to the last."""
    return range(count) if count <= most else [each * (count - 1) // (most - 1) for each in range(most)]
