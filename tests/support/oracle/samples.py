"""The samples of one source: parts that are merged by key, the selection, values of expressions, and the steps."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import math
import os
import random
import re
import wave
from contextlib import contextmanager, nullcontext
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock
from zlib import crc32

import numpy as np
import torch
from PIL import Image

import wdspec
from oracle.data import LETTERS, TALK
from oracle.files import Damage, format_of, list_shards, read_lookup, read_shard
from wdspec.planning.keys import GOLDEN, MASK, key64, random64
from wdspec.spec.language.expressions import MISSING, PathBeforeMap, parse_expression
from wdspec.spec.language.making import names_made


class RunError(Exception):
    """The run ends here with an error."""


class LeftOutError(Exception):
    """A sample is left out, and is no error: what a field is made of is missing, or a document is empty."""


class SampleError(Exception):
    """A sample cannot be read, decoded or measured, for this cause of `errors: {skip: …}`."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass
class Part:
    """A raw sample with the fields of its partners and of the rows of its tables."""

    key: str
    url: str
    files: dict[str, Any]
    suffixes: dict[str, str] = field(default_factory=dict)
    """Fields that `join` has renamed → the suffix of the file, which chooses the decoder."""
    is_dropped: bool = False
    """Whether `missing: skip` of a join or a lookup leaves it out."""
    reading: int = 0
    """The pass, or the copy, in which it is read, if fields are drawn by that."""


_IMAGES = {"jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm", "webp", "bmp", "gif", "tif", "tiff"}
_NOT_DECODED = {*_IMAGES, "wav", "flac", "mp3", "ogg", "mp4", "avi", "mkv", "mov", "webm"}
_GLOBALS = 0x5DEECE66D2B7E151


