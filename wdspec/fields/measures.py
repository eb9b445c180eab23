"""What is known of a raw sample without decoding its pictures: the values that an expression reads.

`image.width` comes from the header of the picture, `tokens.length` from that of an `npy` file, and `json.score` from
the parsed JSON. Anything else is decoded as the spec says, and measured then. Fields that `map` sets are read from the
finished sample instead, which is an entry of the raw one (`FINISHED`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any, cast

from wdspec.base.amounts import pluralize
from wdspec.base.errors import FieldError, UsageError, WdspecError, nearest
from wdspec.fields.decode import one_line
from wdspec.fields.extensions import is_reserved, listed_fields
from wdspec.fields.samples import COMPANIONS, MADE, MAX_LAYOUTS, SampleFields, add_place, decode_items
from wdspec.spec.language.decoders import choose_decoder, is_in_header, reads_header
from wdspec.spec.language.expressions import (
    EACH,
    MISSING,
    Each,
    Path,
    PathBeforeMap,
    describe_lost_header,
    describe_path,
    suggest_path,
)

_TEXTS = frozenset({"txt", "json", "cls"})
"""Decoders whose values are never bytes, so that a value is decoded at most once."""
MOST_SHOWN = 60
"""Characters of a name in a value that errors propose."""
Reader = Callable[[dict[str, Any]], Any]
"""A raw sample → the value at a path."""
FINISHED = "__finished__"
"""The entry of a raw sample that holds the finished one."""
SIZES = "__sizes__"
"""The entry that holds the width and height of images that are not in the sample (`fetch`), or these images."""


class Measures:
    """Reads the values at some paths of the raw samples of a source.

    Args:
        fields: the fields of the source.
        paths: what to read.
        optional: the paths whose field or value a sample may lack; it is `MISSING` then.
        constants: further fields, the same in every sample.
        keeps_decoded: whether values that have to be decoded replace the bytes in the raw samples, so that they are not
            decoded again.
        after_map: the fields that are read from the finished sample; None for all.
        may_be_set: whether a function of `map` may set other fields without saying so, for the hint.
        packed: a field of `pack` whose length is read, as no expression says what samples cost.
    """

    def __init__(
        self,
        fields: SampleFields,
        paths: Sequence[Path],
        optional: Iterable[Path] = (),
        constants: Mapping[str, Any] | None = None,
        keeps_decoded: bool = False,
        after_map: frozenset[str] | None = frozenset(),
        may_be_set: bool = False,
        packed: str | None = None,
    ) -> None:
        self._fields, self._paths, self._optional = fields, tuple(paths), frozenset(optional)
        self._constants = constants or {}
        self._keeps_decoded, self._after_map, self._may_be_set = keeps_decoded, after_map, may_be_set
        self._packed = packed
        self._layouts: dict[tuple[str, ...], list[Reader] | None] = {}

    def __call__(self, raw: dict[str, Any]) -> list[Any] | None:
        """Return the values, in the order of the paths; None for a sample that `missing: skip` leaves out.

        Raises:
            FieldError: a field is missing, or has no such value.
        """
        names = tuple(raw)
        try:
            readers = self._layouts[names]
        except KeyError:
            if len(self._layouts) > MAX_LAYOUTS:
                self._layouts.clear()
            readers = self._layouts[names] = self._study(names)
        if readers is None:
            return None
        try:
            if len(readers) == 1:  # without the call of a comprehension
                return [readers[0](raw)]
            return [read(raw) for read in readers]
        except WdspecError:
            raise
        except Exception as cause:
            raise FieldError(f"cannot be measured: {one_line(cause)}") from cause

    def applying(self, function: Callable[..., Any], absent: Any) -> Reader:
        """Return the function of a raw sample that calls `function` with the values, faster than with `__call__`.

        Args:
            function: takes the values, in the order of the paths.
            absent: what to return for a sample that `missing: skip` leaves out.
        """
        layouts: dict[tuple[str, ...], Reader] = {}

        def apply(raw: dict[str, Any]) -> Any:
            names = tuple(raw)
            try:
                run = layouts[names]
            except KeyError:
                if len(layouts) > MAX_LAYOUTS:
                    layouts.clear()
                run = layouts[names] = _compose(function, self._study(names), absent)
            return run(raw)

        return apply

    def study(
        self, names: tuple[str, ...], function: Callable[..., Any] | None, absent: Any
    ) -> tuple[Reader, bool]:
        """Return `applying` for samples with these entries, and whether nothing is left to decode after it.

        Args:
            function: None returns the value of the only path.
        """
        decoded: set[str] = set()
        readers = self._study(names, decoded)
        steps = self._fields.steps_of(names) if self._keeps_decoded else None
        is_whole = steps is not None and decoded.issuperset(name for name, _ in steps)
        return _compose(function, readers, absent), is_whole

    def _study(self, names: tuple[str, ...], decoded: set[str] | None = None) -> list[Reader] | None:
        """Decide how to read samples of this layout.

        Args:
            decoded: gets the names of the fields that reading decodes for good.
        """
        if self._after_map is None:
            return [self._finished_reader(path, None) for path in self._paths]
        try:
            fields = self._fields.naming.arrange([name for name in names if not is_reserved(name)])
        except FieldError as error:
            raise self._fields.name_unread(error, names) from None
        return (
            None if fields is None else [self._reader(path, fields, names, decoded) for path in self._paths]
        )

    def _reader(
        self, path: Path, fields: Mapping[str, str | None], names: Sequence[str], decoded: set[str] | None
    ) -> Reader:
        name, optional = str(path[0]), path in self._optional
        if self._after_map and name in self._after_map and not isinstance(path, PathBeforeMap):
            return self._finished_reader(path, fields.get(name))
        if name in self._fields.made:
            return self._made_reader(path, fields, names)
        if name in self._fields.companions:
            return self._companion_reader(path)
        if name in self._constants:
            constant = walk(self._constants[name], path, optional)
            return lambda raw: constant
        stored = name if is_reserved(name) and name in names else fields.get(name)
        if stored is None:
            if optional:
                return lambda raw: MISSING
            stored_names = (each for each, of in fields.items() if of is not None)
            found = [*self._constants, *stored_names, *self._fields.made]
            needs = "pack" if name == self._packed else describe_path(path)
            raise FieldError(
                f"`{needs}` needs the field `{name}`, which the sample does not have before `map`; it "
                f"has {listed_fields(found)}. {self._hint(path, found)}",
                code="D201",
                field=name,
            )
        suffix = self._fields.naming.suffixes.get(stored, stored)
        if stored in self._fields.naming.objects:
            return self._size_reader(path, stored)
        measure = _measure_of(path[1:], suffix)
        if path[1:] == ("bucket",):
            bucket_of, image_size = self._bucket_of(name, suffix), _codec("image_decoder:image_size")
            measure = lambda data: bucket_of(*image_size(data))  # noqa: E731  # chosen once
        if measure is not None:
            return lambda raw: measure(raw[stored])
        decoder = self._fields.rules.decoder_of(name, suffix)
        keeps = self._keeps_decoded and decoder is not None and decoder.rescale is None
        if decoded is not None and decoder is not None and decoder.label in _TEXTS:
            decoded.add(stored)
        return _follow(stored, decoder.decode if decoder else bytes, keeps, path, optional)

    def _size_reader(self, path: Path, stored: str) -> Reader:
        """Return the function that reads a value from the size of an image that is not in the sample."""
        is_bucket, ending = path[1:] == ("bucket",), stored.lower().rpartition(".")[2]
        of_size = self._bucket_of(str(path[0]), stored) if is_bucket else _OF_SIZE[str(path[1])]

        def read(raw: dict[str, Any]) -> Any:
            size = raw[SIZES][stored]
            if size is None and path in self._optional:
                return MISSING
            if size is None or isinstance(size, list):
                code, why = "D264", "the images of a list have several sizes; use a column that has the value"
                if size is None:
                    code, why = "D262", f"there is no object; {_or_default(path)}"
                raise FieldError(f"`{describe_path(path)}`: {why}", code=code, field=stored)
            size = _codec("image_decoder:image_size")(size, ending) if isinstance(size, bytes) else size
            return of_size(*size)

        return read

    def _companion_reader(self, path: Path) -> Reader:
        """Return the function that reads the value at a path of a companion, which is not decoded yet."""
        name, at = str(path[0]), path[1] if len(path) > 1 and isinstance(path[1], int) else None
        rest = path[1:] if at is None else path[2:]
        inner = Measures(self._fields.companions[name], [rest] if rest else [])

        def read(raw: dict[str, Any]) -> Any:
            drawn = raw.get(COMPANIONS, {}).get(name)
            if at is not None and isinstance(drawn, list):
                drawn = drawn[at] if at < len(drawn) else None
            if drawn is None:
                if path in self._optional:
                    return MISSING
                raise FieldError(
                    f"`{describe_path(path)}` is of a companion, which the sample does not have; write "
                    f"`default({describe_path(path)}, 0)`",
                    field=name,
                )
            if isinstance(drawn, list):
                hint = f"write `{describe_path((name, 0, *rest))}` for the first"
                raise FieldError(f"`{name}` is a list of companions; {hint}", field=name)
            try:
                found = inner(drawn[1])
            except WdspecError as error:
                raise add_place(error, drawn[1]) from None
            return MISSING if found is None else found[0] if rest else 1

        return read

    def _made_reader(self, path: Path, fields: Mapping[str, str | None], names: Sequence[str]) -> Reader:
        """Return the function that reads the value at a path of a field of `make`, which it makes if need be."""
        name, optional = str(path[0]), path in self._optional
        entry = self._fields.made[name]
        entry.refuse_taken([each for each, stored in fields.items() if stored is not None])
        origins = Measures(self._fields, entry.origins, entry.origins, None, self._keeps_decoded)
        readers = [origins._reader(each, fields, names, None) for each in entry.origins]
        measure = entry.measure(path[1:])
        if measure is not None:
            return lambda raw: measure([each(raw) for each in readers])

        def read(raw: dict[str, Any]) -> Any:
            held = raw.get(MADE)
            if held is None:
                held = raw[MADE] = {}
            if name not in held:
                held.update(entry.make([each(raw) for each in readers], raw))
            return walk(held[name], path, optional)

        return read

    def _hint(self, path: Path, names: Sequence[str]) -> str:
        """Return what to do about a field that samples lack, which have fields of these names."""
        name = str(path[0])
        holder, dot, _ = name.partition(".")
        if dot and holder in names:
            return f"`{holder}` is a field, and `{name}` a value in it: add a field for this value in `map`"
        sets = f", or `sets: {name}` next to the `call` in `map` that adds it" if self._may_be_set else ""
        nearest = suggest_path(path, names, self._fields.naming.rename)
        if name == self._packed:  # not in an expression
            nearest = suggest_path((name,), names, self._fields.naming.rename)
            return (f"{nearest[:1].upper()}{nearest[1:]}" or "Name a field that samples have") + sets
        end = "" if nearest.endswith("?") else "."
        write = f"{nearest[:1].upper()}{nearest[1:]}{end} Otherwise, write" if nearest else "Write"
        return f"{write} `default({describe_path(path)}, 0)` if samples may lack it{sets}"

    def _finished_reader(self, path: Path, stored: str | None) -> Reader:
        """Return the function that reads the value at a path of a finished sample.

        Args:
            stored: the entry of which the field is made; None if it is not known.

        Raises:
            UsageError: the value is in the header of a file, and not in what `map` makes of it.
        """
        name, optional = str(path[0]), path in self._optional
        suffix = None if stored is None else self._fields.naming.suffixes.get(stored, stored)
        if suffix is not None and len(path) == 2 and reads_header(suffix, str(path[1])):
            raise UsageError("; ".join(describe_lost_header(describe_path(path), name)))

        def read(raw: dict[str, Any]) -> Any:
            sample = raw[FINISHED]
            if name in sample:
                return walk(sample[name], path, optional)
            if optional:
                return MISSING
            raise FieldError(
                f"`{describe_path(path)}` needs the field `{name}`, which the sample does not have after `map` and "
                f"`fields`; it has {listed_fields(list(sample))}",
                code="D201",
                field=name,
            )

        return read

    def _bucket_of(self, name: str, suffix: str) -> Callable[[int, int], str]:
        """Return what says the bucket of an image of a width and height, such as `832x1216`."""
        rules = self._fields.rules
        chosen = choose_decoder(rules.names, rules.fields, name, suffix)
        framing = None if chosen is None or ":" in chosen else _codec("framing:Framing.of")(chosen)
        if framing is None or framing.bucket is None:
            raise FieldError(
                f"`{name}.bucket` needs a decoder with buckets: `decode: {{{name}: rgb8+bucket=1024+step=64}}`",
                field=name,
            )

        def bucket(width: int, height: int) -> str:
            width, height = framing.bucket_of((width, height))
            return f"{width}x{height}"

        return bucket


def _compose(function: Callable[..., Any] | None, readers: list[Reader] | None, absent: Any) -> Reader:
    """Return the function of a raw sample that calls `function` with what the readers return."""
    if readers is None:
        return lambda raw: absent
    if function is None:
        [read] = readers
        return read
    match readers:
        case [read]:
            return lambda raw: function(read(raw))
        case [first, second]:
            return lambda raw: function(first(raw), second(raw))
        case _:
            return lambda raw: function(*[read(raw) for read in readers])


def _follow(stored: str, decode: Callable[[bytes], Any], keeps: bool, path: Path, optional: bool) -> Reader:
    """Return the function that decodes a field and follows a path in it."""
    part = path[1] if len(path) == 2 else None

    def follow(raw: dict[str, Any]) -> Any:
        value = raw[stored]
        if value.__class__ is bytes:
            value = decode(value)
            if keeps and value.__class__ is not bytes:  # those would be decoded again
                raw[stored] = value
        elif value.__class__ is list:
            value = decode_items(decode, value)
        if value.__class__ is dict and part in value:  # most paths, without a loop
            return value[part]
        return walk(value, path, optional)

    def follow_text(
        raw: dict[str, Any],
    ) -> Any:  # `follow` for the length of a text, which is asked for most often
        value = raw[stored]
        if value.__class__ is bytes:
            value = decode(value)
            if keeps and value.__class__ is not bytes:
                raw[stored] = value
        return len(value) if value.__class__ is str else walk(value, path, optional)

    return follow_text if part == "length" else follow


def walk(value: Any, path: Path, optional: bool) -> Any:
    """Follow a path into a decoded value. Raises FieldError where it ends."""
    whole = value
    for at, part in enumerate(path[1:], 1):
        if part.__class__ is Each:  # to compare takes longer, and this runs for every value
            return _walk_each(whole, value, path, at, optional)
        if _has(value, part):
            value = value[part]
        elif part == "length" and hasattr(value, "__len__") and not isinstance(value, dict):
            value = len(value)
        elif optional:
            return MISSING
        else:
            message = f"`{describe_path(path)}`: {_describe_end(whole, path)}"
            raise FieldError(message, field=str(path[0]))
    return as_number(value)


def _walk_each(whole: Any, value: Any, path: Path, at: int, optional: bool) -> Any:
    """Follow a path into each item of a list, which is the value before `path[at]`; None for what an item lacks."""
    if isinstance(value, (list, tuple)):
        if optional and at + 1 < len(path):
            _check_items(value, path, at)
        places = (type(path)((*path[:at], number, *path[at + 1 :])) for number in range(len(value)))
        found = [walk(whole, place, optional) for place in places]
        return [None if each is MISSING else each for each in found]
    if getattr(value, "ndim", 0) and at == len(path) - 1:
        return value
    if value is None and optional:
        return MISSING
    kind = "null" if value is None else "a map" if isinstance(value, dict) else f"a {type(value).__name__}"
    holder, rest = describe_path(path[:at]), describe_path(type(path)((*path[:at], *path[at + 1 :])))
    hint = _or_default(path) if value is None else f"write `{rest}`"
    raise FieldError(f"`{describe_path(path)}`: `{holder}` is {kind}, not a list; {hint}", field=str(path[0]))


def _check_items(items: Sequence[Any], path: Path, at: int) -> None:
    """Refuse items that cannot have the value after `path[at]`: numbers, and texts unless they are between maps.

    Raises:
        FieldError: there is such an item.
    """
    part = path[at + 1]
    if not isinstance(part, str) or part == "length":
        return
    has_maps = any(isinstance(each, dict) for each in items)
    for number, each in enumerate(items):
        if each is None or isinstance(each, (dict, list, tuple)) or (has_maps and isinstance(each, str)):
            continue
        place = describe_path(type(path)((*path[:at], number)))
        kind = "a text" if isinstance(each, str) else f"of the type {type(each).__name__}"
        remedy = "correct the data"
        if not has_maps:
            remedy = f"write `{describe_path(path[: at + 1])}` for the items themselves"
        raise FieldError(
            f"`{describe_path(path)}`: `{place}` is {kind}, not a map with `{part}`; {remedy}",
            field=str(path[0]),
        )


def _describe_end(value: Any, path: Path) -> str:
    """Where a path ends in a value, and how the path may have been meant."""
    at = 1
    while _has(value, path[at]):
        value, at = value[path[at]], at + 1
    part = path[at]

    def write(*parts: str | int) -> str:
        return f"; write `{describe_path(type(path)((*path[:at], *parts, *path[at + 1 :])))}`"

    if value is None:
        return f"there is no `{part}` in it, as it is null; {_or_default(path)}"
    if isinstance(value, dict):
        names = [name for name in value if isinstance(name, str) and len(name) <= MOST_SHOWN]
        message = f"there is no `{part}` in it, which has the keys {', '.join(map(str, list(value)[:8])) or '(none)'}"
        if (likely := nearest(part, names)) is not None:
            return message + write(likely)
        inside = next((name for name in names if _has(value[name], part)), None)
        return f"{message}; {_or_default(path)}" if inside is None else message + write(inside, part)
    if isinstance(value, (list, tuple)):
        message = f"there is no `{part}` in it, which is a list of {pluralize(len(value), 'value')}"
        each = describe_path(type(path)((*path[:at], EACH, *path[at:])))
        return f"{message}{write(0, part)}, or `{each}`" if value and _has(value[0], part) else message
    message = f"there is no `{part}` in it, which is a value of the type {type(value).__name__}"
    if hasattr(value, "__len__") and nearest(part, ["length"]) is not None:
        return message + write("length")
    return f"{message}; {_or_default(path)}"


def _or_default(path: Path) -> str:
    return f"write `default({describe_path(path)}, 0)` if samples may lack it"


def as_number(value: Any) -> Any:
    """Return the number in an array, a tensor or a scalar of numpy without axes; other values as they are."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value


