"""What data and environment say against a spec: shards that are not there, fields that no file is for, and more.

Looks at names and headers only, and at no file of another machine.

How many samples a source may have and how big they are, from the headers of its first shard.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from wdspec.base.errors import WdspecError, did_you_mean
from wdspec.cli.wording import counted
from wdspec.fields.extensions import endings
from wdspec.formats.compression import format_of, unpacked
from wdspec.formats.decompress import decompressed
from wdspec.formats.tar.headers import splitter
from wdspec.formats.tar.members import iter_members
from wdspec.shards.shards import Shards
from wdspec.spec.language.decoder_options import split_decoder
from wdspec.spec.language.decoders import BY_NAME, RAW
from wdspec.spec.measurements import MeasuredSource
from wdspec.spec.problems import listed
from wdspec.spec.spec import Source, Spec
from wdspec.storage.storage import Storage
from wdspec.stores.local import open_file
from wdspec.urls.urls import AIS_PROVIDERS, MAGIC, UrlSequence, local_path, scheme_of

MOST_MEMBERS = 100_000
"""Headers read of a shard (about half a second); beyond, the rest is taken to be like the part read."""
MOST_UNPACKED = 64 * 1024 * 1024
"""Bytes read of a compressed shard, which cannot be skipped through."""


@dataclass(frozen=True)
class Measure:
    """What the headers of one shard say."""

    samples: float
    """Samples of the shard."""
    sample_bytes: float
    """Mean size of a sample's wanted members."""
    whole: bool = True
    """Whether all headers were read."""
    suffixes: frozenset[str] = frozenset()
    """Of the files in it, wanted or not, in lower case."""


def measure(
    source: Source, shards: UrlSequence, storage: Storage, field_of: Callable[[str], str | None]
) -> Measure | WdspecError | None:
    """Measures the first shard of a source.

    Args:
        source: the source.
        shards: its shards, listed.
        storage: of this source.
        field_of: None for the suffix of a member that no field wants.

    Returns:
        The measure; the error that reading would meet; None for a shard that is not local, no regular file, or no tar,
        whose samples can only be counted by reading them.
    """
    try:
        location = storage.resolve(shards[0]).location
        path = local_path(location)
        if path is None or (os.path.exists(path) and not os.path.isfile(path)):
            return None
        if format_of(location, source.format) != "tar" and os.path.exists(path):
            return None
        return _measured(path, source, field_of)
    except WdspecError as error:
        return error.at(source=source.name, url=shards[0].text)


def measured_before(totals: MeasuredSource, field_of: Callable[[str], str | None]) -> Measure | None:
    """The same from what `wdspec stats` has found out about all shards of a source."""
    if not totals.samples or not totals.measured:
        return None
    wanted = (
        spread.count * spread.mean for name, spread in totals.fields.items() if field_of(name) is not None
    )
    return Measure(
        totals.samples / totals.measured, sum(wanted) / totals.samples, suffixes=frozenset(totals.fields)
    )


def _measured(path: str, source: Source, field_of: Callable[[str], str | None]) -> Measure:
    split = splitter(source.key)
    samples, wanted, members = 0, 0, 0
    last: bytes | None = None
    suffixes: set[bytes] = set()
    with open_file(path) as raw:
        total = os.fstat(raw.fileno()).st_size
        file = decompressed(raw)
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
                    read = max(1, raw.tell())
                    return Measure(
                        samples * max(1.0, total / read),
                        wanted / samples,
                        whole=False,
                        suffixes=_texts(suffixes),
                    )
                samples, last = samples + 1, key
            members += 1
            if field_of(suffix.decode("utf-8", "surrogateescape")) is not None:
                wanted += member.size
    return Measure(samples, wanted / samples if samples else 0.0, suffixes=_texts(suffixes))


def _texts(suffixes: set[bytes]) -> frozenset[str]:
    return frozenset(suffix.decode("utf-8", "surrogateescape").lower() for suffix in suffixes)


