"""Advice on the data of a spec: missing shards, fields without files, rules and libraries without effect, and more."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from wdspec.advice.facts import Advice, Advices
from wdspec.advice.measure import Measure, SourceFiles
from wdspec.base.amounts import pluralize
from wdspec.base.errors import UsageError, WdspecError, did_you_mean
from wdspec.base.user_code import find_mistake
from wdspec.shards.shards import Shards
from wdspec.spec.language.decoders import (
    BY_NAME,
    RAW,
    endings,
    require_libraries,
    split_decoder,
    split_packing,
)
from wdspec.spec.problems import list_names
from wdspec.spec.rules.fields import decoders_of, field_names
from wdspec.spec.rules.rule import rule
from wdspec.spec.spec import Source, Spec
from wdspec.stores.filesystems import find_missing
from wdspec.urls.urls import AIS_PROVIDERS, FSSPEC, MAGIC, row_of, scheme_of, spread

MOST_TRIED = 100
"""Shards of a source on which the rules of WDS_REWRITE are tried."""

Measures = Mapping[str, Measure]
Files = Mapping[str, SourceFiles]


@rule("W501", needs="spec files")
def missing_shards(spec: Spec, files: Files) -> Advices:
    """Local shards that do not exist."""
    for source in spec.sources:
        looked_at, is_whole, _, missing, _ = files[source.name]
        if missing:
            seen = f"{len(missing):,} of {pluralize(looked_at, 'shard')}{'' if is_whole else ' checked'}"
            which = f"{seen} of `{source.name}` do" if looked_at > 1 else f"the shard of `{source.name}` does"
            message = f"{which} not exist, the first is `{missing[0][0]}`"
            yield Advice(message, _describe_folder(missing[0][1]), source)


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
    return f"{folder} has {list_names(similar, 3)}; compare the pattern with these names"


@rule("W502", needs="errors")
def unreadable_shards(errors: Iterable[tuple[Source, WdspecError]]) -> Advices:
    """Errors of reading the first shards."""
    yield from (Advice(str(error), source=source) for source, error in errors)


@rule("W502", needs="spec files")
def directories(spec: Spec, files: Files) -> Advices:
    """Directories in place of shards."""
    for source in spec.sources:
        for url in files[source.name].directories:
            yield Advice(
                f"`{url}` is a directory, but is read as one shard",
                f"write `{url}/` for all shards in it",
                source,
            )


@rule("W503", needs="spec measures")
def absent_fields(spec: Spec, measures: Measures) -> Advices:
    """Fields that are requested, but have no file in the first shard."""
    for source, suffixes in _suffixes(spec, measures):
        for entry in _absent(spec, source, suffixes) if source.missing == "error" else ():
            text = f"no sample of the first shard of `{source.name}` has the field `{entry}`; its files are "
            hint = did_you_mean(entry, suffixes) or "rename one of these, or set `missing: skip`"
            yield Advice(text + _existing(suffixes), hint, source)


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


@rule("W380", needs="spec measures")
def replacing_tags(spec: Spec, measures: Measures) -> Advices:
    """Tags with the names of fields of the first shard."""
    for source, suffixes in _suffixes(spec, measures):
        renamed = {old.lower() for olds in source.rename.values() for old in olds}
        for name in sorted(source.tags.keys() & (suffixes - renamed)) if source.extensions is None else ():
            text = f"the tag `{name}` of `{source.name}` replaces the field `{name}` of its samples"
            yield Advice(text, "choose another name for the tag", source)


@rule("W504", needs="spec measures")
def idle_decoders(spec: Spec, measures: Measures) -> Advices:
    """Decoders of fields or files that the first shard does not have."""
    scaled = any(each.scale is not None for each in spec.sources)  # then images are decoded in all sources
    for source, suffixes in _suffixes(spec, measures):
        if source.decode is None:
            continue
        ends = {
            end
            for suffix in suffixes
            for plain in (suffix, split_packing(suffix)[0])
            for end in endings(plain)
        }
        seen = f"decodes nothing: the files of `{source.name}` are {_existing(suffixes)}"
        named = {name.lower() for entry in source.extensions or () for name in entry.split(";")[:1]}
        for key, decoder in source.decode.fields.items():
            if key.lower() not in ends | named and key not in source.rename:
                yield Advice(
                    f"`decode: {{{key}: {decoder}}}` {seen}", "use the extension of an existing file", source
                )
        lasts = {end.rpartition(".")[2] for end in ends}
        for name in () if scaled else source.decode.names:
            base = split_decoder(name)[0]
            if ":" not in name and base != RAW and not any(BY_NAME[base].takes(base, last) for last in lasts):
                yield Advice(f"`decode: {name}` {seen}", "choose a decoder of existing files", source)


def _suffixes(spec: Spec, measures: Measures) -> Iterator[tuple[Source, frozenset[str]]]:
    """The sources whose files are known, with the suffixes of these."""
    for source in spec.sources:
        if source.name in measures and (suffixes := measures[source.name].suffixes):
            yield source, suffixes


def _existing(suffixes: Iterable[str]) -> str:
    return list_names(sorted(suffixes), 8)


@rule("W505", needs="shards")
def idle_rewrites(shards: Shards) -> Advices:
    """Rules of WDS_REWRITE without effect."""
    rules = next((storage.environment.rules for storage in shards.storages.values()), ())
    urls = [urls[index].text for urls in shards.lists.values() for index in spread(len(urls), MOST_TRIED)]
    for each in rules:
        if urls and not any(each.apply(url) != url for url in urls):
            text = f"{each.origin}: no shard starts with `{each.pattern}`, so the rule has no effect"
            yield Advice(text, f"the first shard is `{urls[0]}`")


@rule("W506", needs="spec shards")
def unused_clusters(spec: Spec, shards: Shards) -> Advices:
    """Buckets that are read without the cluster that AIS_ENDPOINT names."""
    for source in spec.sources:
        urls, storage = shards.lists[source.name], shards.storages[source.name]
        if not urls or storage.ais is None or not storage.environment.ais.endpoints:
            continue
        with suppress(WdspecError):
            scheme = scheme_of(storage.resolve(urls[0]).location)
            if scheme in AIS_PROVIDERS and scheme != "ais" and not storage.ais.schemes - {"ais"}:
                text = f"AIS_ENDPOINT is set, but the shards of `{source.name}` are read from `{scheme}://` directly"
                hint = f"also set USE_AIS_FOR={scheme}, or `aistore: {{use_for: {scheme}}}`"
                yield Advice(text, hint, source)


@rule("W508", needs="spec files")
def repeated_files(spec: Spec, files: Files) -> Advices:
    """Files that are several shards."""
    for source in spec.sources:
        if (repeated := files[source.name].repeated) is not None:
            url, owner = repeated
            where = f"listed twice in `{owner}`" if owner == source.name else f"also a shard of `{owner}`"
            yield Advice(f"`{url}` is {where}", "list each file once, in one source", source)


@rule("W514", needs="spec")
def missing_functions(spec: Spec) -> Advices:
    """Functions that their modules do not define."""
    for role, names in spec.functions.items():
        for name in dict.fromkeys(names):
            if (mistake := find_mistake(name, spec.folder)) is not None:
                yield Advice(f"`{role}: {name}` cannot be imported: {mistake}")


@rule("W515", needs="spec shards")
def missing_libraries(spec: Spec, shards: Shards) -> Advices:
    """Libraries of stores and decoders that are not installed, also of those that are chosen by extension."""
    for scheme in dict.fromkeys(_store_schemes(shards)):
        if (missing := find_missing(scheme)) is not None:
            yield Advice(missing)
    for name in dict.fromkeys(each for source in spec.sources for each in _decoders(source)):
        try:
            require_libraries(name)
        except UsageError as error:
            yield Advice(error.message)


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
