"""Helpers for the tests of programs that train from wdspec, or from any loader that keeps its state.

    from wdspec.testing import assert_resumable

    def test_my_spec_resumes():
        assert_resumable(lambda: wdspec.loader("train.yaml", num_workers=2))

`assert_resumable` stops a loader everywhere, goes on from there, and compares all that follows; `difference` compares
what loaders yield by value.
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
"""Elements of an array that are shown instead of counted."""


def difference(expected: Any, seen: Any, place: str = "") -> str | None:
    """Where and how two values differ first, in words; None if they are alike.

    Types must agree, and dtypes and shapes of tensors and arrays; NaN is like NaN; the order of a dict's keys
    does not matter. Other objects are alike if ``==`` says so.

    Args:
        expected, seen: what is compared.
        place: what to call the value in the answer.
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
        alike = torch.equal(torch.nan_to_num(expected), torch.nan_to_num(seen)) and torch.equal(
            torch.isnan(expected), torch.isnan(seen)
        )
    elif isinstance(expected, np.ndarray):
        alike = np.array_equal(expected, seen, equal_nan=expected.dtype.kind in "fc")
    elif isinstance(expected, float) and math.isnan(expected):
        alike = math.isnan(seen)
    else:
        alike = bool(expected == seen)
    if alike:
        return None
    if getattr(expected, "ndim", 0) and math.prod(expected.shape) > _FEW:
        return f"{where}, {_kind(expected)}, has other numbers{_where_other(expected, seen)}"
    return f"{where} should be {_shorten(expected)}, was {_shorten(seen)}"


def _where_other(expected: Any, seen: Any) -> str:
    """How many rows of an array differ, and the first of them."""
    rows = [i for i, (a, b) in enumerate(zip(expected, seen, strict=True)) if _leaf(a, b, "")]
    return f" in {len(rows)} of its {len(expected)} rows, the first of them {rows[0]}" if rows else ""


def _kind(array: Any) -> str:
    return f"{array.dtype} of shape {tuple(array.shape)}"


