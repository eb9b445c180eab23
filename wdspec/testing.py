"""Helpers for testing training programs that use wdspec, or any loader with a state.

    from wdspec.testing import assert_resumable

    def test_my_spec_resumes():
        assert_resumable(lambda: wdspec.loader("train.yaml", num_workers=2))

`assert_resumable` stops a loader after every batch, resumes it there, and compares all later batches; `difference`
compares what loaders yield, by value.
"""

from __future__ import annotations

import copy
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

_FEW = 8
"""Messages show arrays of up to this many elements."""


def difference(expected: Any, seen: Any, place: str = "") -> str | None:
    """Describe the first difference between two values; return None if they are equal.

    Types must be the same, and so must dtypes and shapes of tensors and arrays. NaN equals NaN, the order of the keys
    of a dict does not matter, and other objects are compared with ``==``.

    Args:
        expected, seen: the values to compare.
        place: what to call the value in the description.
    """
    where = place or "it"
    if type(expected) is not type(seen):
        return f"{where} should be a {type(expected).__name__}, was a {type(seen).__name__}: {_shorten(seen)}"
    if isinstance(expected, Mapping):
        if set(expected) != set(seen):
            return f"{where} should have the keys {_shorten(list(expected))}, had {_shorten(list(seen))}"
        pairs = [(f"{place}[{key!r}]", expected[key], seen[key]) for key in expected]
        return _first(pairs)
    if isinstance(expected, (list, tuple)):
        if len(expected) != len(seen):
            return f"{where} should have {len(expected)} elements, had {len(seen)}"
        return _first([(f"{place}[{i}]", a, b) for i, (a, b) in enumerate(zip(expected, seen, strict=True))])
    return _leaf(expected, seen, where)


def _first(triples: list[tuple[str, Any, Any]]) -> str | None:
    for place, expected, seen in triples:
        found = difference(expected, seen, place)
        if found is not None:
            return found
    return None


def _leaf(expected: Any, seen: Any, where: str) -> str | None:
    torch = sys.modules.get("torch")
    is_tensor = torch is not None and isinstance(expected, torch.Tensor)
    if is_tensor and expected.is_nested:
        return difference(list(expected.unbind()), list(seen.unbind()), where)
    if (is_tensor or isinstance(expected, np.ndarray)) and (
        expected.dtype != seen.dtype or expected.shape != seen.shape
    ):
        return f"{where} should be {_kind(expected)}, was {_kind(seen)}"
    if torch is not None and is_tensor:
        equal = torch.equal(torch.nan_to_num(expected), torch.nan_to_num(seen)) and torch.equal(
            torch.isnan(expected), torch.isnan(seen)
        )
    elif isinstance(expected, np.ndarray):
        equal = np.array_equal(expected, seen, equal_nan=expected.dtype.kind in "fc")
    elif isinstance(expected, float) and math.isnan(expected):
        equal = math.isnan(seen)
    else:
        equal = bool(expected == seen)
    if equal:
        return None
    if getattr(expected, "ndim", 0) and math.prod(expected.shape) > _FEW:
        return f"{where}, {_kind(expected)}, has other numbers{_list_rows(expected, seen)}"
    return f"{where} should be {_shorten(expected)}, was {_shorten(seen)}"


def _list_rows(expected: Any, seen: Any) -> str:
    """Say how many rows of an array differ, and which is the first."""
    rows = [i for i, (a, b) in enumerate(zip(expected, seen, strict=True)) if _leaf(a, b, "")]
    return f" in {len(rows)} of its {len(expected)} rows, first in row {rows[0]}" if rows else ""


def _kind(array: Any) -> str:
    return f"{array.dtype} of shape {tuple(array.shape)}"


