"""`SampleFields`: from raw samples to samples, by names, missing fields, decoding and rescaling."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from wdspec.base.amounts import show_value
from wdspec.base.errors import FieldError, SpecError, WdspecError, nearest, warn_user
from wdspec.base.user_code import secure_mode
from wdspec.fields.decode import DecodeRules, FieldDecoder, one_line
from wdspec.fields.extensions import (
    Extensions,
    Naming,
    NamingWithAsides,
    add_alternative,
    is_reserved,
    listed_fields,
    place_alternative,
)
from wdspec.fields.memory import current
from wdspec.fields.scale import Numbers
from wdspec.spec.language.decoders import BY_NAME, FORMAT_OF, choose_decoder, key_for, split_decoder

if TYPE_CHECKING:
    from wdspec.fields.made_field import MadeField
    from wdspec.spec.spec import Source

MAX_LAYOUTS = 1024
"""Layouts to remember before all are forgotten; real data has a handful."""
TRIAL = 100
"""Samples after which to warn of keys of `decode` that matched no field."""
MAX_LAYOUT_TEXT = 4096
"""Maximum number of characters in the names of a layout that is remembered."""

MADE = "__made__"
"""The entry of a raw sample that has what was made of it by `make`: field → value."""

PASS = "__pass__"
"""The entry of a raw sample that says how often its source was read before, if a field of `make` draws."""

COMPANIONS = "__companions__"
"""The entry of a raw sample that has its companions: field → companion, a list of them, or None.

