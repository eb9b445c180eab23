"""`fetch`: objects that samples name are read ahead, in the order in which samples are decoded.

`Objects.before` puts the objects of a raw sample into it, before it is decoded: this alone decides what samples are.
Where it is known which samples come next, a `LookAhead` has their objects read meanwhile. It has no effect on samples,
and where there is none this costs only time.

All of a process share one `Fetcher`: its threads, and its budget of bytes for the objects that are being read or
wait for their sample. The object that a sample waits for is always read, so nothing can wait for itself. A reader takes
it over if no thread has begun it.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from wdspec.base.amounts import pluralize, show_value
from wdspec.base.errors import FieldError, LeftOutError, ShardError, UrlError
from wdspec.base.process import KeyedValues, PerProcess
from wdspec.base.trials import Trial, current_source
from wdspec.fields.decode import one_line
from wdspec.fields.extensions import Naming, NamingWithAsides
from wdspec.fields.made_field import describe_keys
from wdspec.fields.measures import SIZES, Measures
from wdspec.fields.samples import SampleFields
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.left import OF_OBJECTS
from wdspec.spec.language.expressions import EACH, MISSING, Expression, Path, describe_path
from wdspec.spec.language.fetching import FetchedObject, parse_url
from wdspec.spec.spec import Source, Spec
from wdspec.storage.objects import START, MissingObject, ObjectReader, Reference, unpack_size
from wdspec.storage.storage import Storage

Sample = dict[str, Any]
Process = Callable[[Sample, int], "Sample | None"]
T = TypeVar("T")
REQUESTS = 32
"""Objects that a process requests at a time."""
EXPECTED = 256 * 1024
"""Bytes that an object is expected to have before one was read."""
FETCHING = "__fetching__"
"""The entry of a raw sample that has the objects which are being read for it."""
_RECENT = 16
"""How many objects the expected size of the next one depends on."""


class Fetcher:
    """Reads objects in threads, as many as fit into a budget of bytes.

    Args:
        memory: the budget.
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self._lock = threading.Condition()
        self._held = 0
        """Bytes of the objects that are being read or wait for their samples, as far as they are known."""
        self._running = self._threads = self.streams = 0
        """Objects that are requested; threads; and how many read ahead."""
        self._mean = float(min(EXPECTED, memory))
        self._queue: SimpleQueue[Fetch] = SimpleQueue()
        self._fetches: dict[tuple[ObjectReader, Reference], Fetch] = {}
        """The objects that are being read or wait for their samples."""

    def has_room(self, started: int) -> bool:
        """Whether another object may be read ahead, by one that has so many already: all have equal parts."""
        return (
            self._running < REQUESTS
            and self._held + self._mean <= self.memory
            and started * self._mean * self.streams <= self.memory
        )

    @property
    def expected(self) -> int:
        """The number of bytes that an object probably has."""
        return int(self._mean)

    def start(self, reader: ObjectReader, reference: Reference, *, now: bool = False) -> Fetch:
        """Start to read an object, unless it is there; the caller `take`s or `drop`s the result.

        Args:
            reader: reads it.
            reference: what to read.
            now: whether the caller takes it at once.
        """
        key = reader, reference
        with self._lock:
            fetch = self._fetches.get(key)
            if fetch is not None:
                fetch.takers += 1
                return fetch
            size = 0 if now else START if reference.of_header else int(self._mean)
            fetch = self._fetches[key] = Fetch(self, reader, reference, size)
            self._held += size
            if now:
                return fetch
            self._running += 1
            if self._threads < min(self._running, REQUESTS):
                self._threads += 1
                name = f"wdspec-fetch-{self._threads}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
        self._queue.put(fetch)
        return fetch

    def _serve(self) -> None:
        while True:
            fetch = self._queue.get()
            fetch.run()
            with self._lock:
                self._running -= 1
            del fetch

    def reserve(self, fetch: Fetch, size: int) -> None:
        """Wait until an object of this size fits, or its sample waits for it."""
        with self._lock:
            more = size - fetch.size
            if more <= 0:
                return
            while self._held + more > self.memory and not fetch.is_awaited and fetch.takers:
                self._lock.wait()
            fetch.size = size
            self._held += more

    def settle(self, fetch: Fetch, size: int) -> None:
        """Note the size of an object that was read."""
        with self._lock:
            size = size if fetch.takers else 0
            if size and not fetch.reference.of_header:
                self._mean += (size - self._mean) / _RECENT
            self._held += size - fetch.size
            fetch.size = size
            self._lock.notify_all()

    def claim(self, fetch: Fetch) -> bool:
        """Return whether the caller has to read an object, since nobody has begun."""
        with self._lock:
            is_first, fetch.is_begun = not fetch.is_begun, True
            return is_first

    def expect(self, fetch: Fetch) -> None:
        """Note that a sample waits for an object."""
        with self._lock:
            fetch.is_awaited = True
            self._lock.notify_all()

    def release(self, fetch: Fetch) -> None:
        """Forget an object that no other sample takes."""
        with self._lock:
            fetch.takers -= 1
            if fetch.takers:
                return
            self._fetches.pop((fetch.reader, fetch.reference), None)
            self._held -= fetch.size
            fetch.size, fetch.data = 0, b""
            self._lock.notify_all()


