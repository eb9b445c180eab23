"""Advice on the data of a spec: missing shards, fields without files, rules and libraries without effect, and more."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase

from wdspec.advice.class_names import describe_unknown
from wdspec.advice.facts import Advice, Advices
from wdspec.advice.measure import KeptSamples, Measure, SourceFiles, UnfoundTable
from wdspec.base.amounts import join_names, pluralize
from wdspec.base.errors import UsageError, WdspecError, did_you_mean
from wdspec.base.user_code import find_mistake
from wdspec.fields.made_field import build_step
from wdspec.read.left import describe_left
from wdspec.shards.shards import Shards
from wdspec.spec.language.decoders import (
    BY_NAME,
    RAW,
    endings,
    require_libraries,
    split_decoder,
    split_packing,
)
from wdspec.spec.language.making import Label
from wdspec.spec.measurements import ROUNDED
from wdspec.spec.problems import list_names
from wdspec.spec.rules.fields import decoders_of, describe_interpolated, field_names, files_of, image_of
from wdspec.spec.rules.rule import rule
from wdspec.spec.spec import Source, Spec
from wdspec.stores.filesystems import find_missing
from wdspec.stores.local import advise_on_classes
from wdspec.urls.braces import Braces
from wdspec.urls.urls import AIS_PROVIDERS, FSSPEC, MAGIC, ShardUrl, row_of, scheme_of, spread

MOST_TRIED = 100
"""Shards of a source on which the rules of WDS_REWRITE are tried."""

Measures = Mapping[str, Measure]
Files = Mapping[str, SourceFiles]


@rule("W501", needs="spec files shards")
def missing_shards(spec: Spec, files: Files, shards: Shards) -> Advices:
    """Local shards, and folders of the objects that samples name, that do not exist."""
    for source in spec.collections:
        yield from _missing_roots(source, shards)
        looked_at, is_whole, _, missing, _ = files[source.name]
        if missing:
            seen = f"{len(missing):,} of {pluralize(looked_at, 'shard')}{'' if is_whole else ' checked'}"
            which = f"{seen} of `{source.name}` do" if looked_at > 1 else f"the shard of `{source.name}` does"
            message = f"{which} not exist, the first is `{missing[0][0]}`"
            yield Advice(
                message,
                _find_elsewhere(source, missing[0][1]) or _describe_folder(missing[0][1], source),
                source,
            )


def _missing_roots(source: Source, shards: Shards) -> Advices:
    """Local roots of `fetch` that do not exist: whatever `missing` says, reading an object there is an error."""
    for name, entry in source.fetch.items():
        with suppress(WdspecError):
            storage = shards.storages[source.name]
            place = "" if entry.root is None else storage.resolve(ShardUrl(entry.root, "/")).location
            if place and not scheme_of(place) and not os.path.isdir(place):
                text = f"the `root` of `fetch: {name}` does not exist: `{entry.root}`"
                yield Advice(text, "correct the path, which is relative to the spec", source)


def _find_elsewhere(source: Source, path: str) -> str:
    """What to write for shards that exist below the working directory, or above the folder of the spec; else empty."""
    inner = os.path.relpath(path, source.base)
    if not source.base or inner.startswith("..") or os.path.isabs(inner):
        return ""
    above = [os.path.normpath(os.path.join(source.base, *[".."] * level)) for level in range(1, 4)]
    for folder in dict.fromkeys((os.getcwd(), *above)):
        texts = (
            text for text in source.shards or () if not scheme_of(text) and not text.startswith(("/", "@"))
        )
        text = next(texts, None)
        if text is not None and folder != source.base and os.path.exists(os.path.join(folder, inner)):
            seen = os.path.relpath(path)
            written = f"{os.path.relpath(folder, source.base)}/{text}"
            return f"paths are relative to the spec, so this is `{seen}`: write `shards: {written}`"
    return ""


def _describe_folder(path: str, source: Source) -> str:
    """What exists in place of a missing file of a source, and what to do."""
    folder = os.path.dirname(path)
    while folder != "/" and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    if folder != os.path.dirname(path):
        return (
            f"the directory {os.path.dirname(path)} does not exist; paths in a spec are relative to the spec"
        )
    with os.scandir(folder) as entries:
        names = sorted(name for _, entry in zip(range(1000), entries, strict=False) if (name := entry.name))
    for pattern in source.shards or ():
        if (meant := _widen_ranges(pattern, os.path.basename(path), names)) is not None:
            return f"{folder} has {list_names(names, 3)}: write `shards: {meant}`"
    ending = os.path.splitext(path)[1]
    similar = [name for name in names if name.endswith(ending)] or names
    return f"{folder} has {list_names(similar, 3)}; compare the pattern with these names"


def _widen_ranges(pattern: str, missing: str, names: Iterable[str]) -> str | None:
    """The pattern with as many digits as a file has, whose numbers are those of the missing one; None without any."""
    folder, slash, name = pattern.rpartition("/")
    pieces = _RANGE.split(name)  # text, first, last, text, …
    texts = pieces[::3]
    form = r"(\d+)".join(map(re.escape, texts))
    wanted = re.fullmatch(form, missing)
    if len(texts) == 1 or wanted is None:
        return None
    for each in names:
        found = re.fullmatch(form, each)
        if found is None or list(map(int, found.groups())) != list(map(int, wanted.groups())):
            continue
        written = texts[0]
        for first, last, number, text in zip(
            pieces[1::3], pieces[2::3], found.groups(), texts[1:], strict=True
        ):
            width = len(number) if number.startswith("0") else 0
            written += "{" + "..".join(str(int(end)).zfill(width) for end in (first, last)) + "}" + text
        return f"{folder}{slash}{written}"
    return None


_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


@rule("W502", needs="errors")
def unreadable_shards(errors: Iterable[tuple[Source, WdspecError]]) -> Advices:
    """Errors of reading the first shards."""
    yield from (Advice(str(error), source=source) for source, error in errors)


@rule("W502", needs="spec files")
def directories(spec: Spec, files: Files) -> Advices:
    """Directories in place of shards."""
    for source in spec.collections:
        for url, path in files[source.name].directories:
            yield Advice(
                f"`{url}` is a directory, but is read as one shard",
                advise_on_classes(path) or f"write `{url}/` for all shards in it",
                source,
            )


@rule("W441", needs="spec files")
def unusable_steps(spec: Spec, files: Files) -> Advices:
    """Steps of `make` whose files are here, but cannot be used."""
    seen = set[str]()
    for source in spec.collections:
        for name, recipe in source.make.items():
            written = recipe.model_dump_json()
            if written in seen or any("://" in path for path in recipe.files.values()):
                continue
            seen.add(written)
            try:
                build_step(recipe)
            except UsageError:
                continue  # a library is not installed, which is said elsewhere
            except WdspecError as error:
                yield Advice(f"`make: {name}`: {error}", source=source)


@rule("W503", needs="spec measures")
def absent_fields(spec: Spec, measures: Measures) -> Advices:
    """Fields that are requested, but have no file in the first shard."""
    for source, suffixes in _suffixes(spec, measures):
        for entry in _absent(spec, source, suffixes) if source.missing != "none" else ():
            then = ", so `missing: skip` drops all of them" if source.missing == "skip" else ""
            text = f"no sample of the first shard of `{source.name}` has the field `{entry}`{then}; its files are "
            hint = (
                _describe_split(entry, source, suffixes)
                or did_you_mean(entry, suffixes)
                or "name one of these, or set `missing: none` to get None"
            )
            yield Advice(text + _existing(suffixes), hint, source)


def _describe_split(entry: str, source: Source, suffixes: Iterable[str]) -> str:
    """What to do about a field that is only the last part of suffixes: these are named, or keys have dots."""
    longer = _longer(entry, suffixes)
    if (
        len(longer) > 1
        and len({_DIGITS.sub("0", each) for each in longer}) == 1
        and source.key.kind == "first_dot"
    ):
        return "if these numbers belong to the keys, write `key: last_dot`: keys then end at the last dot"
    if len(longer) != 1 or source.extensions is None:
        return ""
    entries = []
    for each in source.extensions:
        found = () if {part.lower() for part in each.split(";")} & {*suffixes} else _longer(each, suffixes)
        entries.append(found[0] if len(found) == 1 else each)
    return f"write `extensions: {' '.join(entries)}`"


def _longer(entry: str, suffixes: Iterable[str]) -> list[str]:
    """The suffixes that end with a field."""
    ends = tuple(f".{part.lower()}" for part in entry.split(";"))
    return sorted(suffix for suffix in suffixes if suffix.endswith(ends))


_DIGITS = re.compile(r"\d+")


@rule("W393", needs="spec selected")
def few_left(spec: Spec, selected: Mapping[str, KeptSamples]) -> Advices:
    """Sources of which the selection keeps nothing, or little."""
    for source in spec.collections:
        if (kept := selected.get(source.name)) is None:
            continue
        left_out = kept.looked_at - kept.kept
        causes = kept.causes or {join_names(_selecting_keys(source)): left_out}
        basis = f"estimated from {pluralize(kept.shards, 'shard')}" if kept.by == "sample" else ""
        if kept.causes or not kept.kept or not {"keys", "subset"} & {*_selecting_keys(source)}:
            left = describe_left(source, kept.looked_at, kept.kept, causes, basis)
            if left is not None:
                yield Advice(left.message, kept.remedy or left.hint, source)


@rule("W394", needs="spec selected")
def unknown_keys(spec: Spec, selected: Mapping[str, KeptSamples]) -> Advices:
    """Entries of `keys` and `exclude` that are the key of no sample of a source."""
    lists = [entries for each in spec.collections for entries in (each.only_keys, each.exclude) if entries]
    for source in spec.collections:
        for found in selected[source.name].unknown if source.name in selected else ():
            entries = source.only_keys if found.key == "keys" else source.exclude
            if entries is None or found.is_usual:
                continue
            if lists.count(entries) == 1:  # otherwise, they may be keys of the other source
                yield Advice(found.describe(source.name), found.hint, source)


def _selecting_keys(source: Source) -> list[str]:
    """The keys of a source that select samples."""
    keys = {
        "where": source.where,
        "subset": source.subset,
        "keys": source.only_keys,
        "exclude": source.exclude,
    }
    return [name for name, value in keys.items() if value is not None]


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
        known = names | {each.lower() for each in (*source.tags, *source.made_names)}
        packed = () if spec.batch is None or spec.batch.pack is None or spec.stage else spec.batch.pack.fields
        for entry in dict.fromkeys((*(spec.fields or ()), *(spec.to_tuple or ()), *packed)):
            if not entry.startswith("__") and not exists(entry.split(";"), known):
                yield entry


@rule("W459", needs="spec selected")
def names_without_class(spec: Spec, selected: Mapping[str, KeptSamples]) -> Advices:
    """Names that are no class, of fields that a selection reads, which may leave out all samples with them."""
    for source in spec.collections:
        kept = selected.get(source.name)
        for field, counts in kept.names.items() if kept is not None else ():
            recipe = source.make[field]
            assert isinstance(recipe, Label), "only the names of labels are counted"
            what, hint = describe_unknown(counts, recipe)
            of = f", in {pluralize(kept.looked_at, 'sample')}" * (kept.by == "sample") if kept else ""
            yield Advice(f"`make: {field}` of `{source.name}`: {what}{of}", hint, source)


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
                row = BY_NAME.get(base := split_decoder(decoder)[0])
                fit = sorted(end for end in suffixes if row and row.takes(base, end.rpartition(".")[2]))
                meant = ", ".join(f"{end}: {decoder}" for end in fit[:3])
                hint = f"write `{meant}` in `decode`" if meant else "use the extension of an existing file"
                yield Advice(f"`decode: {{{key}: {decoder}}}` {seen}", hint, source)
        lasts = {end.rpartition(".")[2] for end in ends}
        for name in () if scaled else source.decode.names:
            if ":" in name or (base := split_decoder(name)[0]) == RAW:
                continue
            row = BY_NAME[base]
            decodes = any(row.takes(base, last) or (row.by_default and last in row.names) for last in lasts)
            if not decodes:
                yield Advice(f"`decode: {name}` {seen}", "choose a decoder of existing files", source)


def _suffixes(spec: Spec, measures: Measures) -> Iterator[tuple[Source, frozenset[str]]]:
    """The sources whose files are known, with the suffixes of these, and the fields that are joined to them."""
    for source in spec.sources:
        if any(join.fields is None or any(map(MAGIC.search, join.fields)) for join in source.join):
            continue  # only the shards of the join say what it adds
        if source.name in measures and (suffixes := measures[source.name].suffixes):
            names = (each.names for parts in (source.join, source.lookup) for each in parts)
            yield source, suffixes.union(name.lower() for part in names for name in part)


def _existing(suffixes: Iterable[str]) -> str:
    return list_names(sorted(suffixes), 8)


@rule("W520", needs="spec")
def interpolated_labels(spec: Spec) -> Advices:
    """Images that have the name of labels, and are resized by interpolation."""
    for source in spec.sources:
        yield from (Advice(message, hint, source) for _, message, hint in describe_interpolated(source))


@rule("W521", needs="spec measures shards")
def samples_of_other_shards(spec: Spec, measures: Measures, shards: Shards) -> Advices:
    """Sources whose `samples` is not what their shards have, if the others are like the first one."""
    for source in spec.sources if spec.stats is None else ():
        count, measured = len(shards.lists[source.name]), measures.get(source.name)
        if source.samples is None or measured is None or not measured.whole or "dropped" in source.drops:
            continue
        least, most = sorted((source.samples, measured.samples * count))
        if most - least > ROUNDED * most if count == 1 else 0 < 2 * least <= most:
            of = "only shard" if count == 1 else f"first of {count:,} shards"
            message = (
                f"`samples: {source.samples}` of `{source.name}`, but its {of} has {measured.samples:,.6g}"
            )
            hint = f"write `samples: {measured.samples * count:.0f}` if the others have as many: it is for all shards"
            yield Advice(message, hint, source)


@rule("W522", needs="spec measures")
def shortened_values(spec: Spec, measures: Measures) -> Advices:
    """Grey images of 16 bits of which a decoder keeps 8."""
    for source in spec.sources:
        deep = measures[source.name].deep if source.name in measures else frozenset()
        for field in (field_names(source) or ()) if deep else ():
            for suffix, decoder in files_of(source, field):
                image = image_of(decoder)
                if suffix.lower() not in deep or image is None or image.dtype != "uint8":
                    continue
                base, plus, options = str(decoder).partition("+")
                twin = {"numpy": f"{base.removesuffix('8')}16", "torch": base.removesuffix("8")}.get(
                    image.container
                )
                if image.mode != "L":
                    twin = None if twin is None else twin.replace(image.mode.lower(), "l")
                message = (
                    f"`{field}` of `{source.name}` has grey images of 16 bits, of which `{decoder}` keeps 8"
                )
                hint = f"write `{field}: {twin or 'l16'}{plus}{options}` in `decode` if all of them matter, as in depth"
                yield Advice(message, hint, source)


@rule("W523", needs="spec unfound")
def useless_tables(spec: Spec, unfound: Mapping[str, Sequence[UnfoundTable]]) -> Advices:
    """Tables of `lookup` that have no row for any of the first samples."""
    for source in spec.sources:
        for each in unfound.get(source.name, ()):
            message = (
                f"`lookup` finds no row of `{each.table}` for the first {pluralize(each.samples, 'sample')} of "
                f"`{source.name}`: it looks for keys such as {each.wanted!r:.80}"
            )
            message += f", but its keys are such as {each.example!r:.80}" if each.example else ""
            hint = "compare the keys of the table with these"
            yield Advice(message, f"write `key: {each.column}`" if each.column else hint, source)


@rule("W524", needs="spec shards")
def joins_in_another_order(spec: Spec, shards: Shards) -> Advices:
    """Joins whose names would match those of the source in another order."""
    for source in spec.sources:
        listed = shards.lists[source.name]
        if not 1 < len(listed) <= MOST_COMPARED:
            continue
        own = list(_varying_parts([url.text for url in listed]))
        for join, urls in zip(source.join, listed.joins, strict=True):
            texts = [url.text for url in urls]
            other = list(_varying_parts(texts))
            if own == other or len({*own}) < len(own) or sorted(own) != sorted(other):
                continue
            at = next(at for at, (one, two) in enumerate(zip(own, other, strict=True)) if one != two)
            place = dict(zip(other, texts, strict=True))
            ordered = [place[parts] for parts in own]
            yield Advice(
                f"`join` of `{source.name}` reads `{texts[at]}` with `{listed[at].text}`, whose name is like that of "
                f"`{ordered[at]}`: the n-th shards of both belong together",
                f"write `shards: [{', '.join(_as_patterns(join.shards, ordered))}]` in `join`",
                source,
            )


MOST_COMPARED = 10_000
"""Shards of a join whose names are compared with those of the source."""
_MOST_WRITTEN = 8
_PARTS = re.compile(r"\d+|[^\W\d_]+")


def _varying_parts(texts: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the words and numbers in each name that not all names have, sorted."""
    parts = [[each.lstrip("0") or "0" for each in _PARTS.findall(text)] for text in texts]
    common = set.intersection(*map(set, parts))
    yield from (tuple(sorted(each for each in found if each not in common)) for found in parts)