They are as their stream gave them (`Drawn`), until the sample is decoded; then they are samples.
"""

Drawn = tuple[Callable[[dict[str, Any], int], "dict[str, Any] | None"], dict[str, Any], int]
"""A companion that is not decoded yet: what decodes it, the raw sample, and its ordinal."""

Step = tuple[str, Callable[[bytes], Any]]
DrawnStep = tuple[str, Callable[[bytes, float | None, Numbers | None], Any]]


_LEAVE_BYTES = frozenset(name for name, row in BY_NAME.items() if row.everything)
"""Decoders that leave every value as it is."""
_TEXTS, _MAPS, _NUMBERS = (frozenset(BY_NAME[name].names) for name in ("txt", "json", "cls"))
_GIVE = {str: _TEXTS, int: _NUMBERS | _MAPS, float: _NUMBERS | _MAPS}
"""Type of a value that is decoded → the decoders that give such values: they may be written for it."""
_INSTEAD = {
    str: dict.fromkeys(_MAPS, "json:loads") | dict.fromkeys(_NUMBERS, "builtins:int"),
    **dict.fromkeys((int, float), dict.fromkeys(_TEXTS, "builtins:str") | {"npy": "numpy:array"}),
}
"""Type of a value → functions that do with it what decoders do with bytes."""


class Unseen(NamedTuple):
    """A decoder whose key of `decode` matches a field, of which no value was seen yet."""

    key: str
    """Empty if the decoder is for the whole sample."""
    decoder: str


@dataclass(frozen=True)
class SampleLayout:
    """What to do with every sample whose entries have the same names in the same order."""

    moves: tuple[tuple[str, str], ...] | None
    """(new name, old name) of all kept entries; None if all are kept with their names."""
    absent: dict[str, None]
    """Missing fields that become None."""
    plain: tuple[Step, ...]
    """Fields to decode, images in their own size."""
    others: tuple[Step, ...]
    """The ones among them that are not images."""
    images: tuple[DrawnStep, ...]
    """The images, to be rescaled, and others that draw."""
    labels: dict[str, str]
    """The name of the decoder of each field, for messages."""

    @property
    def is_in_place(self) -> bool:
        """Whether all entries keep their names and places and none is added, so that fields are at most decoded."""
        return self.moves is None and not self.absent


class SampleFields:
    """Turns raw samples of one source (names → bytes) into samples (names → values).

    It applies `extensions`, `rename`, `missing`, `decode` and `scale`, in this order. Entries like ``__key__`` are kept
    and come first. Everything that depends only on names is decided once for each layout, the tuple of names; for each
    sample, only a copy of the dict and a loop over functions remain.

    Args:
        extensions: see `Extensions`.
        missing: ``error``, ``skip`` or ``none``, for fields that `extensions`, `rename` or `required` require.
        rename: new name → the names it may have had.
        required: fields that later stages require (`fields`, `to_tuple`), perhaps with ``;`` alternatives.
        only: the fields that later stages can use, if known; others are not decoded.
        names, fields: the keys of `decode`; see `DecodeRules`. If no field of the first `TRIAL` samples matches a key
            of `fields`, there is a warning, once in each process.
        scales: whether samples may be rescaled.
        allow_pickle: whether pickles may be read, including `pth` and `npy` with objects.
        secure: whether functions and pickle are forbidden; by default as WDS_SECURE says now.

    Raises:
        SpecError: the options contradict each other or are not allowed.
    """

    _original: SampleFields | None = None
    """The fields of which these are a copy with other names. A reader asks only one of the copies what it keeps."""

    made: Mapping[str, MadeField] = MappingProxyType({})
    """The fields of `make`: the entry that makes each of them."""
    draws: bool = False
    """Whether one of them draws random numbers, other ones in each pass."""
    companions: Mapping[str, SampleFields] = MappingProxyType({})
    """The fields that have companions, and how these are read."""

    def __init__(
        self,
        extensions: Sequence[str] | None = None,
        *,
        missing: str = "error",
        rename: Mapping[str, Sequence[str]] | None = None,
        required: Sequence[str] = (),
        only: Sequence[str] | None = None,
        names: Sequence[str] = (),
        fields: Mapping[str, str] | None = None,
        scales: bool = False,
        allow_pickle: bool = False,
        secure: bool | None = None,
        folder: str = "",
    ) -> None:
        if missing not in ("error", "skip", "none"):
            raise SpecError(f"`missing` is {missing!r}; use error, skip or none")
        self.naming = Naming(
            Extensions(extensions),
            {new: tuple(olds) for new, olds in (rename or {}).items()},
            missing,
            tuple(required),
            None if only is None else tuple(only),
        )
        secure = secure_mode() if secure is None else secure
        self.rules = DecodeRules(tuple(names), dict(fields or {}), scales, allow_pickle, secure, folder)
        for new, olds in self.naming.rename.items():
            for old in olds:
                self.rules.check(new, old)
        self.source: str | None = None
        """The name of the source for messages."""
        self._names: dict[str, str | None] = {}
        """By suffix: what `field_of` returned."""
        self._layouts: dict[tuple[str, ...], SampleLayout | FieldError | Literal["skip"]] = {}
        self.in_place: dict[tuple[str, ...], tuple[Step, ...]] = {}
        """Layouts that are decoded in place, and their steps without a factor and numbers."""
        self.media: set[str] = set()
        """The fields of the samples so far that are decoded to pixels, frames or sound."""
        self._unmatched: set[str | Unseen] = {*self.rules.fields, *self.rules.names}
        self._tried = 0

    @classmethod
    def of(
        cls,
        source: Source,
        *,
        allow: Sequence[str] = (),
        required: Sequence[str] = (),
        only: Sequence[str] | None = None,
        asides: frozenset[str] = frozenset(),
        secure: bool | None = None,
        folder: str = "",
    ) -> SampleFields:
        """Return the fields of a source of a spec with this `allow`; see the class for the other arguments.

        Args:
            asides: the files that only the selection of the source reads.
        """
        decode = source.decode
        fields = cls(
            source.extensions,
            missing=source.missing,
            rename=source.rename,
            required=required,
            only=only,
            names=decode.names if decode else (),
            fields=decode.fields if decode else None,
            scales=source.scale is not None,
            allow_pickle="pickle" in allow,
            secure=secure,
            folder=folder,
        )
        fields.source = source.name
        if source.join or source.lookup or asides:
            fields.naming = _with_parts(fields.naming, source, asides)
        return fields

    def with_naming(self, naming: Naming) -> SampleFields:
        """Return the fields with other names."""
        other = copy(self)
        other.__dict__.update(self.__getstate__())
        other.naming = naming
        other._original = self
        return other

    def field_of(self, suffix: str) -> str | None:
        """Return the name under which the reader keeps a file of this suffix, or None if it is not read."""
        if suffix not in self._names:
            if len(self._names) >= MAX_LAYOUTS:
                self._names.clear()
            self._names[suffix] = self.naming.field_of(suffix)
            if self._unmatched and (stored := self.naming.extensions.field_of(suffix)) is not None:
                self._match([stored])  # even if no later stage needs it
        return self._names[suffix]

    def __call__(
        self, raw: Mapping[str, Any], factor: float | None = None, numbers: Numbers | None = None
    ) -> dict[str, Any] | None:
        """Decode one sample: return a new dict, or None for a sample that lacks a field and is skipped.

        Args:
            raw: ``__key__`` and similar entries, and bytes under the names that `field_of` returned. It is not changed.
                Other values, which CBOR and JSON have, are not decoded.
            factor: the factor for rescaling the images of the sample; None keeps their size.
            numbers: the random numbers of the sample, for decoders that draw (`rules.draw`), the same for all fields.

        Raises:
            FieldError: a field is missing or cannot be decoded, with source, url, key and field; a UserDecoderError if
                a user function failed.
            UsageError, SpecError: the error is not in the sample; for example, a decoder cannot be imported.
        """
        names = tuple(raw)
        layout = self._layouts.get(names) or self._study(names, raw)
        if not isinstance(layout, SampleLayout):
            if isinstance(layout, FieldError):
                # An error gets the place of its sample and a traceback, so the remembered one is copied.
                raise add_place(FieldError(layout.message, code=layout.code, **layout.place), raw)
            return None
        moves = layout.moves
        sample = dict(raw) if moves is None else {new: raw[old] for new, old in moves}
        if layout.absent:
            sample.update(layout.absent)
        name = ""
        try:
            is_plain = (factor is None and numbers is None) or not layout.images
            for name, decode in layout.plain if is_plain else layout.others:
                if (data := sample[name]).__class__ is bytes:
                    sample[name] = decode(data)
                elif data.__class__ is list:
                    sample[name] = decode_items(decode, data)
            for name, rescale in () if is_plain else layout.images:
                if (data := sample[name]).__class__ is bytes:
                    sample[name] = rescale(data, factor, numbers)
                elif data.__class__ is list:
                    sample[name] = decode_items(rescale, data, factor, numbers)
        except WdspecError as error:
            add_place(error, raw, name)
            raise
        except Exception as cause:
            message = f"cannot decode as {layout.labels[name]}: {one_line(cause, sample[name])}"
            raise add_place(FieldError(message), raw, name) from cause
        return sample

    def originals(self, raw: Mapping[str, Any]) -> Iterator[tuple[str, Any, Callable[[Any], Any]]]:
        """Yield the decoded fields of a raw sample, each with its bytes, or a list of them, and the decoder."""
        layout = self._layouts.get(tuple(raw)) or self._study(tuple(raw), raw)
        if isinstance(layout, SampleLayout):
            moved = dict(layout.moves or ())
            for name, decode in layout.plain:
                if (data := raw[moved.get(name, name)]).__class__ is bytes:
                    yield name, data, decode
                elif data.__class__ is list and bytes in map(type, data):
                    yield name, data, partial(decode_items, decode)

    def steps_of(self, names: tuple[str, ...]) -> tuple[Step, ...] | None:
        """Return what to decode in samples with these entries; None if more has to be done, or is not known yet."""
        if names not in self.in_place:
            self._study(names, {})
        return self.in_place.get(names)

    def are_samples(self, names: tuple[str, ...], of_bytes: Collection[str]) -> bool:
        """Whether raw samples with these entries, of which these are bytes, are samples as they are."""
        if self._unmatched and self._tried < TRIAL:  # each sample has to be counted
            return False
        steps = self.steps_of(names)
        return steps is not None and not any(name in of_bytes for name, _ in steps)

    def _study(
        self, names: tuple[str, ...], raw: Mapping[str, Any]
    ) -> SampleLayout | FieldError | Literal["skip"]:
        """Decide what to do with samples of this layout, and remember it."""
        layout: SampleLayout | FieldError | Literal["skip"]
        try:
            fields = self.naming.arrange([name for name in names if not is_reserved(name)])
            layout = "skip" if fields is None else self._lay_out(names, fields)
        except FieldError as error:
            layout = self.name_unread(error, names).with_traceback(None)
        # While keys of `decode` are unmatched, layouts are not remembered, so that remembered ones cost nothing more.
        if self._unmatched and self._tried < TRIAL:
            self._count_unmatched(names, raw)
        elif sum(map(len, names)) <= MAX_LAYOUT_TEXT:
            if len(self._layouts) >= MAX_LAYOUTS:
                self._layouts.clear()
                self.in_place.clear()
            self._layouts[names] = layout
            if isinstance(layout, SampleLayout) and layout.is_in_place:
                self.in_place[names] = layout.plain
        return layout

    def name_unread(self, error: FieldError, names: Sequence[str]) -> FieldError:
        """Add to the error for a missing field which files are not read, and which have the same format."""
        asked = self
        while not asked._names and asked._original is not None:
            asked = asked._original
        unread = sorted(suffix for suffix, stored in asked._names.items() if stored is None)
        name = str(error.place.get("field"))
        olds = self.naming.rename.get(name, (name,))
        formats = [FORMAT_OF[old] for old in olds if old in FORMAT_OF]
        same = [suffix for suffix in (*unread, *names) if FORMAT_OF.get(suffix) in formats]
        has_it = any(asked._names.get(old) for old in olds)
        if has_it and formats and not same:  # the samples have images of several formats
            same = [suffix for suffix in (*unread, *names) if suffix in FORMAT_OF]
        if error.code != "D201":
            return error
        message = error.message
        general, remedy = f"{add_alternative(name, self.naming)}, or set", ""
        if same:
            remedy = f"write {place_alternative(name, self.naming, same[0])} to take `{same[0]}` as well, or "
        if has_it:
            remedy = f"the shard has it, but this sample lacks it, or has null; {remedy}"
        message = message.replace(general, f"{remedy}set" if remedy else general)
        if unread:
            has_extensions = self.naming.extensions.entries is not None
            why = "`extensions` leaves out" if has_extensions else "nothing asks for"
            message += f". Samples also have {listed_fields(unread[:20])}, which {why}"
            dotted = next((suffix for suffix in unread if suffix.startswith(f"{name}.")), None)
            if len(unread) == 1 and not (same or has_it):
                dotted = unread[0]
            if dotted is not None and not has_extensions:
                remedy = add_alternative(name, self.naming)
                message = message.replace(remedy, f"write `rename: {{{name}: {dotted}}}`")
        origins = {path for entry in self.made.values() for path in entry.origins if path[0] == name}
        made = [each for each, entry in self.made.items() if origins.isdisjoint(entry.origins)]
        others = {*unread, *names, *made, *self.naming.rename, *self.naming.columns} - {name, *olds}
        meant = [each for old in olds if (each := nearest(old, sorted(others)))]
        if columns := [
            path[1] for path in sorted(origins, key=str) if path[1:2] and path[1] in {*unread, *names}
        ]:
            message += f". Columns are fields: write `{columns[0]}` in place of `{name}.{columns[0]}`"
        elif meant and not (same or has_it):
            message += f". Did you mean `{meant[0]}`?"
        return FieldError(message, code=error.code, **error.place)

    def _match(self, names: Sequence[str]) -> None:
        """Note which keys of `decode` match files of these names, whatever becomes of their sample.

        Decoders that would leave a value as it is remain, until a value is seen.
        """
        rules = self.rules
        for stored in names:
            for name, suffix in self._names_of(stored):
                if (key := key_for(rules.fields, name, suffix)) in self._unmatched:
                    self._unmatched -= {key}
                    if ":" in rules.fields[key] or split_decoder(rules.fields[key])[0] not in _LEAVE_BYTES:
                        self._unmatched.add(Unseen(key, rules.fields[key]))
        for decoder in {*rules.names} & self._unmatched:
            self._unmatched -= {decoder}
            if ":" in decoder:
                self._unmatched.add(Unseen("", decoder))

    def _names_of(self, stored: str) -> list[tuple[str, str]]:
        """Return the names that a file may have in samples, each with its suffix."""
        suffix = self.naming.suffixes.get(stored, stored)
        new = [new for new, olds in self.naming.rename.items() if stored in map(str.lower, olds)]
        return [(name, suffix) for name in (*new, stored)]

    def _count_unmatched(self, names: Sequence[str], raw: Mapping[str, Any]) -> None:
        """Count a sample, and warn of keys of `decode` that matched none of the first samples.

        Raises:
            SpecError: a decoder leaves a value of the sample as it is, since it decodes bytes.
        """
        self._match(names)
        self._tried += 1
        for unseen in [each for each in self._unmatched if isinstance(each, Unseen)]:
            self._see(unseen, raw)
        unmatched = sorted(key for key in self._unmatched if isinstance(key, str))
        if unmatched and self._tried == TRIAL:
            which = ", ".join(f"`{key}`" for key in unmatched)
            of = f" of source `{self.source}`" if self.source else ""
            warn_user(
                f"`decode` has {which}, but no field{of} matched in {TRIAL} samples; the fields of the last one are: "
                f"{listed_fields(names)}. Keys are names of fields, or suffixes of files"
            )

    def _see(self, unseen: Unseen, raw: Mapping[str, Any]) -> None:
        """Look at the values of a sample that a decoder is for."""
        key, decoder = unseen
        values = {
            name: (value, f"item {at} of `{name}`" if raw[stored].__class__ is list else f"`{name}`")
            for stored in raw
            for at, value in _first_of(raw[stored])
            if not is_reserved(stored)
            for name, suffix in self._names_of(stored)
            if (key_for(self.rules.fields, name, suffix) == key)
            or (not key and choose_decoder(self.rules.names, self.rules.fields, name, suffix) == decoder)
        }
        if not values:
            return
        kind = "" if ":" in decoder else split_decoder(decoder)[0]
        idle = [
            (name, value, what)
            for name, (value, what) in values.items()
            if kind not in _GIVE.get(type(value), {kind} - {""})
        ]
        if (
            self.source is None
            or len(idle) < len(values)
            or any(type(value) is bytes for value, _ in values.values())
        ):
            self._unmatched -= {unseen}  # pipelines in Python may decode fields that are decoded
            return
        name, value, what = idle[0]
        written = f"{{{key}: {decoder}}}" if key else decoder
        function = _INSTEAD.get(type(value), {}).get(kind) if kind else decoder
        how = "" if function else ", with your own function"
        remedy = f"write `map: {{{name}: {function or 'mylib:decode'}}}`{how}"
        if len(stored := self._list_bytes(raw)) == 1:
            remedy = f"`{stored[0]}` has bytes and no decoder: write `decode: {{{stored[0]}: {decoder}}}`"
        error = SpecError(
            f"`decode: {written}` decodes bytes, but {what} is {show_value(value, 40)}, so it would have no effect; "
            f"{remedy}"
        )
        raise add_place(error, raw, name)

    def _list_bytes(self, raw: Mapping[str, Any]) -> list[str]:
        """The fields of a sample that have bytes, and that nothing decodes."""
        return [
            self._names_of(stored)[0][0]
            for stored in raw
            for _, value in _first_of(raw[stored])
            if not is_reserved(stored)
            and value.__class__ is bytes
            and self.rules.decoder_of(stored, stored) is None
        ]

    def _lay_out(self, names: tuple[str, ...], fields: Mapping[str, str | None]) -> SampleLayout:
        present = {name: file for name, file in fields.items() if file is not None}
        suffix_of = self.naming.suffixes.get
        moves = [(name, name) for name in names if is_reserved(name)] + list(present.items())
        found = ((name, self.rules.decoder_of(name, suffix_of(file, file))) for name, file in present.items())
        decoders: dict[str, FieldDecoder] = {name: decoder for name, decoder in found if decoder is not None}
        self.media |= {name for name, decoder in decoders.items() if decoder.makes_media}
        return SampleLayout(
            moves=None if moves == [(name, name) for name in names] else tuple(moves),
            absent={name: None for name, stored in fields.items() if stored is None},
            plain=tuple((name, d.decode) for name, d in decoders.items()),
            others=tuple((name, d.decode) for name, d in decoders.items() if d.rescale is None),
            images=tuple((name, d.rescale) for name, d in decoders.items() if d.rescale is not None),
            labels={name: d.label for name, d in decoders.items()},
        )

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_names": {},
            "_layouts": {},
            "in_place": {},
            "media": set(),
            "_unmatched": {*self.rules.fields, *self.rules.names},
            "_tried": 0,
        }


def _with_parts(naming: Naming, source: Source, asides: frozenset[str]) -> Naming:
    """Return the names of a source with those of its joins and tables, and of files that only its selection reads."""
    return replace(
        NamingWithAsides.of(naming, asides) if asides else naming,
        columns=frozenset(name for lookup in source.lookup for name in lookup.names),
        suffixes={new: old for join in source.join for new, old in join.rename.items()},
    )


def _first_of(value: Any) -> Iterable[tuple[int, Any]]:
    """The first item of a list that is not None, or a value that is no list, with its place; nothing for None."""
    items = value if value.__class__ is list else [value]
    return islice(((at, each) for at, each in enumerate(items) if each is not None), 1)


def decode_items(decode: Callable[..., Any], data: list[Any], *drawn: Any) -> list[Any]:
    """Return a list with its bytes decoded, each like the value of a field, and all else as it is.

    Items are not rows of a batch, so nothing is decoded where a batch is put together.

    Raises:
        FieldError: an item cannot be decoded.
    """
    if bytes not in map(type, data):
        return data
    values = []
    with current.without_rows():
        for at, each in enumerate(data):
            try:
                values.append(decode(each, *drawn) if each.__class__ is bytes else each)
            except FieldError as error:
                error.message = f"item {at}: {error.message}"
                raise
            except WdspecError:
                raise
            except Exception as cause:
                raise FieldError(f"item {at}: cannot be decoded: {one_line(cause, each)}") from cause
    return values


def add_place(error: WdspecError, raw: Mapping[str, Any], field: str | None = None) -> WdspecError:
    """Add the place of a raw sample to an error."""
    return error.at(
        source=raw.get("__source__"), url=raw.get("__url__"), key=raw.get("__key__"), field=field or None
    )