class Fetch:
    """An object that is read for one or several samples."""

    __slots__ = (
        "_done",
        "_error",
        "_fetcher",
        "_stream",
        "data",
        "is_awaited",
        "is_begun",
        "reader",
        "reference",
        "size",
        "takers",
    )

    def __init__(self, fetcher: Fetcher, reader: ObjectReader, reference: Reference, size: int) -> None:
        self._fetcher, self.reader, self.reference = fetcher, reader, reference
        self.size, self.takers = size, 1
        self.is_begun = self.is_awaited = False
        self.data = b""
        self._error: BaseException | None = None
        self._stream: Any = None
        self._done = threading.Event()

    def run(self) -> None:
        """Read the object, unless that was begun or is no longer needed."""
        if not self._fetcher.claim(self):
            return
        try:
            if self.takers:
                fetcher = self._fetcher
                self.data = self.reader.read(self.reference, fetcher.memory, fetcher.expected, self)
        except BaseException as error:
            self._error = error
        finally:
            self._stream = None
            self._fetcher.settle(self, len(self.data))
            self._done.set()

    def reserve(self, size: int) -> None:
        """Wait until so many bytes fit into the budget."""
        self._fetcher.reserve(self, size)

    def note_open(self, stream: Any) -> None:
        """Note the stream of the object."""
        self._stream = stream
        self._end_unneeded()

    def _end_unneeded(self) -> None:
        """End the reading of an object that no sample takes any more: its store may be retried for minutes."""
        stream = self._stream
        if not self.takers and hasattr(stream, "abort"):
            stream.abort(ShardError("the object is no longer needed"))

    def take(self) -> bytes:
        """Wait for the object and return it. Raises what reading it raises."""
        try:
            self._fetcher.expect(self)
            self.run()
            self._done.wait()
            if self._error is not None:
                raise self._error
            return self.data
        finally:
            self.drop()

    def drop(self) -> None:
        """Do without the object."""
        self._fetcher.release(self)
        if not self._done.is_set():
            self._end_unneeded()


_fetchers: PerProcess[KeyedValues[int, Fetcher]] = PerProcess(KeyedValues)


def _plain(value: Any) -> Any:
    """Return the number in a scalar of NumPy or PyTorch. Other values, such as arrays, remain what they are."""
    try:
        return value.item() if hasattr(value, "item") else value
    except (ValueError, RuntimeError):
        return value