def _shorten(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else f"{text[:200]}…"


FEWEST = 12
"""The least number of batches to read, so that a state has time to grow."""
MOST = 10_000
"""Batches without a second end of an epoch, after which a loader counts as endless."""


def assert_resumable(
    make_loader: Callable[[], Any],
    *,
    batches: int | None = None,
    stops: Iterable[int] | None = None,
    live: bool = True,
    as_json: bool = True,
    steady: bool = True,
) -> None:
    """Assert that a loader resumes exactly from its state, wherever the state was saved.

    This reads an uninterrupted run, over at least two epochs and 12 batches. It reads the run again and saves the state
    before the first batch and after each one, which must not change the batches. Then, for each of these states: a new
    loader with the state must yield the rest of the run; a state saved one batch later must do the same; and both
    states, loaded into this loader while it is live, must give the same batches again.

    Args:
        make_loader: returns a new loader: a `Loader`, a `DataPipeline`, a DataLoader, or any iterable with
            `state_dict` and `load_state_dict`. Each ``iter()`` yields the rest of an epoch, or the next one; an empty
            one is ignored. A loader with a `close` method is closed.
        batches: number of batches of the run. Required for endless loaders.
        stops: numbers of batches after which to stop, if every one would take too long.
        live: whether states can also be loaded into a loader that has yielded batches.
        as_json: whether states must be JSON values; if so, each is loaded after a round trip through JSON text.
        steady: whether to assert that states in the second half of the run are not larger than in the first half
            (not counting digits of numbers), and have the same shape: keys, nesting, types.

    Raises:
        AssertionError: a batch differs; says after which batch the state was saved, and how the batches differ.

    Example:
        >>> import wdspec
        >>> from wdspec.testing import assert_resumable
        >>> spec = wdspec.load("examples/specs/digits.yaml", split="train", overrides={"epoch": 128})
        >>> assert_resumable(lambda: wdspec.loader(spec), batches=6)
    """
    with _open(make_loader) as loader:
        run = _take(loader, batches)
    if not run:
        raise AssertionError("the loader yields no batches")
    states = _states_along(make_loader, run, as_json)
    if steady:
        _check_steady(states)
    for stop in range(len(states)) if stops is None else stops:
        state, saved = states[stop], f"a state saved {_after(stop)}"
        with _open(make_loader) as loader:
            _resume(loader, _copy(state, as_json), run, stop, saved)
            if not live:
                continue
            if stop < len(run):
                loader.load_state_dict(_copy(state, as_json))
                _check(run, stop, _take(loader, 1), f"{saved}, loaded into a live loader", length=1)
                later = _checked_copy(
                    loader.state_dict(), as_json, f"saved one batch after resuming from {saved}"
                )
                _resume(loader, later, run, stop + 1, f"{saved}, and again from one saved a batch later")
            _resume(loader, _copy(state, as_json), run, stop, f"{saved}, loaded once more into a live loader")


_LIKELY = (
    "most likely a function of the spec (`map`, `collate`, a decoder) uses its own random generator, or keeps state "
    "between samples. In `map` and `select`, draw from wdspec.sample_rng(sample), or from the global generators of "
    "torch, numpy and random, which are seeded for each sample"
)
Batch = tuple[int, Any]
"""(number of the epoch since the loader was created or got a state, the batch)."""


def _take(loader: Any, batches: int | None) -> list[Batch]:
    """Return the next batches over epochs; without a number, two whole epochs and at least `FEWEST` batches."""
    taken: list[Batch] = []
    epoch = empty = 0
    while batches is None or len(taken) < batches:
        before = len(taken)
        for batch in loader:
            taken.append((epoch, batch))
            if len(taken) == batches:
                break
            if len(taken) > MOST:
                raise AssertionError(f"no end of an epoch within {MOST} batches; pass `batches`")
        if len(taken) > before:
            epoch, empty = epoch + 1, 0
        else:
            empty += 1
            if empty == 2:  # one may be the end of an epoch whose last batch was read before
                break
        if batches is None and epoch >= 2 and len(taken) >= FEWEST:
            break
    return taken


def _check(run: list[Batch], start: int, seen: list[Batch], origin: str, length: int | None = None) -> None:
    """Raise unless the batches are those of the uninterrupted run from `start` on."""
    wanted = run[start:][:length]
    for i, (epoch, batch) in enumerate(wanted):
        which = f"resumed from {origin}: batch {start + i}"
        if i == len(seen):
            raise AssertionError(f"{which} is missing, as the loader ended after {i} batches")
        found = difference(batch, seen[i][1])
        if found is not None:
            if _same_samples(batch, seen[i][1]):
                raise AssertionError(f"{which} has the right samples with other values: {found}; {_LIKELY}")
            raise AssertionError(
                f"{which} is another one, {_find_in_run(run, seen[i][1], start + i)}; {found}"
            )
        if epoch - wanted[0][0] != seen[i][0]:
            early = seen[i][0] > epoch - wanted[0][0]
            raise AssertionError(
                f"{which} belongs to epoch {epoch}, but an epoch ended too {'early' if early else 'late'}"
            )


def _same_samples(batch: Any, seen: Any) -> bool:
    """Whether both batches have the same keys, in the same order."""
    if not isinstance(batch, dict) or not isinstance(seen, dict) or "__key__" not in batch:
        return False
    return difference(batch["__key__"], seen.get("__key__")) is None


def _find_in_run(run: list[Batch], batch: Any, number: int) -> str:
    places = [n for n, (_, other) in enumerate(run) if difference(other, batch) is None]
    if not places:
        return "which the uninterrupted run does not have"
    nearest = min(places, key=lambda n: abs(n - number))
    what = "batches were lost" if nearest > number else "batches were repeated"
    return f"namely batch {nearest} of the uninterrupted run ({what})"


def _states_along(make_loader: Callable[[], Any], run: list[Batch], as_json: bool) -> list[Any]:
    """Return the states before the first batch and after each one, saved while reading."""
    with _open(make_loader) as loader:
        saved = [loader.state_dict()]
        states = [_checked_copy(saved[0], as_json, "before the first batch")]
        seen: list[Batch] = []
        while len(seen) < len(run):
            epoch, before = seen[-1][0] + 1 if seen else 0, len(seen)
            for batch in loader:
                seen.append((epoch, batch))
                saved.append(loader.state_dict())
                states.append(_checked_copy(saved[-1], as_json, _after(len(seen))))
                if len(seen) == len(run):
                    break
            if len(seen) == before:
                break
    _check(run, 0, seen, "the start, saving a state after every batch")
    for stop, (state, copied) in enumerate(zip(saved, states, strict=True)):
        found = difference(copied, state, "state")
        if found is not None:
            raise AssertionError(
                f"the state saved {_after(stop)} changed while reading (it should be a copy): {found}"
            )
    return states


def _resume(loader: Any, state: Any, run: list[Batch], stop: int, origin: str) -> None:
    loader.load_state_dict(state)
    rest = len(run) - stop
    _check(run, stop, _take(loader, rest) if rest else [], origin)


def _checked_copy(state: Any, as_json: bool, when: str) -> Any:
    try:
        return _copy(state, as_json)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"the state {when} is not JSON: {error}") from error