def _has(value: Any, part: str | int) -> bool:
    if isinstance(value, (list, tuple)):
        return isinstance(part, int) and -len(value) <= part < len(value)
    return isinstance(value, dict) and part in value


def _measure_of(rest: Path, stored: str) -> Callable[[bytes], Any] | None:
    """Return what reads a value from the header of a file; None if it has to be decoded."""
    if not is_in_header(stored, rest):
        return None
    part, ending = str(rest[0]), stored.lower().rpartition(".")[2]
    if part == "seconds":
        return cast(Callable[[bytes], Any], _codec("recording:read_seconds"))
    if part == "length":
        npy_shape = _codec("arrays:npy_shape")
        return lambda data: npy_shape(data)[0]
    of_size, image_size = _OF_SIZE[part], _codec("image_decoder:image_size")
    return lambda data: of_size(*image_size(data, ending))


def _codec(name: str) -> Any:
    """Return a function of a codec. Codecs are imported when a value is first read: counting samples needs none."""
    return resolve_name(f"wdspec.fields.codecs.{name}")


_OF_SIZE: Mapping[str, Callable[[int, int], float | str]] = {
    "width": lambda width, height: width,
    "height": lambda width, height: height,
    "pixels": lambda width, height: width * height,
    "aspect": lambda width, height: width / height,
}