@dataclass(frozen=True)
class FetchedField:
    """How the objects of a field are found and read. It can be pickled."""

    name: str
    entry: FetchedObject
    reader: ObjectReader
    missing: str
    """What to do with samples without an object."""
    of_header: bool = False
    """Whether only the size of an image is read."""

    @cached_property
    def trial(self) -> Trial:
        """Whether any of the first objects exists."""
        return Trial(self._describe_lack)

    def _describe_lack(self, objects: int, found: Counter[str]) -> str:
        whose = f"`fetch: {self.name}` has none of the first {pluralize(objects, 'object')}"
        lacks = f"`{self.entry.url}` is null"  # of samples that may well have no object, if others name one
        reasons = [why for why, _ in found.most_common()]
        why = next((each for each in reasons if not each.startswith(lacks)), reasons[0])
        return f"{whose}: {why}{'' if why.endswith('?') else '; correct `url` or `root`'}"

    def references_of(self, values: list[Any]) -> list[Reference | None] | Reference | None:
        """Return what a sample names, a list if it has a list of references; None in place of what names nothing.

        Args:
            values: the values of the entry's `origins`.

        Raises:
            FieldError: one is not a reference, or not an allowed one.
        """
        found = [None if each is MISSING else each for each in values]
        lists = [_items_of(each) for each in found]
        at = None
        try:
            if all(each is None for each in lists) or self._names_nothing(found):
                return self._reference_of(found)
            items: list[Reference | None] = []
            for each in self._by_item(found, lists):
                at = len(items)
                items.append(self._reference_of(each))
            return items
        except FieldError as error:
            raise self.place(error, at) from error.__cause__

    def _by_item(self, found: list[Any], lists: list[list[Any] | None]) -> Iterator[list[Any]]:
        """Return the values of each item: those of the lists, and others as they are."""
        lengths = {len(each) for each in lists if each is not None}
        if len(lengths) > 1:
            names = map(describe_path, self.entry.origins)
            found_lists = ((name, each) for name, each in zip(names, lists, strict=True) if each is not None)
            shown = [f"`{name}` has {pluralize(len(each), 'item')}" for name, each in found_lists]
            raise FieldError(
                f"its lists need an item for each object, but {' and '.join(shown)}; make them equally long",
                code="D261",
            )
        count = lengths.pop()
        parts = zip(found, lists, strict=True)
        columns = [[whole] * count if each is None else each for whole, each in parts]
        return map(list, zip(*columns, strict=True))

    def _names_nothing(self, found: list[Any]) -> bool:
        """Whether a part of the reference is null or empty."""
        parts = found[: len(parse_url(self.entry.url).paths)]
        return any(each is None or (isinstance(each, (str, bytes)) and not each.strip()) for each in parts)

    def _reference_of(self, found: list[Any]) -> Reference | None:
        """Return a reference, whose values are no lists; None if it names nothing."""
        if self._names_nothing(found):
            return None
        paths, form = parse_url(self.entry.url)
        parts, rest = found[: len(paths)], found[len(paths) :]
        text = self._text_of(parts[0], paths[0]) if form is None else self._fill(form, parts, paths)
        span = digest = seconds = None
        if self.entry.span is not None:
            span, rest = self._span(rest[:2]), rest[2:]
        if self.entry.sha256 is not None:
            digest, rest = self._digest(rest[0]), rest[1:]
        if self.entry.times is not None:
            seconds = self._times(self.entry.times, rest)
        try:
            located = self.reader.allowed.locate(text)
        except UrlError as error:
            raise self._error(error.message, "D261") from None
        return Reference(located, span, digest, seconds, self.of_header)

    def _text_of(self, value: Any, path: Path) -> str:
        try:
            text = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            text = None
        if not isinstance(text, str):
            kind = (
                "bytes that are not text" if isinstance(value, bytes) else f"of type {type(value).__name__}"
            )
            remedy = "write the path of a text, or of a list of texts"
            if isinstance(value, dict) and (
                key := next((each for each in value if isinstance(value[each], str)), "")
            ):
                remedy = f"write `{describe_path((*path, EACH, key))}` for the value of each map in a list"
            raise self._error(f"`{describe_path(path)}` is {kind}, not a reference; {remedy}", "D261")
        return text

    def _fill(self, form: str, parts: list[Any], paths: tuple[Path, ...]) -> str:
        """Return the text with values in its braces: texts, and whole numbers."""
        values = list(map(_plain, parts))
        texts = [
            value if type(value) is int else self._text_of(value, path)
            for value, path in zip(values, paths, strict=True)
        ]
        try:
            return form.format(*texts)
        except ValueError:
            shown = ", ".join(map(show_value, texts))
            raise self._error(f"`{self.entry.url}` needs whole numbers, and has {shown}", "D261") from None

    def _span(self, ends: list[Any]) -> tuple[int, int]:
        start, stop = map(_plain, ends)
        if type(start) is not int or type(stop) is not int or not 0 <= start < stop:
            written = " and ".join(f"`{text}`" for text in self.entry.span or ())
            raise self._error(
                f"{written} are {str(start)[:30]} and {str(stop)[:30]}, not a range: write the first byte, and "
                "the one after the last",
                "D264",
            )
        return start, stop

    def _times(self, times: Expression, found: list[Any]) -> tuple[float, float]:
        pairs = zip(times.paths, found, strict=True)
        lacking = [path for path, value in pairs if value is None and path not in times.optional]
        if lacking:
            raise self._error(
                f"`{describe_path(lacking[0])}` of `seconds` is null, or the sample lacks it", "D264"
            )
        try:
            ends = times.evaluate(*found)
            are_numbers = all(isinstance(end, (int, float)) and math.isfinite(end) for end in ends)
        except Exception as cause:
            raise self._error(f"`seconds`: {one_line(cause)}", "D264") from cause
        if not are_numbers:
            shown = " and ".join(show_value(end) for end in ends)
            raise self._error(f"`seconds` is {shown}, which are not two numbers of seconds", "D264")
        start, stop = map(float, ends)
        if not 0 <= start < stop:
            raise self._error(
                f"`seconds` goes from {start:g} to {stop:g}, which is no time span: write the start, then the end",
                "D264",
            )
        return start, stop

    def _digest(self, value: Any) -> str:
        text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
        digest = text.strip().lower().removeprefix("sha256:") if isinstance(text, str) else ""
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise self._error(
                f"`{self.entry.sha256}` is {str(value)[:30]!r}, not a SHA-256 digest in 64 hexadecimal digits",
                "D264",
            )
        return digest

    def lacking(self, why: str, has_reference: bool) -> FieldError:
        """Return the error for a sample without an object."""
        if self.missing == "skip":
            name = f"`{self.entry.url}`"
            what = f"{OF_OBJECTS[0]}that {name} names" if has_reference else f"{OF_OBJECTS[1]}{name}"
            return LeftOutError(f"{what} for `{self.name}`", cause="missing")
        hint = "set `missing: skip` to leave out such samples, or `missing: none`"
        if not has_reference:
            hint += ", or, to keep them among others with lists, write an empty list in the data"
        return self._error(f"{why}; {hint}", "D262")

    def _error(self, message: str, code: str) -> FieldError:
        return FieldError(message, code=code)

    def place(self, error: FieldError, at: int | None) -> FieldError:
        """Return an error with the name of the field, and the number of the item in a list."""
        if isinstance(error, LeftOutError):
            return error
        item = "" if at is None else f", item {at}"
        return FieldError(
            f"`fetch: {self.name}`{item}: {error.message}", code=error.code, field=self.name, **error.place
        )