def _shorten(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else f"{text[:200]}…"


FEWEST = 12
"""Batches read at least, so that a state has the time to grow."""
MOST = 10_000
"""Batches without a second end of an epoch after which a loader is taken to be endless."""


def assert_resumable(
    make_loader: Callable[[], Any],
    *,
    batches: int | None = None,
    stops: Iterable[int] | None = None,
    live: bool = True,
    as_json: bool = True,
    steady: bool = True,
) -> None:
    """Asserts that a loader goes on exactly from its state, wherever it was saved.

    It reads a run without a break, over at least two epochs and 12 batches. It reads it again, saving the state
    before the first batch and after every one: that may not change what is read. Then, for each of these states:
    a fresh loader that is given the state must yield the whole rest of the run; a state that it saves one batch
    later must do as well; and on this same, live loader both are loaded once more and must give the same again.

    Args:
        make_loader: makes a fresh loader, at the beginning: a `Loader`, a `DataPipeline`, a DataLoader, or any
            iterable with `state_dict` and `load_state_dict`. Each ``iter()`` gives the rest of an epoch, or the
            next one; an empty one is ignored. A loader with `close` is closed.
        batches: how many batches the run has; it must be given for endless loaders.
        stops: after how many batches to stop, where every one would take too long.
        live: whether a state can also be loaded into a loader that has been read from.
        as_json: whether states are to be JSON values; each is then loaded after going through JSON text.
        steady: whether to assert that in the second half of the run the state is no larger than it was in the
            first (digits of numbers do not count), and of the same shape: keys, nesting, types.

    Raises:
        AssertionError: names the batch after which the state was saved, what should have come, and what came.

    Example:
        >>> import wdspec
        >>> from wdspec.testing import assert_resumable
        >>> spec = wdspec.load("examples/specs/digits.yaml", split="train", overrides={"epoch": 128})
        >>> assert_resumable(lambda: wdspec.loader(spec), batches=6)
    """
    with _made(make_loader) as loader:
        run = _take(loader, batches)
    if not run:
        raise AssertionError("the loader gives no batch at all")
    states = _states_along(make_loader, run, as_json)
    if steady:
        _check_steady(states)
    for stop in range(len(states)) if stops is None else stops:
        state, saved = states[stop], f"a state saved {_after(stop)}"
        with _made(make_loader) as loader:
            _go_on(loader, _copy(state, as_json), run, stop, saved)
            if not live:
                continue
            if stop < len(run):
                loader.load_state_dict(_copy(state, as_json))
                _check(run, stop, _take(loader, 1), f"{saved}, loaded into a live loader", length=1)
                later = _checked(loader.state_dict(), as_json, f"saved one batch after going on from {saved}")
                _go_on(loader, later, run, stop + 1, f"{saved}, and again from one saved a batch later")
            _go_on(loader, _copy(state, as_json), run, stop, f"{saved}, loaded once more into a live loader")


_LIKELY = (
    "most likely a function of the spec (`map`, `collate`, a decoder) draws from a generator of its own, or keeps "
    "something from one sample to the next. In `map` and `select` draw from wdspec.sample_rng(sample), or from the "
    "global generators of torch, numpy and random, which are seeded for each sample"
)
Batch = tuple[int, Any]
"""(number of the epoch since the loader was made or given a state, what it yielded)."""


def _take(loader: Any, batches: int | None) -> list[Batch]:
    """The next batches over epochs; without a number, two whole epochs and at least `FEWEST` batches."""
    taken: list[Batch] = []
    epoch = empty = 0
    while batches is None or len(taken) < batches:
        before = len(taken)
        for batch in loader:
            taken.append((epoch, batch))
            if len(taken) == batches:
                break
            if len(taken) > MOST:
                raise AssertionError(f"no end of an epoch within {MOST} batches; give `batches`")
        if len(taken) > before:
            epoch, empty = epoch + 1, 0
        else:
            empty += 1
            if empty == 2:  # one may be the end of an epoch that had been read to its last batch
                break
        if batches is None and epoch >= 2 and len(taken) >= FEWEST:
            break
    return taken


def _check(run: list[Batch], start: int, seen: list[Batch], origin: str, length: int | None = None) -> None:
    """Raises unless the batches seen are those of the run without a break from `start` on."""
    wanted = run[start:][:length]
    for i, (epoch, batch) in enumerate(wanted):
        going_on = f"going on from {origin}: batch {start + i}"
        if i == len(seen):
            raise AssertionError(f"{going_on} should come, but the loader ended after {i} batches")
        found = difference(batch, seen[i][1])
        if found is not None:
            if _same_samples(batch, seen[i][1]):
                raise AssertionError(
                    f"{going_on} has the right samples with other values: {found}; {_LIKELY}"
                )
            raise AssertionError(f"{going_on} is another one, {_known(run, seen[i][1], start + i)}; {found}")
        if epoch - wanted[0][0] != seen[i][0]:
            early = seen[i][0] > epoch - wanted[0][0]
            raise AssertionError(
                f"{going_on} should come in epoch {epoch}, but an epoch ended too {'early' if early else 'late'}"
            )


def _same_samples(batch: Any, seen: Any) -> bool:
    """Whether both are of samples of the same keys, in the same order."""
    if not isinstance(batch, dict) or not isinstance(seen, dict) or "__key__" not in batch:
        return False
    return difference(batch["__key__"], seen.get("__key__")) is None


def _known(run: list[Batch], batch: Any, number: int) -> str:
    places = [n for n, (_, other) in enumerate(run) if difference(other, batch) is None]
    if not places:
        return "which the run without a break does not have"
    nearest = min(places, key=lambda n: abs(n - number))
    what = "something was lost" if nearest > number else "something came again"
    return f"namely batch {nearest} of the run without a break ({what})"


def _states_along(make_loader: Callable[[], Any], run: list[Batch], as_json: bool) -> list[Any]:
    """The states before the first batch and after every one, saved while reading."""
    with _made(make_loader) as loader:
        handed = [loader.state_dict()]
        states = [_checked(handed[0], as_json, "before the first batch")]
        seen: list[Batch] = []
        while len(seen) < len(run):
            epoch, before = seen[-1][0] + 1 if seen else 0, len(seen)
            for batch in loader:
                seen.append((epoch, batch))
                handed.append(loader.state_dict())
                states.append(_checked(handed[-1], as_json, _after(len(seen))))
                if len(seen) == len(run):
                    break
            if len(seen) == before:
                break
    _check(run, 0, seen, "no state, while one is saved after every batch")
    for stop, (state, copied) in enumerate(zip(handed, states, strict=True)):
        found = difference(copied, state, "state")
        if found is not None:
            raise AssertionError(
                f"the state saved {_after(stop)} changed while reading on (it should be a copy): {found}"
            )
    return states


def _go_on(loader: Any, state: Any, run: list[Batch], stop: int, origin: str) -> None:
    loader.load_state_dict(state)
    rest = len(run) - stop
    _check(run, stop, _take(loader, rest) if rest else [], origin)


def _checked(state: Any, as_json: bool, when: str) -> Any:
    try:
        return _copy(state, as_json)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"the state {when} is not JSON: {error}") from error


def _copy(state: Any, as_json: bool) -> Any:
    """The state as another process would get it."""
    if not as_json:
        return copy.deepcopy(state)
    text = json.dumps(state, allow_nan=False)
    copied = json.loads(text)
    found = difference(state, copied)
    if found is not None:
        raise TypeError(f"it comes out of JSON text as something else: {found}")
    return copied


def _check_steady(states: list[Any]) -> None:
    """The second half of the states must look like the first: by then everything has been begun."""
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
    """(values, length of all text) of a state. Text may be packed, and then is now shorter, now longer."""
    if isinstance(state, dict):
        parts = [(1, len(str(key))) for key in state] + [_size(value) for value in state.values()]
    elif isinstance(state, (list, tuple)):
        parts = [(1, 0), *map(_size, state)]
    else:
        return 1, len(state) if isinstance(state, (str, bytes)) else 0
    return sum(values for values, _ in parts), sum(text for _, text in parts)


def _shape(state: Any, place: str = "state") -> set[str]:
    """Every place in a state with the type of what is there."""
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
def _made(make_loader: Callable[[], Any]) -> Iterator[Any]:
    loader = make_loader()
    try:
        yield loader
    finally:
        if hasattr(loader, "close"):
            loader.close()