def memory_of_machine() -> int | None:
    """Bytes of memory that this machine, or its container, has; None where that cannot be found out."""
    sizes = []
    with suppress(AttributeError, OSError, ValueError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError), open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
        sizes.append(int(file.read()))
    return min(sizes) if sizes else None


MOST_LOOKED_AT = 10_000
"""Shards of a source whose files are looked for; of more a part, from the first to the last;"""
MOST_OF_ALL = 100_000
"""and so many of all sources together."""
MOST_TRIED = 100
"""Shards of a source that the rules of WDS_REWRITE are tried on."""
FEW_SAMPLES = 1_000
"""An epoch of no more may be meant as a number of something else,"""
MANY_EPOCHS = 20
"""where the sources have so many times as many samples."""


class Advice(NamedTuple):
    """Something to think about."""

    code: str
    text: str
    source: Source | None = None
    """The source that it is about."""

    def __str__(self) -> str:
        where = None if self.source is None else self.source.where
        return f"{f'{where}: ' if where is not None and where.line else ''}{self.code} {self.text}"


def advice_on_data(spec: Spec, shards: Shards, measures: Mapping[str, Measure]) -> Iterator[Advice]:
    """Everything that is found about the sources that are read.

    Args:
        spec: the spec.
        shards: its shards.
        measures: what the first shards of the sources hold, by source, as far as it is known.
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


def advice_on_epoch(spec: Spec, samples: float | None) -> Iterator[Advice]:
    """Whether an epoch looks like a number of epochs; `samples` are those of all sources, if they are known."""
    asked = spec.epoch.samples if spec.epoch is not None else None
    if asked and samples and spec.limit is None and asked <= FEW_SAMPLES and asked * MANY_EPOCHS <= samples:
        yield Advice(
            "W507",
            f"`epoch: {asked}` means {counted(asked, 'sample')}, and the sources have about {samples:,.0f}; how many "
            "epochs there are is a matter of the training loop",
        )


def _about_files(
    source: Source, shards: UrlSequence, storage: Storage, files: dict[str, tuple[str, int]], most: int
) -> Iterator[Advice]:
    """Shards that are not there, or there already. `files`: path → name of the source, and the shard's index."""
    looked = 0
    missing: list[tuple[str, str]] = []
    double: str | None = None
    for index in _spread(len(shards), most):
        url = shards[index]
        try:
            path = local_path(storage.resolve(url).location)
        except WdspecError:
            continue  # W502 says so of the first
        if path is None or path == "-":
            continue
        looked += 1
        if not os.path.exists(path):
            missing.append((url.text, path))
            continue
        owner = files.setdefault(os.path.realpath(path), (source.name, index))
        if owner != (source.name, index) and double is None:
            double = f"`{url.text}` is also a shard of `{owner[0]}`"
            double = f"`{url.text}` stands twice in `{source.name}`" if owner[0] == source.name else double
    if missing:
        part = " looked at" if looked < len(shards) else ""
        seen = f"{len(missing):,} of {counted(looked, 'shard')}{part}" if looked > 1 else "the shard"
        verb = "does" if looked == 1 else "do"
        text = f"{seen} of `{source.name}` {verb} not exist, the first is `{missing[0][0]}`"
        yield Advice("W501", f"{text}; {_nearby(missing[0][1])}", source)
    if double is not None:
        yield Advice("W508", f"{double}; give each file to one source, once", source)


def _nearby(path: str) -> str:
    """What is there in place of a file, and what to do."""
    folder = os.path.dirname(path)
    while folder != "/" and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    if folder != os.path.dirname(path):
        return f"there is no directory {os.path.dirname(path)}; paths in a spec are relative to the spec"
    with os.scandir(folder) as entries:
        names = sorted(name for _, entry in zip(range(1000), entries, strict=False) if (name := entry.name))
    ending = os.path.splitext(path)[1]
    alike = [name for name in names if name.endswith(ending)] or names
    return f"{folder} has {listed(alike, 3)}; compare the pattern with what is there"