def _items_of(value: Any) -> list[Any] | None:
    """Return the items of a list, a tuple or an array; None for other values."""
    if isinstance(value, (list, tuple)):
        return list(value)
    items = value.tolist() if getattr(value, "ndim", 0) else None
    return items if isinstance(items, list) else None


@dataclass(frozen=True)
class Objects:
    """The objects that the samples of a source name. It can be pickled."""

    fetched: tuple[FetchedField, ...]
    fields: SampleFields
    """What reads references."""
    tags: Mapping[str, Any]
    memory: int
    """The budget of bytes of a process."""
    keeps_decoded: bool = True
    """Whether fields that are decoded to read references need not be decoded again."""
    see: Callable[[Sample], object] | None = None
    """Called with each raw sample that has its objects."""
    measured: frozenset[str] = frozenset()
    """The fields of which the size of the image says what a sample costs."""

    @property
    def fetcher(self) -> Fetcher:
        """What reads objects in this process."""
        return _fetchers.value.get(self.memory, lambda: Fetcher(self.memory))

    @cached_property
    def headers(self) -> Objects | None:
        """What reads only the sizes of the images that are measured; None if there are none."""
        of_headers = (
            dataclasses.replace(each, entry=each.entry.model_copy(update={"sha256": None}), of_header=True)
            for each in self.fetched
            if each.name in self.measured
        )
        return dataclasses.replace(self, fetched=tuple(of_headers)) if self.measured else None

    @cached_property
    def holders(self) -> frozenset[str]:
        """The stored fields that hold the references."""
        names = [str(path[0]) for each in self.fetched for path in each.entry.origins]
        return frozenset(old for name in names for old in self.fields.naming.rename.get(name, (name,)))

    def measures(self) -> Measures:
        """Return what reads references from raw samples."""
        paths = [path for each in self.fetched for path in each.entry.origins]
        return Measures(self.fields, paths, paths, self.tags, self.keeps_decoded)

    def before(self, process: Process, budget: ErrorBudget) -> Process:
        """Return the function that puts the objects into a raw sample, and then calls `process`."""
        take = self._taking(budget)

        def fetch_and_process(raw: Sample, ordinal: int) -> Sample | None:
            whole = dict(raw)
            whole.pop(SIZES, None)
            found = take(raw, whole.pop(FETCHING, None))
            if found is None:
                return None
            whole.update(found)
            if self.measured and SIZES not in raw:  # samples are decoded before they are measured
                raw[SIZES] = found
            if self.see is not None:
                self.see(whole)
            return process(whole, ordinal)

        return fetch_and_process

    def before_measuring(self, choose: Process, budget: ErrorBudget) -> Process:
        """Return the function that puts the sizes of images into a raw sample, and then calls `choose`."""
        take = self._taking(budget)

        def fetch_and_choose(raw: Sample, ordinal: int) -> Sample | None:
            waiting = raw.get(FETCHING)
            found = take(raw, waiting)
            if not waiting:
                raw.pop(FETCHING, None)
            if found is None:
                return None
            raw[SIZES] = {name: _unpack(packed) for name, packed in found.items()}
            return choose(raw, ordinal)

        return fetch_and_choose

    def _taking(self, budget: ErrorBudget) -> Callable[[Sample, deque[StartedSample] | None], Sample | None]:
        """Return the function that waits for the objects of a raw sample; None for one that is left out."""
        measure = self.measures()

        def take(raw: Sample, waiting: deque[StartedSample] | None) -> Sample | None:
            outer = current_source.set(budget.source)
            try:
                started = waiting.popleft() if waiting else self.start(measure, raw, now=True)
                found = started.take(raw, partial(budget.note_lost, url=raw["__url__"], key=raw["__key__"]))
                if any(found.values()):
                    budget.refusals = 0
                return found
            except LeftOutError as error:
                budget.dropped[error.cause] += 1
                budget.lack = error.message
            except Exception as error:
                budget(error, "decode", url=raw["__url__"], key=raw["__key__"])
            finally:
                current_source.reset(outer)
            return None

        return take

    def again_for(self, raw: Sample, stored: Sample | None) -> Sample | None:
        """Return a sample that could not be decoded with its objects as their stores have them.

        Args:
            raw: the sample, with its objects.
            stored: the sample as the store of its shard has it; None if it was not read from a copy.

        Returns:
            None if nothing was read from a damaged copy.
        """
        found = {}
        for each, references, is_list in self.references_of(self.measures(), raw):
            data = raw[each.name] if is_list else [raw[each.name]]
            again = [
                None
                if reference is None or old is None
                else each.reader.read_again(reference, old, self.memory)
                for reference, old in zip(references, data, strict=True)
            ]
            if any(new is not None for new in again):
                data = [old if new is None else new for old, new in zip(data, again, strict=True)]
                found[each.name] = data if is_list else data[0]
        if stored is None and not found:
            return None
        return {
            **(raw if stored is None else stored),
            **{each.name: raw[each.name] for each in self.fetched},
            **found,
        }

    def look_ahead(
        self, items: Iterator[T], fetching: Callable[[T], Iterable[tuple[Sample, Objects]]]
    ) -> Iterator[T]:
        """Yield items and read ahead; see `LookAhead`."""
        return iter(LookAhead(items, fetching, self.fetcher))

    def start(self, measure: Measures, raw: Sample, *, now: bool = False) -> StartedSample:
        """Start to read the objects of a raw sample. Errors are raised when they are taken."""
        started = StartedSample()
        try:
            named = self.references_of(measure, raw)
            is_alone = sum(len(references) for _, references, _ in named) == 1
            for each, references, is_list in named:
                fetches = deque[Fetch | None]()
                started.fetches.append((each, fetches, is_list))
                fetches.extend(
                    reference and self.fetcher.start(each.reader, reference, now=now and is_alone)
                    for reference in references
                )
        except Exception as error:
            started.error = error
        return started

    def references_of(
        self, measure: Measures, raw: Sample
    ) -> list[tuple[FetchedField, list[Reference | None], bool]]:
        """Return what a raw sample names for each field, and whether it has a list for it.

        Raises:
            LeftOutError: the sample is to be left out.
            FieldError: a value is not a reference, or not an allowed one.
        """
        values = measure(raw)
        if values is None:
            raise LeftOutError("", cause="missing")
        named = []
        for each in self.fetched:
            count = len(each.entry.origins)
            references, values = each.references_of(values[:count]), values[count:]
            is_list = isinstance(references, list)
            named.append((each, references if isinstance(references, list) else [references], is_list))
        return named