def _copy(state: Any, as_json: bool) -> Any:
    """Return the state as another process would get it."""
    if not as_json:
        return copy.deepcopy(state)
    text = json.dumps(state, allow_nan=False)
    copied = json.loads(text)
    found = difference(state, copied)
    if found is not None:
        raise TypeError(f"a round trip through JSON text changes it: {found}")
    return copied


def _check_steady(states: list[Any]) -> None:
    """Raise unless the second half of the states looks like the first, when everything has been started."""
    half = (len(states) + 1) // 2
    sizes = [_size(state) for state in states]
    most, longest = (max(size) for size in zip(*sizes[:half], strict=True))
    known: set[str] = set().union(*(_shape(state) for state in states[:half]))
    for stop in range(half, len(states)):
        values, text = sizes[stop]
        if values > most or text > longest + longest // 8 + 16:
            grown = f"{values} values" if values > most else f"{text} characters"
            before = most if values > most else longest
            raise AssertionError(
                f"the state grows: {grown} {_after(stop)}, at most {before} until {_after(half - 1)}"
            )
        new = sorted(_shape(states[stop]) - known)
        if new:
            raise AssertionError(f"the state changes its shape: {new[0]} is new {_after(stop)}")


def _size(state: Any) -> tuple[int, int]:
    """Return (number of values, length of all text) of a state. Packed text varies in length."""
    if isinstance(state, dict):
        parts = [(1, len(str(key))) for key in state] + [_size(value) for value in state.values()]
    elif isinstance(state, (list, tuple)):
        parts = [(1, 0), *map(_size, state)]
    else:
        return 1, len(state) if isinstance(state, (str, bytes)) else 0
    return sum(values for values, _ in parts), sum(text for _, text in parts)


def _shape(state: Any, place: str = "state") -> set[str]:
    """Return every place in a state with the type of its value."""
    if isinstance(state, dict):
        return {f"{place}: dict"}.union(*(_shape(value, f"{place}[{key!r}]") for key, value in state.items()))
    if isinstance(state, (list, tuple)):
        return {f"{place}: list"}.union(*(_shape(value, f"{place}[·]") for value in state))
    return {f"{place}: {type(state).__name__}"}


def _after(stop: int) -> str:
    if stop < 2:
        return "after 1 batch" if stop else "before the first batch"
    return f"after {stop} batches"


@contextmanager
def _open(make_loader: Callable[[], Any]) -> Iterator[Any]:
    loader = make_loader()
    try:
        yield loader
    finally:
        if hasattr(loader, "close"):
            loader.close()
