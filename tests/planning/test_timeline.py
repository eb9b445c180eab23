"""The timeline of a stream, against a loop over its steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wdspec.planning.timeline import Timeline
from wdspec.spec.language.steps import StepRanges

LAST = 200
skips = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=4).map(
    lambda pairs: StepRanges.of((first, first + count) for first, count in pairs)
)
lengths = st.none() | st.integers(1, 12)
stops = st.none() | st.integers(0, 40)


def rest_of_epoch(step, length, stop):
    """The steps of the epoch of a step, from it on."""
    alive = [j for j in range(LAST) if stop is None or j < stop]
    return [j for j in alive if j >= step and (not length or j // length == step // length)]


@given(lengths, stops, skips, st.integers(0, 45))
def test_an_iteration_has_the_steps_that_a_loop_finds(length, stop, skipped, step):
    rest = rest_of_epoch(step, length, stop)
    if length and step % length and all(j in skipped for j in rest) and rest and skipped:
        rest = rest_of_epoch(rest[-1] + 1, length, stop)
    first, end = Timeline(length, stop).iteration(step, skipped)
    if length is None and stop is None:
        assert (first, end) == (step, None)
    else:
        assert list(range(first, end)) == rest


@given(st.integers(1, 12), stops, skips, st.integers(0, 45))
def test_the_length_of_an_epoch_is_the_number_of_steps_that_it_yields(length, stop, skipped, step):
    whole = rest_of_epoch(step // length * length, length, stop)
    is_over = stop is not None and step >= stop
    yielded = [] if is_over else [j for j in whole if j not in skipped]
    assert Timeline(length, stop).length(step, skipped) == len(yielded)


@given(st.integers(1, 12), stops)
def test_reading_epoch_after_epoch_reads_every_step_once_and_then_nothing(length, stop):
    line, step, epochs = Timeline(length, stop), 0, []
    for _ in range(60):
        first, end = line.iteration(step)
        assert line.length(first) == end - first
        epochs.append((line.epoch(first), range(first, end)))
        step = end
    read = [j for _, steps in epochs for j in steps]
    assert read == list(range(len(read)))
    assert stop is None or len(read) == min(stop, 60 * length)
    numbers = [number for number, steps in epochs if steps]
    assert numbers == list(range(len(numbers)))
    assert {number for number, steps in epochs if not steps} <= {len(numbers)}


@given(st.integers(1, 12), st.integers(0, 45))
def test_the_next_epoch_is_the_first_that_starts_here_or_later(length, step):
    expected = next(j for j in range(step, LAST) if j % length == 0)
    assert Timeline(length).next(step) == expected
    assert Timeline().next(step) == step


def test_an_endless_stream_has_no_length_and_one_epoch():
    assert (Timeline().epoch(10**9), Timeline().end(5)) == (0, None)
    with pytest.raises(TypeError, match="`epoch:`"):
        Timeline().length(0)