MOST_AHEAD = 128
"""Samples whose objects are requested ahead at most."""


class LookAhead(Generic[T]):
    """Yields some items, and meanwhile reads the objects of the samples in the items that follow.

    Args:
        items: may be read before they are needed; an error is raised when its item is. If one is `STOP`, which is not
            yielded, nothing after it is read before all others are used.
        fetching: the raw samples of an item, in the order in which they are processed, each with its objects.
        fetcher: reads the objects.
        most: how many samples, and items, it is ahead at most.
    """

    def __init__(
        self,
        items: Iterator[T],
        fetching: Callable[[T], Iterable[tuple[Sample, Objects]]],
        fetcher: Fetcher,
        most: int = MOST_AHEAD,
    ) -> None:
        self._items, self._fetching, self._fetcher, self._most = items, fetching, fetcher, most
        self._following = deque[tuple[T, list[tuple[Sample, Objects]]]]()
        self._pending = deque[tuple[T, Sample, Objects]]()
        """The samples of which no object is requested yet."""
        self._measures: dict[int, Measures] = {}
        self._last: list[tuple[Sample, Objects]] = []
        """The samples of the item that was yielded last."""
        self._failure: Exception | None = None
        self._is_open = True
        self.started = self.objects = 0
        """The number of samples whose objects are requested and not taken yet, and of these objects."""

    def __iter__(self) -> Iterator[T]:
        self._fetcher.streams += 1
        try:
            while True:
                if not self._following and self._is_open:
                    self._pull()
                if not self._following:
                    break
                self.forget_last()
                self.fill()
                item, self._last = self._following.popleft()
                if item is STOP:
                    self._is_open = self._failure is None
                    continue
                while self._pending and self._pending[0][0] is item:
                    self._pending.popleft()  # its objects are read when it is processed
                yield item
            if self._failure is not None:
                raise self._failure
        except BaseException:
            self.forget_last()
            raise
        finally:
            self._fetcher.streams -= 1
            for _, raws in self._following:
                self._forget(raws)

    def fill(self) -> None:
        """Request objects, as many as there is room for."""
        while self.started < self._most and (self._pending or len(self._following) < self._most):
            if not self._fetcher.has_room(self.objects):
                return
            if self._pending:
                _, raw, objects = self._pending.popleft()
                measure = self._measures.get(id(objects))
                if measure is None:
                    measure = self._measures[id(objects)] = objects.measures()
                started = objects.start(measure, raw)
                started.note_ahead(self)
                raw.setdefault(FETCHING, deque()).append(started)
            elif self._is_open:
                self._pull()
            else:
                return

    def note(self, samples: int, objects: int) -> None:
        """Count samples whose objects are requested, or, below 0, no longer waiting."""
        self.started += samples
        self.objects += objects

    def forget_last(self) -> None:
        """Drop what was requested for the last item, which the caller may still use after all items were yielded."""
        self._forget(self._last)
        self._last = []

    def _forget(self, raws: Iterable[tuple[Sample, Objects]]) -> None:
        """Drop what was requested here for samples that were not processed."""
        for raw, _ in raws:
            waiting = raw.get(FETCHING, ())
            for started in [each for each in waiting if each.ahead is self]:
                waiting.remove(started)
                started.drop()
            if not waiting:
                raw.pop(FETCHING, None)

    def _pull(self) -> None:
        try:
            item = next(self._items)
        except StopIteration:
            self._is_open = False
        except Exception as error:
            self._failure, self._is_open = error, False
        else:
            self._is_open = item is not STOP
            raws = list(self._fetching(item)) if self._is_open else []
            self._following.append((item, raws))
            self._pending.extend((item, *each) for each in raws)