def _about_fields(spec: Spec, source: Source, suffixes: frozenset[str]) -> Iterator[Advice]:
    """What is asked for or decoded, and has no file in the first shard."""
    if not suffixes:
        return
    there = listed(sorted(suffixes), 8)
    ends = {end for suffix in suffixes for plain in (suffix, unpacked(suffix)[0]) for end in endings(plain)}
    if source.missing == "error":
        for entry in _absent(spec, source, suffixes):
            hint = did_you_mean(entry, suffixes) or "rename one of these, or say `missing: skip`"
            text = f"no sample of the first shard of `{source.name}` has the field `{entry}`; its files are {there}"
            yield Advice("W503", f"{text}; {hint}", source)
    if source.decode is None:
        return
    named = {name.lower() for entry in source.extensions or () for name in entry.split(";")[:1]}
    for key, decoder in source.decode.fields.items():
        if key.lower() not in ends | named and key not in source.rename:
            text = f"`decode: {{{key}: {decoder}}}` decodes nothing: the files of `{source.name}` are {there}"
            yield Advice("W504", f"{text}; write the extension that is there", source)
    scaled = any(each.scale is not None for each in spec.sources)  # then pictures are decoded in all sources
    for name in () if scaled else source.decode.names:
        base = split_decoder(name)[0]
        lasts = {end.rpartition(".")[2] for end in ends}
        if ":" not in name and base != RAW and not any(BY_NAME[base].takes(base, last) for last in lasts):
            text = f"`decode: {name}` decodes nothing: the files of `{source.name}` are {there}"
            yield Advice("W504", f"{text}; write a decoder of what is there", source)


def _absent(spec: Spec, source: Source, suffixes: frozenset[str]) -> Iterator[str]:
    """The fields that the keys ask for, and no file of the shard gives."""

    def gives(names: Iterable[str], known: Iterable[str]) -> bool:
        return any(MAGIC.search(name) or name.lower() in known for name in names)

    for entry in source.extensions or ():
        if not gives(entry.split(";"), suffixes):
            yield entry
    names = (
        suffixes
        if source.extensions is None
        else {entry.split(";")[0].lower() for entry in source.extensions if not MAGIC.search(entry)}
    )
    for new, olds in source.rename.items():
        if source.extensions is None and not gives(olds, suffixes):
            yield ";".join(olds)
        names = names - {old.lower() for old in olds} | {new.lower()}
    if source.extensions is None and not source.map and not spec.map:
        known = names | {tag.lower() for tag in source.tags}
        for entry in (*(spec.fields or ()), *(spec.to_tuple or ())):
            if not entry.startswith("__") and not gives(entry.split(";"), known):
                yield entry


def _about_cluster(source: Source, shards: UrlSequence, storage: Storage) -> Iterator[Advice]:
    """Buckets that are read past the cluster that AIS_ENDPOINT names."""
    if storage.ais is None or not storage.environment.ais.endpoints:
        return
    try:
        scheme = scheme_of(storage.resolve(shards[0]).location)
    except WdspecError:
        return
    if scheme in AIS_PROVIDERS and scheme != "ais" and not storage.ais.schemes - {"ais"}:
        text = f"AIS_ENDPOINT is set, but the shards of `{source.name}` are read from `{scheme}://` past the cluster"
        yield Advice(
            "W506", f"{text}; set USE_AIS_FOR={scheme} too, or `aistore: {{use_for: {scheme}}}`", source
        )


def _about_rules(shards: Shards) -> Iterator[Advice]:
    """Rules of WDS_REWRITE that change no shard."""
    rules = next((storage.environment.rules for storage in shards.storages.values()), ())
    urls = [urls[index].text for urls in shards.lists.values() for index in _spread(len(urls), MOST_TRIED)]
    for rule in rules:
        if urls and not any(rule.apply(url) != url for url in urls):
            text = f"{rule.origin}: no shard begins with `{rule.pattern}`, so the rule changes nothing"
            yield Advice("W505", f"{text}; the first shard is `{urls[0]}`")


def _spread(count: int, most: int) -> Sequence[int]:
    """So many indexes of a list, from the first to the last."""
    return range(count) if count <= most else [each * (count - 1) // (most - 1) for each in range(most)]