def _as_patterns(patterns: Sequence[str], ordered: Sequence[str]) -> list[str]:
    """Write shards in an order: with the braces of their pattern but one, or one by one."""
    if len(patterns) == 1:
        for found in _BRACES.finditer(patterns[0]):
            before, after = patterns[0][: found.start()], patterns[0][found.end() :]
            tried = [f"{before}{each}{after}" for each in Braces(found[0])][: _MOST_WRITTEN + 1]
            if len(tried) <= _MOST_WRITTEN and [text for each in tried for text in Braces(each)] == [
                *ordered
            ]:
                return [f"'{each}'" for each in tried]
    return [*ordered[:_MOST_WRITTEN], *("…" for _ in ordered[_MOST_WRITTEN:][:1])]


_BRACES = re.compile(r"\{[^{}]*\}")


@rule("W302", needs="spec shards")
def held_out_shards(spec: Spec, shards: Shards) -> Advices:
    """Globs that list shards whose names say that they are for evaluation, next to others."""
    for source in spec.sources:
        patterns = [text for text in source.shards or () if MAGIC.search(text)]
        if len(patterns) != 1 or len(source.shards or ()) != 1 or source.subset is not None:
            continue
        listed = [url.text for url in shards.lists[source.name][:MOST_COMPARED]]
        known = _words_of(f"{patterns[0]} {source.name}")
        held = [text for text in listed if _HELD_OUT & (_words_of(text) - known)]
        others = [text for text in listed if text not in held]
        if held and others:
            meant = _narrow(patterns[0], others, held)
            message = f"`shards: {patterns[0]}` of `{source.name}` also lists `{held[0]}`, for evaluation by its name"
            hint = f"write `shards: {meant}`" if meant else "list the others by a narrower pattern"
            yield Advice(message, f"{hint}, or name both kinds if this is meant", source)


_HELD_OUT = frozenset(
    {"val", "valid", "validation", "test", "eval", "evaluation", "dev", "heldout", "holdout"}
)


def _words_of(text: str) -> set[str]:
    return set(re.findall(r"[^\W\d_]+", text.rpartition("/")[2].lower()))


def _narrow(pattern: str, wanted: Sequence[str], others: Iterable[str]) -> str | None:
    """A pattern that matches some names and none of others: as it is, with more of what the names begin with."""
    first, last = min(wanted), max(wanted)
    ends = (at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1])
    start = first[: next(ends, len(first))].rstrip("0123456789")
    narrow = f"{start}*{pattern.rpartition('*')[2]}"
    matches = [fnmatchcase(text, narrow) for text in wanted]
    return narrow if all(matches) and not any(fnmatchcase(text, narrow) for text in others) else None


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
    for source in spec.collections:
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
    for name in dict.fromkeys(each for source in spec.collections for each in _decoders(source)):
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