STOP: Any = object()


class StartedSample:
    """The objects of a sample, which are being read."""

    __slots__ = ("_count", "ahead", "error", "fetches")

    def __init__(self) -> None:
        self.fetches: list[tuple[FetchedField, deque[Fetch | None], bool]] = []
        """The objects of each field, and whether they are a list."""
        self.error: Exception | None = None
        self.ahead: LookAhead[Any] | None = None
        """What has requested the objects ahead."""
        self._count = 0

    def note_ahead(self, ahead: LookAhead[Any]) -> None:
        """Note what has requested the objects ahead: it is told when they are taken, or dropped."""
        self.ahead = ahead
        self._count = sum(len(fetches) for _, fetches, _ in self.fetches)
        ahead.note(1, self._count)

    def take(self, raw: Sample, note_lost: Callable[[FieldError], None]) -> dict[str, Any]:
        """Wait for the objects, and return them by field.

        Args:
            raw: the sample.
            note_lost: called with the error of an object that does not exist, where `missing` allows that.

        Raises:
            LeftOutError: the sample is to be left out.
            FieldError: an object is missing, or cannot be read.
        """
        if self.error is not None:
            self.drop()
            raise self.error
        found: dict[str, Any] = {}
        try:
            for field, fetches, is_list in self.fetches:
                if field.name in raw:
                    raise FieldError(
                        f"`fetch` makes the field `{field.name}`, but the sample already has one of this name; choose "
                        "another name in `fetch`",
                        code="D206",
                        field=field.name,
                    )
                taken: list[bytes | None] = []
                while fetches:
                    taken.append(
                        _take(field, fetches.popleft(), len(taken) if is_list else None, raw, note_lost)
                    )
                found[field.name] = taken if is_list else taken[0]
            ahead = self.ahead
        finally:
            self.drop()
        if ahead is not None:
            ahead.fill()
        return found

    def drop(self) -> None:
        """Do without the objects that were not taken."""
        for _, fetches, _ in self.fetches:
            for fetch in fetches:
                if fetch is not None:
                    fetch.drop()
        self.fetches.clear()
        if self.ahead is not None:
            self.ahead.note(-1, -self._count)
            self.ahead = None