class SourceReader:
    """Reads a source of a spec."""

    def __init__(self, spec, source) -> None:
        self.spec, self.source, self.name = spec, source, source.name
        self.shards = list_shards(source.shards, source.base)
        self._partners = [list_shards(join.shards, join.base) for join in source.join]
        self._tables = [read_lookup(lookup) for lookup in source.lookup]
        self._columns = {name for lookup in source.lookup for name in lookup.names}
        self._asides = source.asides(spec.costs) if self.has_selection else frozenset()
        self._keys = _read_keys(source.only_keys, source.base)
        self._exclude = _read_keys(source.exclude, source.base)
        self._own: dict[int, list[Any]] = {}
        self._homes = dict(names_made(source.make))
        self._is_drawn = any(each.step in _DRAWING for each in source.make.values())
        self._parts: dict[Any, list[Any]] = {}
        self._kept: dict[tuple[int, bool, bool], bool] = {}
        self._arranged: dict[Any, Any] = {}
        self._values: dict[int, Any] = {}
        self.companions: dict[str, Any] = {}
        self._find_needed()

    def beside(self, companions):
        """Return this reader for a sample that has these companions: field → companion, a list of them, or None."""
        other = copy(self)
        other.companions = companions
        return other

    def _find_needed(self):
        spec, source = self.spec, self.source
        entries = [*(spec.fields or ()), *(spec.to_tuple or ())]
        required = [entry for entry in entries if not entry.startswith("__")]
        added = any(name in source.tags for entry in required for name in entry.split(";"))
        may_be_added = bool(source.map or spec.map) or added
        self._early, self._late = ([], required) if may_be_added else (required, [])
        self._only = None
        self._making = dict(source.make)
        delivered = spec.to_tuple or spec.fields
        checks = source.expect is not None and source.expect.fields
        if delivered and not may_be_added and source.select is None and not checks:
            measured = [*spec.measured_fields, *source.selecting_fields(spec.costs)]
            self._only = {name for entry in [*delivered, *measured] for name in entry.split(";")}
            wanted, pending = {}, [name for name in self._only if name in self._homes]
            while pending:  # what is not wanted, and made of nothing else, is not made
                name = self._homes[pending.pop()]
                wanted[name] = source.make[name]
                pending += [each for each, _ in _made_of(source.make[name]) if each in self._homes]
            self._making = wanted
        origins = [each for recipe in self._making.values() for each in _made_of(recipe)]
        self._early = [each for each in self._early if self._homes.keys().isdisjoint(each.split(";"))]
        needed = [name for name, is_optional in origins if not is_optional]
        self._early += [name for name in dict.fromkeys(needed) if name not in self._homes]
        if self._only is not None:
            self._only |= {name for name, _ in origins}

    # Raw samples

    @property
    def has_selection(self):
        """Whether `where`, `subset`, `keys` or `exclude` leave samples out before they are numbered."""
        source = self.source
        return any(
            each is not None for each in (source.where, source.subset, source.only_keys, source.exclude)
        )

    def own(self, shard):
        """Return the entries of a shard itself, without its partners."""
        if shard not in self._own:
            name, path = self.shards[shard]
            kind = format_of(name, self.source.format)
            try:
                entries = read_shard(
                    name, path, kind=kind, key_rule=self.source.key, tokens=self.source.tokens
                )
            except OSError:
                entries = [Damage(ends=True)]
            self._own[shard] = entries
        return self._own[shard]

    def parts(self, shard, reading=0):
        """Return a `Part` or a `Damage` for each entry of a shard; what damage ends comes last."""
        which = shard, reading if self._is_drawn else 0
        if which not in self._parts:
            found = self._merge(shard) if which[1] == 0 else self.parts(shard)
            self._parts[which] = [
                replace(each, reading=which[1]) if isinstance(each, Part) else each for each in found
            ]
        return self._parts[which]

    def _merge(self, shard):
        name, _ = self.shards[shard]
        parts: list[Any] = []
        partners = []
        for join, shards in zip(self.source.join, self._partners, strict=True):
            partner_name, path = shards[shard]
            kind = format_of(partner_name, join.format)
            try:
                found = read_shard(partner_name, path, kind=kind, key_rule=self.source.key, tokens=None)
            except OSError:
                return [Damage(ends=True) for _ in self.own(shard)]
            partners.append(_Partner(join, found))
        is_over = False
        for raw in self.own(shard):
            if isinstance(raw, Damage):
                parts.append(raw)
                continue
            if is_over:
                parts.append(Damage(raw.key))
                continue
            part = Part(raw.key, name, dict(raw.files))
            try:
                for partner in partners:
                    self._join(part, partner)
                for lookup, table in zip(self.source.lookup, self._tables, strict=True):
                    if not part.is_dropped:
                        self._look_up(part, lookup, table)
            except _FatalError:
                is_over = True
                parts.append(Damage(raw.key))
            except SampleError:
                parts.append(Damage(raw.key))
            else:
                parts.append(part)
        return parts

    def _join(self, part, partner):
        join = partner.join
        other = partner.find(part.key) if join.on is None else partner.find_named(self._name_of(part, join))
        names = {old.lower(): new for new, old in join.rename.items()}
        taken = None if join.fields is None else [each.lower() for each in join.fields]
        if other is not None:
            files = {
                suffix: value for suffix, value in other.files.items() if taken is None or suffix in taken
            }
            if taken is None or all(suffix in files for suffix in taken):
                for suffix, value in files.items():
                    new = names.get(suffix, suffix)
                    if taken is None and not self._is_needed(new):
                        continue
                    if new in part.files:
                        raise SampleError("shard", f"both parts have `{new}`")
                    part.files[new] = value
                    if new != suffix:
                        part.suffixes[new] = suffix
                return
        if join.missing == "error" and not part.is_dropped:
            raise SampleError("shard", f"the partner of {part.key} is missing")
        if join.missing == "skip" or part.is_dropped:
            part.is_dropped = True
            return
        for name in join.names:
            part.files.setdefault(name, None)

    def _name_of(self, part, join):
        """The name of the partner's sample (docs/joins.md, by name); None if there is none."""
        if join.on == "__key__":
            return part.key
        path = parse_expression(join.on).paths[0]
        if path[0] not in part.files:
            return None
        return _walk(self._decode(path[0], path[0], part.files[path[0]]), path[1:], True)

    def _is_needed(self, suffix):
        source = self.source
        if source.extensions is None or suffix in self._asides:
            return True
        return any(fnmatchcase(suffix, each.lower()) for entry in _entries(source) for each in entry)

    def _look_up(self, part, lookup, table):
        key = part.key
        if lookup.on != "__key__":
            path = parse_expression(lookup.on).paths[0]
            key = None
            if path[0] in part.files:
                value = _walk(self._decode(path[0], path[0], part.files[path[0]]), path[1:], True)
                key = None if value is MISSING or value is None else str(value)
        row = table.get(key)
        if row is not None:
            for name in row:
                if name in part.files:
                    raise SampleError("shard", f"both parts have `{name}`")
            part.files.update(row)
        elif lookup.missing == "error":
            raise SampleError("shard", f"the table has no row {key}")
        elif lookup.missing == "skip":
            part.is_dropped = True
        else:
            for name in lookup.names:
                part.files.setdefault(name, None)

    # Which samples are kept

    @property
    def _subset_by_key(self):
        return self.source.subset is not None and self.source.subset.of is None

    @property
    def is_kept_by_key(self):
        """Whether some tests of the selection need only keys."""
        by_list = (self._keys is not None or self._exclude is not None) and not self.source.keys_of
        return by_list or self._subset_by_key

    @cached_property
    def names(self):
        """(URL, key) of each sample of all shards that the selection keeps."""
        parts = [part for shard in range(len(self.shards)) for part in self.parts(shard)]
        kept = [
            part for part in parts if isinstance(part, Part) and (not self.has_selection or self.keeps(part))
        ]
        return {(part.url, part.key) for part in kept}

    def keeps(self, part, *, by_key=True, by_value=True):
        """Whether the selection keeps a raw sample; worked out once for each."""
        which = id(part), by_key, by_value
        if which not in self._kept:
            self._kept[which] = self._keeps(part, by_key, by_value)
        return self._kept[which]

    def _keeps(self, part, by_key, by_value):
        """Whether the selection keeps a raw sample.

        Raises:
            RunError: it cannot be evaluated, and `errors` does not skip that.
        """
        source = self.source
        try:
            is_value = source.keys_of is not None
            if (self._keys is not None or self._exclude is not None) and (by_value if is_value else by_key):
                text = self._text(part, source.keys_of) if is_value else part.key
                if text is not None:
                    if self._keys is not None and text not in self._keys:
                        return False
                    if self._exclude is not None and text in self._exclude:
                        return False
            if source.subset is not None and (by_key if self._subset_by_key else by_value):
                text = part.key if self._subset_by_key else self._text(part, source.subset.of)
                if text is not None and not is_in_subset(text, source.subset.part, source.subset.seed):
                    return False
            if source.where is not None and by_value:
                found = self._evaluate(part, [source.where], in_selection=True, absent=(True,))[0]
                if isinstance(found, np.ndarray):
                    raise SampleError("decode", "`where` is an array")
                return bool(found)
        except LeftOutError:  # later
            return True
        except SampleError as error:
            self.skip_or_raise(error)
            return False
        return True

    def is_again(self, part):
        """Whether a sample is in the part that `repeat` reads once more."""
        fraction, subset = self.source.copies % 1, self.source.subset
        if subset is None or subset.of is not None:
            return is_in_subset(part.key, (Decimal(0), fraction), 0)
        first, stop = subset.part
        return is_in_subset(part.key, (first, first + fraction * (stop - first)), subset.seed)

    def _text(self, part, path):
        found = self._evaluate(part, [path], in_selection=True, absent=(None,), named=False)[0]
        if found is None or isinstance(found, str):
            return found
        if isinstance(found, int):
            return str(found)
        raise SampleError("decode", f"{found!r} is neither text nor an integer")

    def skip_or_raise(self, error):
        """Do nothing if `errors` skips the cause; raise RunError otherwise."""
        if not self.source.errors.skips(error.cause):
            raise RunError(f"{self.name}: {error}") from error

    # Fields and values

    def arrange(self, part, in_selection=False):
        """Return what `_arrange` does, worked out once for samples of the same files."""
        which = tuple(part.files), part.is_dropped, in_selection
        if which not in self._arranged:
            try:
                self._arranged[which] = self._arrange(part, in_selection)
            except SampleError as error:
                self._arranged[which] = error
        found = self._arranged[which]
        if isinstance(found, SampleError):
            raise SampleError(found.cause, f"{part.key}: {found}")
        return found

    def _arrange(self, part, in_selection):
        """Return field → stored name, None for a field that becomes None; None if `missing: skip` leaves it out."""
        source = self.source
        columns = self._columns | (self._asides if in_selection else set())
        stored = [name for name in part.files if not _is_reserved(name)]
        fields: dict[str, str | None] = {}
        if source.extensions is None:
            fields = {name: name for name in stored}
        else:
            fields = {name: name for name in stored if name in columns}
            left = [name for name in stored if name not in columns]
            entries = _entries(source)
            named = [entry for entry in entries if not _is_glob(entry[0])]
            reserved = {entry[0].lower() for entry in named}
            for entry in [*named, *(entry for entry in entries if _is_glob(entry[0]))]:
                for spelling in entry:
                    found = [name for name in left if fnmatchcase(name, spelling.lower())]
                    if _is_glob(spelling):
                        found = [name for name in found if name not in reserved]
                    if found:
                        for name in found:
                            fields[
                                name if _is_glob(spelling) else entry[0] if not _is_glob(entry[0]) else name
                            ] = name
                            left.remove(name)
                        break
                else:
                    if not _is_glob(entry[0]):
                        fields[entry[0]] = None
        lacking = {name for name, file in fields.items() if file is None}
        if source.rename:
            lowered, used, renamed = {name.lower(): name for name in fields}, set(), {}
            for new, olds in source.rename.items():
                renamed[new] = None
                for old in olds:
                    name = old if old in fields else lowered.get(old.lower())
                    if name is not None:
                        used.add(name)
                        renamed[new] = renamed[new] or fields[name]
                if renamed[new] is None:
                    lacking.add(new)
            fields = {name: file for name, file in fields.items() if name not in used} | renamed
        for entry in self._early:
            names = entry.split(";")
            if all(fields.get(name) is None for name in names) and not lacking & set(names):
                lacking.add(names[0])
                fields[names[0]] = None
        if part.is_dropped:
            return None
        if lacking and source.missing == "skip":
            return None
        if lacking and source.missing == "error":
            raise SampleError("decode", f"{part.key} lacks {sorted(lacking)}")
        if self._only is not None:
            needed = self._only | {name for entry in self._early for name in entry.split(";")}
            fields = {name: file for name, file in fields.items() if name in needed}
        return fields

    @property
    def measures_after_map(self):
        """Whether an expression of `batch` reads a field that `map` sets, outside of `before_map(…)`."""
        texts = [text for text in _measures(self.spec.batch) if text is not None]
        paths = {path for text in texts for path in parse_expression(text, self.spec.costs).paths}
        return any(self._is_after_map(path) for path in paths)

    def _is_after_map(self, path):
        own = {name for call in self.source.map for name in _sets(call)} - set(self.source.tags)
        later = {name for call in self.spec.map for name in _sets(call)}
        return path[0] in own | later and not isinstance(path, PathBeforeMap)

    def _evaluate(self, part, texts, *, in_selection=False, absent, named=True, sample=None):
        """Return the values of expressions over a raw sample; `absent` if `missing: skip` leaves the sample out.

        Args:
            sample: the finished sample, from which fields are read that `map` sets.
        """
        fields = self.arrange(part, in_selection)
        if fields is None:
            return absent

        def read(path, optional):
            if sample is None or not self._is_after_map(path):
                return self._value(part, fields, path, optional)
            return _finished_value(sample, path, optional)

        return _compute(texts, self.spec.costs if named else {}, read)

    def _value(self, part, fields, path, optional):
        name, rest = path[0], path[1:]
        if name in self.source.tags:
            return _walk(self.source.tags[name], rest, optional)
        if _is_reserved(name):
            known = {"__key__": part.key, "__url__": part.url, "__source__": self.name, **part.files}
            if name in known:
                return _walk(known[name], rest, optional)
        if name in self._homes:
            return _walk(self.make(part, fields, self._homes[name])[name], rest, optional)
        if name in self.source.fetch:
            return self._side(part, name, rest[0], optional)
        stored = fields.get(name)
        if stored is None:
            if optional:
                return MISSING
            raise SampleError("decode", f"{part.key} has no `{name}`")
        suffix, data = part.suffixes.get(stored, stored), part.files[stored]
        ending = suffix.lower().rpartition(".")[2]
        if len(rest) == 1 and ending in _IMAGES and rest[0] in ("width", "height", "pixels", "aspect"):
            width, height = _image_size(data)
            return {"width": width, "height": height, "pixels": width * height, "aspect": width / height}[
                rest[0]
            ]
        if ending == "npy" and rest == ("length",) and isinstance(data, bytes):
            return _npy_length(data)
        if rest in (("seconds",), ("bucket",)):
            raise NotImplementedError(f"`{rest[0]}` in an expression")
        return _walk(self._decode(name, suffix, data), rest, optional)

    def _side(self, part, name, which, optional):
        """Return a value of the size of a picture that the sample names."""
        data = self.fetch(part, {name})[name]
        if data is None and optional:
            return MISSING
        if data is None or isinstance(data, list):
            raise SampleError("decode", f"{part.key} names no picture for `{name}`, or several")
        width, height = _image_size(data)
        return {"width": width, "height": height, "pixels": width * height, "aspect": width / height}[which]

    def _read_headers(self, part):
        """Read the size of each picture that an expression of `batch` reads, before any of them is evaluated."""
        texts = [text for text in _measures(self.spec.batch) if text is not None]
        paths = {path for text in texts for path in parse_expression(text, self.spec.costs).paths}
        for name in sorted({path[0] for path in paths} & self.source.fetch.keys()):
            data = self.fetch(part, {name})[name]
            for each in data if isinstance(data, list) else [data]:
                if each is not None:
                    _image_size(each)

    def fetch(self, part, only=None):
        """Return the objects that a raw sample names in local roots, by field (docs/references.md).

        Args:
            only: the fields; None for all.

        Raises:
            LeftOutError: the sample is left out.
        """
        found = {}
        for name, entry in self.source.fetch.items():
            if only is not None and name not in only:
                continue
            pieces = re.split(
                r"\{((?:\[:\]|[^:}])*)(?::([^}]*))?\}", entry.url
            )  # text, field, format, text, …
            named = (
                [(entry.url, "")] if len(pieces) == 1 else list(zip(pieces[1::3], pieces[2::3], strict=True))
            )
            own = {each: each for each in part.files}
            values = [self._value(part, own, parse_expression(field).paths[0], True) for field, _ in named]
            values = [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
            lists = [value for value in values if isinstance(value, list)]

            def read(values, name=name, entry=entry, pieces=pieces, named=named):
                reference = None
                if not any(value in (None, MISSING, "") for value in values):
                    shown = [format(value, way or "") for value, (_, way) in zip(values, named, strict=True)]
                    texts = ["", ""] if len(pieces) == 1 else pieces[::3]
                    reference = texts[0] + "".join(map("".join, zip(shown, texts[1:], strict=True)))
                file = None if reference is None else Path(entry.root) / reference
                if file is not None and file.exists():
                    return (
                        file.read_bytes() if entry.seconds is None else _cut(file, *self._times(part, entry))
                    )
                missing = entry.missing or self.source.missing
                if missing == "skip":
                    raise LeftOutError
                if missing == "error":
                    raise SampleError("decode", f"{part.key} names no object for `{name}`")
                return None

            if not lists or any(
                value in (None, MISSING, "") for value in values if not isinstance(value, list)
            ):
                found[name] = read([None if isinstance(value, list) else value for value in values])
                continue
            if len({len(each) for each in lists}) > 1:
                raise SampleError("decode", f"{part.key} has lists of several lengths for `{name}`")
            found[name] = [
                read([value[at] if isinstance(value, list) else value for value in values])
                for at in range(len(lists[0]))
            ]
        return found

    def _times(self, part, entry):
        own = {each: each for each in part.files}
        times = _compute(entry.seconds, {}, lambda path, optional: self._value(part, own, path, True))
        if any(time in (None, MISSING) for time in times) or not 0 <= times[0] < times[1]:
            raise SampleError("decode", f"{part.key} has no time span")
        return times

    def make(self, part, fields, name):
        """Return what an entry of `make` makes (docs/steps.md), in plain Python: the values by field.

        Raises:
            LeftOutError: the sample is left out.
        """
        recipe, found = self.source.make[name], {}
        for text, is_optional in _origins(recipe):
            path = parse_expression(text).paths[0]
            is_there = fields.get(path[0]) is not None or path[0] in self._homes
            value = self._value(part, fields, path, True) if is_there else None
            found[text] = None if value is MISSING else value, is_optional
        lacks_all = all(value is None for value, _ in found.values())
        names = [field for field, home in self._homes.items() if home == name]
        if any(value is None and (lacks_all or not is_optional) for value, is_optional in found.values()):
            if self.source.missing == "none":
                return dict.fromkeys(names)
            if self.source.missing == "skip":
                raise LeftOutError
            raise SampleError("decode", f"{part.key} lacks what `{name}` is made of")
        key = key64(self.spec.seed, "make", name, part.key.encode().hex(), part.reading)

        def draw(number):
            return (random64(key, number) >> 11) / 2**53

        made = _STEPS[recipe.step](recipe, {text: value for text, (value, _) in found.items()}, draw)
        return (
            {field or name: value for field, value in made.items()}
            if isinstance(made, dict)
            else {name: made}
        )

    def _decode(self, name, suffix, data):
        """Return the value of a field. Only bytes are decoded, also those in a list."""
        if isinstance(data, list) and any(isinstance(each, bytes) for each in data):
            return [self._decode(name, suffix, each) if isinstance(each, bytes) else each for each in data]
        if not isinstance(data, bytes):
            return deepcopy(data)
        decode = self.source.decode
        chosen = None
        if decode is not None and decode.fields:
            endings = [suffix.lower().split(".", n)[n] for n in range(suffix.count(".") + 1)]
            lowered = {key.lower(): key for key in decode.fields}
            chosen = decode.fields.get(name) or next(
                (decode.fields[lowered[end]] for end in endings if end in lowered), None
            )
        plain, packings = suffix.lower(), []
        while plain.rpartition(".")[2] in ("gz", "bz2", "xz"):
            plain, _, packing = plain.rpartition(".")
            packings.append(packing)
        ending = plain.rpartition(".")[2]
        if chosen is None and decode is not None:
            chosen = next((each for each in decode.names if _takes(each, ending)), None)
        if chosen == "raw":
            return data
        for packing in packings:
            data = {"gz": gzip.decompress, "bz2": bz2.decompress, "xz": lzma.decompress}[packing](data)
        chosen = ending if chosen in (None, "auto") else chosen
        if ":" in chosen:
            try:
                return _import(chosen, self.spec.folder)(data)
            except Exception as error:
                raise SampleError("map", f"{chosen}: {error}") from error
        try:
            return _decode_as(chosen, data)
        except NotImplementedError:
            raise
        except Exception as error:
            raise SampleError("decode", f"`{name}`: {error}") from error

    # From raw samples to samples

    def measure(self, part, batch, sample=None):
        """Return (cost, sums, weight, value) of a raw sample for batches from windows; None if it is dropped.

        Args:
            sample: the sample itself, if it was decoded for the cost.
        """
        try:
            if sample is not None:
                found = self._evaluate(part, _texts_of(batch), absent=None, sample=sample)
            else:
                if id(part) not in self._values:
                    self._read_headers(part)
                    self._values[id(part)] = self._evaluate(part, _texts_of(batch), absent=None)
                found = self._values[id(part)]
        except LeftOutError:
            return None
        return None if found is None else self._weigh(found, batch, sample)

    def measure_finished(self, sample, batch):
        """Return the same of a sample that a stage has yielded, whose values are read as they are."""

        def read(path, optional):
            return _finished_value(sample, path, optional)

        return self._weigh(_compute(_texts_of(batch), self.spec.costs, read), batch, sample)

    def _weigh(self, found, batch, sample):
        """Return the checked values of the expressions of a batch."""
        pack = batch.pack
        cost, *sums, weight, value = found
        try:
            hash(value)
            if batch.is_by_function:
                cost = _import(batch.cost, self.spec.folder)(sample)
        except Exception as error:
            raise SampleError("decode", str(error)) from error
        numbers = [(cost, 1e-12), *((each, 0) for each in (*sums, weight))]
        if any(not isinstance(each, (int, float)) or isinstance(each, bool) for each, _ in numbers):
            raise SampleError("decode", f"{numbers} are not numbers")
        if not all(least <= each <= 1e15 for each, least in numbers):
            raise SampleError("decode", f"{numbers} are out of range")
        if pack is not None and pack.pad_to_multiple_of > 1:
            cost = -(-cost // pack.pad_to_multiple_of) * pack.pad_to_multiple_of
        return cost, sums, weight, value

    def finish(self, part, number_key, ordinal):
        """Return the sample of a raw sample, or None if it is dropped.

        Args:
            number_key: the key of the random numbers of a slot.
            ordinal: the number of the sample among those of the slot.

        Raises:
            SampleError: a step fails.
        """
        fields = self.arrange(part)
        if fields is None:
            return None
        try:
            objects = self.fetch(part)
        except LeftOutError:
            return None
        sample = {"__key__": part.key, "__url__": part.url, "__source__": self.name}
        sample |= {name: deepcopy(value) for name, value in part.files.items() if _is_reserved(name)}
        for name, stored in fields.items():
            suffix = part.suffixes.get(stored, stored)
            sample[name] = None if stored is None else self._decode(name, suffix, part.files[stored])
        for name, data in objects.items():
            if self._only is None or name in self._only:
                sample[name] = self._decode(name, name, data)
        try:
            for name in self._making:
                sample |= self.make(part, fields, name)
        except LeftOutError:
            return None
        if self.source.scale is not None:
            raise NotImplementedError("`scale`")
        source, spec = self.source, self.spec
        sample |= deepcopy(self.companions)
        number = random64(number_key, ordinal)
        has_functions = source.select is not None or source.map or spec.map
        lent = lend_generators(number ^ _GLOBALS) if has_functions else nullcontext()
        with lent, provide_sample_rng(number, part.url):
            try:
                if source.select is not None and not _import(source.select, spec.folder)(sample):
                    return None
                for call in source.map:
                    sample = self._call(call, sample)
                sample = {**sample, **deepcopy(source.tags)}
                self._check_expectations(sample)
                for call in spec.map:
                    sample = self._call(call, sample)
            except SampleError:
                raise
            except Exception as error:
                raise SampleError("map", str(error)) from error
        return self._project({name: value for name, value in sample.items() if name not in self.companions})

    def _check_expectations(self, sample):
        expected = {} if self.source.expect is None else self.source.expect.fields
        for name, each in expected.items():
            if name not in sample or not _is_as_expected(sample[name], each):
                raise SampleError("decode", f"`{name}` of {sample['__key__']} is not as `expect` says")

    def _call(self, call, sample):
        function = build_function(call, self.spec.folder)
        if call.field is None:
            result = function(sample)
            for name in ("__key__", "__url__", "__source__"):
                result.setdefault(name, sample[name])
            return result
        value = sample[call.field]
        if value is None:
            return sample
        result = function(value)
        if result is None:
            raise ValueError(f"`map` of `{call.field}` returned None")
        return {**sample, call.field: result}

    def _project(self, sample):
        keep = self.spec.fields
        kept = dict(sample)
        if keep is not None:
            kept = {name: value for name, value in sample.items() if name.startswith("__")}
            for entry in keep:
                name = next((each for each in entry.split(";") if each in sample), None)
                if name is not None:
                    kept[entry.split(";")[0]] = sample[name]
        for entry in [*(keep or ()), *self._late]:
            if not any(name in kept for name in entry.split(";")):
                if self.source.missing == "skip":
                    return None
                if self.source.missing == "error":
                    raise SampleError("decode", f"the sample has no `{entry}`")
                kept[entry.split(";")[0]] = None
        return kept


_DRAWING = {"choose", "crop", "mask_tokens"}


def _origins(recipe):
    """What an entry of `make` is made of, and whether a sample may lack that."""
    first = getattr(recipe, recipe.step)
    found = [(first, False)] if isinstance(first, str) else [(each, True) for each in first]
    if recipe.step == "chat":
        found += [(recipe.prompt, False)] if recipe.prompt else []
        found += [(each, True) for each in (recipe.images, recipe.image_length) if isinstance(each, str)]
    if recipe.step == "crop":
        parts = recipe.masks, recipe.boxes, recipe.points
        found += [(each, False) for part in parts for each in part.values()]
    return found


def _made_of(recipe):
    """The fields of which a field is made, and whether a sample may lack them."""
    return [(parse_expression(text).paths[0][0], is_optional) for text, is_optional in _origins(recipe)]


# The steps of `make`: (the entry, its origins by their text, random numbers) → the values by field, or a single one


def _label(recipe, found, draw):
    (value,) = found.values()
    names, text = dict(recipe.names), str(value).strip()
    names |= {alias: names[each] for alias, each in recipe.aliases.items()}
    if text not in names and recipe.unknown == "error":
        raise SampleError("decode", f"{text} is not a class")
    return names.get(text, recipe.unknown)


def _tokenize(recipe, found, draw):
    (text,) = found.values()
    ids = [LETTERS.index(sign if sign in LETTERS else "<unk>") for sign in text if sign != "\n"]
    end = [] if recipe.eos is None else [LETTERS.index(recipe.eos)]
    if recipe.truncate is not None:
        ids = ids[: recipe.truncate - len(end)]
    if not ids + end:
        raise LeftOutError
    return np.array(ids + end, np.int64)


def _choose(recipe, found, draw):
    values = found[recipe.choose] if isinstance(recipe.choose, str) else [*found.values()]
    weights = [0 if value is None else 1 for value in values]
    if recipe.weights is not None:
        weights = [weight * each for weight, each in zip(weights, recipe.weights, strict=True)]
    if not sum(weights):
        raise SampleError("decode", "there is nothing to choose from")
    point, total = draw(0) * sum(weights), 0
    for value, weight in zip(values, weights, strict=True):
        total += weight
        if total > point:
            return value
    raise AssertionError


def _mask_tokens(recipe, found, draw):
    (ids,) = found.values()
    special = {LETTERS.index(text) for text in ("<unk>", "<end>", recipe.mask_token)}
    numbers = np.random.Philox(key=math.floor(draw(0) * 2**53)).random_raw(3 * len(ids)).tolist()
    x, y, z = ([(each >> 11) / 2**53 for each in numbers[n * len(ids) :][: len(ids)]] for n in range(3))
    masked, labels = [], []
    for at, token in enumerate(np.asarray(ids).tolist()):
        is_chosen = x[at] < recipe.probability and token not in special
        labels.append(token if is_chosen else -100)
        if is_chosen and y[at] < 0.8:
            token = LETTERS.index(recipe.mask_token)
        elif is_chosen and y[at] < 0.9:
            token = math.floor(z[at] * len(LETTERS))
        masked.append(token)
    made_field, labels_field = (np.array(each, np.int64) for each in (masked, labels))
    return {None: made_field, recipe.labels: labels_field}


def _chat(recipe, found, draw):
    """The template is that of `oracle.data`: the first letter of the role, a space, the text, and `<end>`."""
    before = found[recipe.prompt] if recipe.prompt else []
    messages = [*before, *found[recipe.chat]]
    images = len(found.get(recipe.images) or ()) if recipe.images else 0
    lengths = found.get(recipe.image_length, recipe.image_length)
    lengths = iter(lengths if isinstance(lengths, list) else [lengths] * images)
    answers = [at for at, each in enumerate(messages) if each["role"] == "assistant" and at >= len(before)]
    if recipe.loss == "last":
        answers = answers[-1:]
    end, ids, labels = TALK.index("<end>"), [], []
    for at, message in enumerate(messages):
        head, text = f"{message['role'][0]} ", message["content"]
        tokens = _letters(head)
        has_loss = [recipe.loss == "all"] * len(tokens)
        for number, piece in enumerate(text.split("<img>") if recipe.images else [text]):
            image = [TALK.index("<img>")] * next(lengths) if number else []
            tokens += image + _letters(piece)
            has_loss += [False] * len(image) + [recipe.loss == "all" or at in answers] * len(_letters(piece))
        ids += [*tokens, end]
        has_loss.append(recipe.loss == "all" or at in answers)
        labels += [token if each else -100 for token, each in zip([*tokens, end], has_loss, strict=True)]
    made = {None: np.array(ids, np.int64)}
    return made | ({recipe.labels: np.array(labels, np.int64)} if recipe.labels else {})


def _letters(text):
    return [TALK.index(sign if sign in LETTERS else "<unk>") for sign in text]


def _crop(recipe, found, draw):
    image = found[recipe.crop]
    high, wide = image.shape
    left, top, width, height = _draw_crop(recipe, wide, high, draw)
    is_flipped = draw(3) < recipe.hflip
    sides = recipe.size if isinstance(recipe.size, tuple) else (recipe.size, recipe.size)

    def take(pixels):
        part = Image.fromarray(pixels[top : top + height, left : left + width])
        resized = np.array(part.resize((sides[1], sides[0]), Image.Resampling.NEAREST))
        return resized[:, ::-1] if is_flipped else resized

    def move(x, y):
        x, y = (x - left) * (sides[1] / width), (y - top) * (sides[0] / height)
        return (sides[1] - x if is_flipped else x), y

    made, kept = {None: take(image)}, []
    made |= {name: take(found[text]) for name, text in recipe.masks.items()}
    for name, text in recipe.boxes.items():
        boxes, kept = [], []
        for at, (x, y, right, bottom) in enumerate(found[text]):
            (x, y), (right, bottom) = move(x, y), move(right, bottom)
            x, right = min(x, right), max(x, right)
            x, right = (min(max(each, 0), sides[1]) for each in (x, right))
            y, bottom = (min(max(each, 0), sides[0]) for each in (y, bottom))
            is_inside = right > x and bottom > y
            kept += [at] if is_inside else []
            boxes += [[x, y, right, bottom]] if is_inside or recipe.kept is None else []
        made[name] = np.array(boxes, np.float32).reshape(-1, 4)
    if recipe.kept is not None:
        made[recipe.kept] = np.array(kept, np.int64)
    for name, text in recipe.points.items():
        points = []
        for x, y, is_visible in found[text]:
            x, y = move(x, y)
            points.append([x, y, is_visible if 0 <= x <= sides[1] and 0 <= y <= sides[0] else 0])
        for one, two in recipe.flip_points if is_flipped else ():
            points[one], points[two] = points[two], points[one]
        made[name] = np.array(points, np.float32)
    return made


def _draw_crop(recipe, wide, high, draw):
    """The left and top, width and height of a random crop."""
    (least, most), (low, high_ratio) = recipe.scale, recipe.ratio
    for first in range(8, 48, 4):
        area = wide * high * (least + draw(first) * (most - least))
        logarithms = math.log(low), math.log(high_ratio)
        ratio = math.exp(logarithms[0] + draw(first + 1) * (logarithms[1] - logarithms[0]))
        width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < width <= wide and 0 < height <= high:
            top = math.floor(draw(first + 2) * (high - height + 1))
            return math.floor(draw(first + 3) * (wide - width + 1)), top, width, height
    raise NotImplementedError("no crop fits")


_STEPS = {
    "chat": _chat,
    "choose": _choose,
    "crop": _crop,
    "label": _label,
    "mask_tokens": _mask_tokens,
    "tokenize": _tokenize,
}


def _sets(call):
    return [call.field] if call.field is not None else call.sets or ()


def _measures(batch):
    """The expressions of `cost`, `limits`, `balance` and `group_by`; None where there is none."""
    cost = batch.cost
    if batch.is_by_function:
        cost = None
    elif cost is None and batch.pack is not None:
        cost = f"fields[{batch.pack.fields[0]!r}].length"
    return [cost, *batch.limits, batch.balance, batch.group_by]


def _texts_of(batch):
    """The expressions of a batch, with constants in place of those that it lacks."""
    cost, *limits, balance, group_by = _measures(batch)
    return [cost or "1", *limits, balance or "0", group_by or "none"]


class _FatalError(SampleError):
    """The rest of the shard cannot be merged."""


class _Partner:
    """A partner of a shard; keys come in the same order in both."""

    def __init__(self, join, entries):
        self.join, self.entries = join, entries
        self.places = {
            entry.key: place for place, entry in enumerate(entries) if not isinstance(entry, Damage)
        }
        self.at = -1

    def find(self, key):
        """Return the partner of the next sample, None if there is none. Raises SampleError if it is damaged."""
        if any(isinstance(each, Damage) and each.key == key for each in self.entries):
            raise SampleError("shard", f"the partner of {key} is damaged")
        place = self.places.get(key)
        if place is not None:
            if place <= self.at:
                raise RunError("the keys of a join have another order")
            self.at = place
            return self.entries[place]
        rest = self.entries[self.at + 1 :]
        if rest and all(isinstance(each, Damage) for each in rest) and rest[-1].ends:
            raise _FatalError("shard", "the partner is truncated")
        if rest and isinstance(rest[0], Damage):  # the next partner, whose key cannot be read
            self.at += 1
            raise SampleError("shard", f"the partner of {key} is damaged")
        return None

    def find_named(self, name):
        """Return the sample that a record names: as it is, without its extension, or without NeMo's `-sub1`."""
        if name is None:
            return None
        folder, slash, base = str(name).rpartition("/")
        plain = folder + slash + base.partition(".")[0]
        for form in (str(name), plain, re.sub(r"-sub\d+$", "", plain)):
            if any(isinstance(each, Damage) and each.key == form for each in self.entries):
                raise SampleError("shard", f"the partner {form} is damaged")
            if form in self.places:
                return self.entries[self.places[form]]
        if any(isinstance(each, Damage) for each in self.entries):
            raise SampleError("shard", f"{name} may be among what is damaged")
        return None


def is_in_subset(text, part, seed):
    """Whether a text is in a part of the samples (docs/selection.md)."""
    errors = "surrogatepass" if any("\ud800" <= sign < "\udc80" for sign in text) else "surrogateescape"
    number = crc32(text.encode("utf-8", errors), crc32(str(seed).encode()) if seed else 0)
    number = (number ^ number >> 16) * GOLDEN & MASK
    return int(part[0] * 2**64) <= number < int(part[1] * 2**64)


def _read_keys(entries, base):
    if entries is None:
        return None
    found = set()
    for entry in entries:
        path = os.path.join(base, entry[1:])
        if not entry.startswith("@"):
            found.add(entry)
        elif path.endswith(".npy"):
            array = np.load(path)
            rows = (
                [f"{a:016x}{b:016x}" for a, b in array.tolist()]
                if array.dtype.names or array.ndim == 2
                else array
            )
            found.update(str(each) for each in rows)
        else:
            with gzip.open(path, "rt") if path.endswith(".gz") else open(path, encoding="utf-8") as file:
                found.update(line.strip("\r\n") for line in file if line.strip())
    return found


def _entries(source):
    return [[part for part in entry.split(";") if part] for entry in " ".join(source.extensions).split()]


def _is_glob(text):
    return any(sign in text for sign in "*?[")


def _is_reserved(name):
    return len(name) > 4 and name.startswith("__") and name.endswith("__")


def _compute(texts, costs, read):
    """Return the values of expressions whose paths `read` looks up."""
    values = []
    for text in texts:
        expression = parse_expression(text, costs)
        found = [read(path, path in expression.optional) for path in expression.paths]
        try:
            values.append(expression.evaluate(*found))
        except Exception as error:
            raise SampleError("decode", f"`{text}`: {error}") from error
    return values


def _finished_value(sample, path, optional):
    if path[0] in sample:
        return _walk(sample[path[0]], path[1:], optional)
    if optional:
        return MISSING
    raise SampleError("decode", f"the sample has no `{path[0]}`")


def _walk(value, path, optional):
    for at, part in enumerate(path):
        if repr(part) == ":":  # `[:]`
            if value is None and optional:
                return MISSING
            if not isinstance(value, list):
                raise SampleError("decode", f"{value!r:.40} is no list")
            rest = path[at + 1 :]
            if optional and rest and isinstance(rest[0], str) and rest[0] != "length":
                kinds = (dict, list, str) if any(isinstance(each, dict) for each in value) else (dict, list)
                if not all(each is None or isinstance(each, kinds) for each in value):
                    raise SampleError("decode", f"an item of {value!r:.40} is no map")
            found = [_walk(each, path[at + 1 :], optional) for each in value]
            return [None if each is MISSING else each for each in found]
        is_list = (
            isinstance(value, (list, tuple)) and isinstance(part, int) and -len(value) <= part < len(value)
        )
        if is_list or (isinstance(value, dict) and part in value):
            value = value[part]
        elif part == "length" and hasattr(value, "__len__") and not isinstance(value, dict):
            value = len(value)
        elif optional:
            return MISSING
        else:
            raise SampleError("decode", f"there is no {part} in {value!r:.40}")
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value


def _cut(file, start, stop):
    """Return a part of a recording in WAV, as docs/references.md says: up to 25 ms after its end are none."""
    with wave.open(str(file)) as sound:
        rate = sound.getframerate()
        first, last = (math.floor(time * rate + 0.5) for time in (start, stop))
        if stop > sound.getnframes() / rate + 0.025 or first >= sound.getnframes():
            raise SampleError("decode", f"{file} ends before {stop} s")
        sound.setpos(first)
        frames, found = sound.readframes(last - first), io.BytesIO()
        with wave.open(found, "wb") as made:
            made.setparams(sound.getparams())
            made.writeframes(frames)
        return found.getvalue()


def _image_size(data):
    from PIL import Image

    try:
        return Image.open(io.BytesIO(data)).size
    except OSError as error:
        raise SampleError("decode", str(error)) from error


def _npy_length(data):
    """Return the length of the first axis, which the header says, even if numbers are missing."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        return read(file)[0][0]
    except (ValueError, IndexError) as error:
        raise SampleError("decode", str(error)) from error


def _is_as_expected(value, expected):
    kinds = {"int": int, "float": float, "bool": bool, "str": str, "bytes": bytes, "dict": dict, "list": list}
    if expected.type is not None:
        kind = str(value.dtype).removeprefix("torch.") if hasattr(value, "dtype") else None
        is_plain = isinstance(value, kinds.get(expected.type, ())) and (
            expected.type == "bool"
        ) >= isinstance(value, bool)
        if kind != expected.type and not is_plain:
            return False
    if expected.shape is not None:
        shape = getattr(value, "shape", None)
        if shape is None or len(shape) != len(expected.shape):
            return False
        if not all(bounds.hold(side) for bounds, side in zip(expected.shape, shape, strict=True)):
            return False
    if expected.length is not None and not (hasattr(value, "__len__") and expected.length.hold(len(value))):
        return False
    if expected.classes is not None:
        allowed = range(expected.classes) if isinstance(expected.classes, int) else expected.classes
        if isinstance(value, bool) or not isinstance(value, (int, str)) or value not in allowed:
            return False
    if expected.range is not None:
        if isinstance(value, (str, bytes)) or not np.size(value):
            return not isinstance(value, (str, bytes))
        return expected.range.hold(float(np.min(value))) and expected.range.hold(float(np.max(value)))
    return True


def _takes(name, ending):
    if name == "raw" or ":" in name:
        return True
    if name in _IMAGE_MODES:
        return ending in _IMAGES
    return name == ending


_IMAGE_MODES = {"rgb8": "RGB", "l8": "L", "rgba8": "RGBA", "torchrgb8": "RGB"}


def _decode_as(chosen, data):
    if chosen in ("txt", "text", "htm", "html", "transcript"):
        return data.decode("utf-8")
    if chosen in ("cls", "cls2", "class", "count", "id", "index", "inx"):
        if b"_" in data:
            raise ValueError("not an integer")
        return int(data)
    if chosen in ("json", "jsn"):
        return json.loads(data)
    if chosen == "npy":
        return np.load(io.BytesIO(data), allow_pickle=False)
    if chosen == "npz":
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    if chosen in _IMAGE_MODES:
        from PIL import Image

        array = np.asarray(Image.open(io.BytesIO(data)).convert(_IMAGE_MODES[chosen])).copy()
        return array.transpose(2, 0, 1).copy() if chosen.startswith("torch") else array
    known = {
        *("mp", "msg", "msgpack", "cbor", "pth", "safetensors", "torch_safetensors", "pickle", "pkl", "pyd")
    }
    if chosen in known or "+" in chosen or chosen in ("pil", "rgb", "torchrgb", "audio", "video"):
        raise NotImplementedError(f"the decoder {chosen}")
    return data


_OBJECTS: dict[str, Any] = {}


def build_function(call, folder=""):
    """Return the function of a call (`Call`)."""
    function = _import(call.call, folder)
    if not isinstance(function, type) and call.method is None:
        return (lambda *values: function(*values, **call.args)) if call.args else function
    written = repr((call.call, call.args))
    thing = _OBJECTS[written] if written in _OBJECTS else _OBJECTS.setdefault(written, function(**call.args))
    method = thing if call.method is None else getattr(thing, call.method)
    return lambda *values: method(*values, **call.given)


def _import(name, folder=""):
    from wdspec.base.user_code import import_function

    return import_function(name, "map", folder)


@contextmanager
def provide_sample_rng(number, url):
    """Let `wdspec.sample_rng` return the generators of a sample (docs/transforms.md)."""

    def sample_rng(sample, name=""):
        stream = key64("sample_rng", name) if name else 0
        return np.random.Generator(np.random.Philox(key=number << 64 | stream))

    with mock.patch.object(wdspec, "sample_rng", sample_rng):
        yield


@contextmanager
def lend_generators(number):
    """Seed the global generators of torch, numpy and `random` with a 64-bit number, and restore them at the end."""
    saved = random.getstate(), np.random.get_bit_generator(), np.random.get_state(legacy=False)
    before = torch.default_generator.get_state()
    seed_generators(number)
    try:
        yield
    finally:
        random.setstate(saved[0])
        np.random.set_bit_generator(saved[1])
        np.random.set_state(saved[2])
        torch.default_generator.set_state(before)


def seed_generators(number):
    """Seed the global generators (docs/transforms.md)."""
    torch.default_generator.manual_seed(number)
    bits = np.random.SFC64(0)
    words = np.array([number, random64(number, 1), number ^ GOLDEN, 1], np.uint64)
    bits.state = {"bit_generator": "SFC64", "state": {"state": words}, "has_uint32": 0, "uinteger": 0}
    np.random.set_bit_generator(bits)
    random.seed(random64(number, 3))