def _unpack(packed: Any) -> Any:
    """Return the size of an image, or of each one in a list; None if there is no object."""
    if isinstance(packed, list):
        return list(map(_unpack, packed))
    return None if packed is None else unpack_size(packed)


def _take(
    field: FetchedField,
    fetch: Fetch | None,
    at: int | None,
    raw: Sample,
    note_lost: Callable[[FieldError], None],
) -> bytes | None:
    """Return an object of a field; None if there is none and `missing` allows it.

    Args:
        at: its number in a list; None without one.
        raw, note_lost: as in `StartedSample.take`.
    """
    why = f"`{field.entry.url}` is null or empty, or the sample lacks it{_or_each(field.entry)}"
    keys = ""
    try:
        if fetch is not None:
            try:
                data = fetch.take()
                field.trial.note(None)
                return data
            except MissingObject as error:
                why = error.message
                becomes = {"skip": "its sample is left out", "none": "it becomes None"}.get(field.missing)
                if becomes and not (field.of_header and field.missing == "none"):  # it is read once more
                    note_lost(field.place(FieldError(f"{why}; {becomes}", code="D262", **error.place), at))
            except FieldError:  # there is something
                field.trial.note(None)
                raise
        elif not field.trial.has_fit and (field.missing == "error" or not field.trial.is_over):
            given = {name: value for name, value in raw.items() if not _holds_maps(value)}
            keys = "".join(describe_keys(path, given) for path in parse_url(field.entry.url).paths)
        field.trial.note(why + keys)
        if field.missing == "none":
            return None
        raise field.lacking(why + keys, fetch is not None)
    except FieldError as error:
        raise field.place(error, at) from error.__cause__


def _holds_maps(value: Any) -> bool:
    """Whether a value is a list of maps, such as messages, and so no references."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _or_each(entry: FetchedObject) -> str:
    """How the reference of an entry would be written if it were in a list of maps; empty if that is unlikely."""
    paths, form = parse_url(entry.url)
    path = paths[0]
    is_deep = len(path) > (2 if path[0] == "json" else 1) and isinstance(path[-1], str)
    if form is not None or not is_deep or EACH in path:
        return ""
    return f" (in maps of a list, it would be `{describe_path((*path[:-1], EACH, path[-1]))}`)"


@dataclass(frozen=True)
class NamingWithObjects(NamingWithAsides):
    """The rules of a source with `fetch`: its fields count as present before they are fetched."""

    def arrange(self, stored: Any) -> dict[str, str | None] | None:
        return super().arrange([*stored, *(name for name in self.objects if name not in stored)])

    @classmethod
    def over(cls, naming: Naming, fetch: Mapping[str, FetchedObject]) -> NamingWithObjects:
        """Add the fields of `fetch` to the rules of a source, and read what they are found by."""
        given = {each.name: getattr(naming, each.name) for each in dataclasses.fields(naming)}
        names = [str(path[0]) for entry in fetch.values() for path in entry.origins]
        olds = (old for name in names for old in naming.rename.get(name, (name,)))
        asides = frozenset(old.lower() for old in olds if naming.field_of(old) is None)
        given |= {
            "asides": asides | given.get("asides", frozenset()),
            "columns": naming.columns | fetch.keys(),
        }
        return cls(**given | {"objects": tuple(fetch)})


def find_objects(
    fields: SampleFields, spec: Spec, source: Source, storage: Storage, tags: Mapping[str, Any]
) -> tuple[SampleFields, Objects]:
    """Return the fields of a source with those of `fetch`, and what fetches them."""
    fields = fields.with_naming(NamingWithObjects.over(fields.naming, source.fetch))
    fetched = tuple(
        FetchedField(name, entry, ObjectReader.of(storage, entry, name), entry.missing or source.missing)
        for name, entry in source.fetch.items()
    )
    memory, measured = spec.loader.fetch_memory, spec.measured_objects(source)
    return fields, Objects(fetched, for_references(fields), tags, memory, measured=measured)


def for_references(fields: SampleFields) -> SampleFields:
    """Return the fields of a source by which references are found: also those that are not delivered."""
    return fields.with_naming(dataclasses.replace(fields.naming.of_selection, only=None))
