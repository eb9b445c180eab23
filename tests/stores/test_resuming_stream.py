"""A remote stream gives all bytes of the object, or an error: never fewer, never others."""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec.base import handles
from wdspec.base.errors import ShardError, UnusableStoreError
from wdspec.base.process import process_counts
from wdspec.stores.resume import PIECE, RangeResponse, ResumingStream
from wdspec.stores.retry import RetryPolicy, TransientError

DATA = bytes(range(256)) * 20_000
QUICK = RetryPolicy(budget=5, brief=0.02, delay=0.0001, longest_delay=0.001)


class ResponseBody:
    """Returns the data from an offset, and stops or fails at the given places."""

    def __init__(self, data: bytes, at: int, cut: int | None, silent: bool) -> None:
        self.data, self.at, self.cut, self.silent = data, at, cut, silent
        self.closed = False

    def read(self, size: int) -> bytes:
        if self.cut is not None and self.at >= self.cut:
            if self.silent:
                return b""
            raise TransientError("cut")
        end = self.at + size if self.cut is None else min(self.at + size, self.cut)
        piece = self.data[self.at : end]
        self.at += len(piece)
        return piece

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        pass


class Store:
    """An object that fails at the given offsets, once each."""

    def __init__(self, data: bytes = DATA, cuts=(), silent=False, **said) -> None:
        self.data, self.cuts, self.silent, self.said = data, sorted(cuts), silent, said
        self.asked: list[int | tuple[int, int]] = []
        self.bodies: list[ResponseBody] = []

    def __call__(self, offset: int, stop: int | None = None) -> RangeResponse:
        self.asked.append(offset if stop is None else (offset, stop))
        start = offset if self.said.get("ranges", True) else 0
        cut = next((cut for cut in self.cuts if cut > start), None)
        if cut is not None:
            self.cuts.remove(cut)
        if not self.said.get("ranges", True):
            stop = None
        self.bodies.append(ResponseBody(self.data[:stop], start, cut, self.silent))
        said = {"total": len(self.data), "validator": "v1", **self.said}
        return RangeResponse(self.bodies[-1], start, stop=stop and min(stop, len(self.data)), **said)

    def stream(self) -> ResumingStream:
        return ResumingStream(self, "http://h/o", QUICK)


@pytest.mark.parametrize("said", [{}, {"total": None}, {"ranges": False}])
def test_the_length_is_known_before_the_first_byte(said):
    store = Store(**said)
    with store.stream() as stream:
        assert stream.measure() == said.get("total", len(DATA))
        assert store.bodies[0].at == 0
        assert b"".join(iter(lambda: stream.read(PIECE), b"")) == DATA
    assert store.asked == [0]


def test_to_measure_is_tried_again_after_failures_that_pass():
    store, failures = Store(), [TransientError("busy"), TransientError("busy")]

    def fetch(offset, stop=None):
        if failures:
            raise failures.pop()
        return store(offset, stop)

    with ResumingStream(fetch, "http://h/o", QUICK) as stream:
        assert stream.measure() == len(DATA)
    assert not failures


@settings(deadline=None)
@given(
    cuts=st.lists(st.integers(0, len(DATA)), max_size=5),
    silent=st.booleans(),
    ranges=st.booleans(),
    sizes=st.lists(st.integers(20_000, 400_000), min_size=1, max_size=4),
)
def test_interruptions_anywhere_change_nothing(cuts, silent, ranges, sizes):
    with Store(cuts=cuts, silent=silent, ranges=ranges).stream() as stream:
        pieces, n = [], 0
        while piece := stream.read(sizes[n % len(sizes)]):
            pieces.append(piece)
            n += 1
    assert b"".join(pieces) == DATA


@given(st.lists(st.tuples(st.integers(0, len(DATA) + 10), st.integers(1, 70_000)), max_size=12))
def test_seeking_reads_the_bytes_at_the_offset(reads):
    with Store().stream() as stream:
        for offset, size in reads:
            stream.seek(offset)
            piece = stream.read(size)
            assert piece == DATA[offset : offset + len(piece)]
            assert piece or offset >= len(DATA)


def test_peeking_and_reading_on_makes_one_request():
    store = Store()
    stream = store.stream()
    assert stream.read(10) == DATA[:10]
    stream.seek(0)
    assert stream.read() == DATA
    assert store.asked == [0]


def test_a_far_seek_requests_a_range_and_a_near_one_reads_on():
    store = Store()
    stream = store.stream()
    stream.read(10)
    stream.seek(500_000)
    stream.read(10)
    assert store.asked == [0]
    stream.seek(4_000_000)
    stream.read(10)
    assert store.asked == [0, 4_000_000]


@pytest.mark.parametrize("change", [{"validator": "v2"}, {"total": len(DATA) + 1}])
def test_an_object_that_changes_between_two_responses_is_an_error(change):
    store = Store(cuts=[1000])
    stream = store.stream()
    assert stream.read(1000)
    store.said = change
    with pytest.raises(
        ShardError, match=r"changed while it was read: .* before, .* now.*\[location http://h/o\]"
    ):
        stream.read(1000)
    assert all(body.closed for body in store.bodies)


@pytest.mark.parametrize("total", [len(DATA), None])
@pytest.mark.parametrize("ranges", [True, False])
def test_without_a_validator_earlier_bytes_are_reread_and_compared(total, ranges):
    store = Store(cuts=[300_000, 2_000_000], total=total, validator=None, ranges=ranges)
    assert store.stream().readall() == DATA
    assert store.asked == [0, 0, 0]


@pytest.mark.parametrize("total", [len(DATA), None])
@pytest.mark.parametrize("changed", [0, 299_999])
def test_without_a_validator_two_objects_of_equal_length_are_never_spliced(total, changed):
    store = Store(cuts=[300_000], total=total, validator=None)
    stream = store.stream()
    assert stream.read(10) == DATA[:10]
    other = bytearray(DATA)
    other[changed] ^= 1
    store.data = bytes(other)
    with pytest.raises(ShardError, match="changed while it was read: other bytes than before"):
        stream.readall()


def test_without_a_validator_a_middle_range_is_compared_from_its_start():
    store = Store(cuts=[1_000_000], validator=None)
    stream = store.stream()
    stream.seek(700_000)
    assert stream.read(5) == DATA[700_000:700_005]
    stream.seek(700_000)
    assert stream.readall() == DATA[700_000:]
    assert store.asked == [700_000, 700_000]
    stream.seek(10)
    assert stream.read(10) == DATA[10:20]


def test_retries_end_with_the_last_cause_and_the_url():
    def refused(offset: int) -> RangeResponse:
        raise TransientError("status 503")

    with pytest.raises(
        ShardError, match=r"given up after \d+ attempts in .* status 503 \[location http://h/o\]"
    ):
        ResumingStream(refused, "http://h/o", RetryPolicy(budget=0.05, delay=0.001)).read(1)


def test_an_interruption_every_few_bytes_is_not_progress():
    data = bytes(1000)
    stream = ResumingStream(Store(data, range(1, 1000)), "u", RetryPolicy(budget=0.05, delay=0.001))
    with pytest.raises(ShardError, match="given up"):
        stream.read()


def test_retries_do_not_change_what_the_program_draws():
    stream = ResumingStream(Store(DATA, [5, 1000, 40_000]), "u", QUICK)
    before = random.getstate()
    assert stream.read(len(DATA)) + stream.read(-1) == DATA
    assert process_counts.value.retries
    assert random.getstate() == before


LIMITED = RetryPolicy(budget=0.1, brief=0.05, delay=0.001, longest_delay=0.002)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("validator", ["v1", None])
def test_rereading_is_not_progress(validator):
    """A server without ranges that always cuts at the same place, far behind the bytes that count as progress."""
    cuts = [3_000_000] * 100_000
    store = Store(cuts=cuts, validator=validator, ranges=False)
    with pytest.raises(ShardError, match=r"given up after \d+ attempts"):
        ResumingStream(store, "u", LIMITED).readall()
    assert len(store.asked) < 1000


@pytest.mark.timeout(20)
def test_a_replaced_object_is_abandoned_despite_new_bytes():
    store = Store(cuts=[3_000_000], validator=None)
    stream = ResumingStream(store, "u", LIMITED)
    assert stream.read(10) == DATA[:10]
    store.data = DATA[:2_999_999] + b"?" + DATA[3_000_000:]
    with pytest.raises(ShardError, match="changed while it was read: other bytes than before"):
        stream.readall()


def test_new_bytes_after_a_backward_seek_are_progress():
    store = Store(cuts=[number * 1_200_000 for number in range(1, 5)])
    stream = ResumingStream(store, "u", RetryPolicy(budget=0.02, delay=0.012, longest_delay=0.012))
    for _ in range(2):
        stream.seek(0)
        assert stream.readall() == DATA
        store.cuts = [number * 1_200_000 for number in range(1, 5)]


@pytest.fixture
def two_responses(monkeypatch):
    """A process that may have two responses, reads no file, and has no idle connections, as of other tests."""
    monkeypatch.setattr(handles, "idle_closers", [])
    monkeypatch.setattr(handles._files, "value", handles.Handles(2))
    monkeypatch.setattr(handles._responses, "value", handles.Handles(2))


def count_open(stores):
    return sum(not body.closed for store in stores for body in store.bodies)


@settings(deadline=None)
@given(
    moves=st.lists(
        st.one_of(
            st.tuples(st.just("read"), st.integers(1, 700_000)),
            st.tuples(st.just("seek"), st.integers(0, len(DATA))),
            st.tuples(st.just("release"), st.none()),
            st.tuples(st.just("span"), st.one_of(st.none(), st.integers(1, 600_000))),
        ),
        max_size=25,
    ),
    cuts=st.lists(st.integers(0, len(DATA)), max_size=3),
    said=st.sampled_from(
        [{}, {"ranges": False}, {"validator": None}, {"total": None}, {"validator": None, "total": None}]
    ),
)
def test_releasing_and_requesting_parts_changes_no_byte(moves, cuts, said):
    with Store(cuts=cuts, **said).stream() as stream:
        for move, number in moves:
            if move == "read":
                at, wanted = stream.tell(), b""
                while len(wanted) < number and (piece := stream.read(number - len(wanted))):
                    wanted += piece
                assert wanted == DATA[at : at + number]
            elif move == "seek":
                stream.seek(number)
            elif move == "span":
                stream.span = number
            else:
                stream.release()


def test_a_process_reads_many_objects_in_turn_with_few_responses(two_responses):
    stores = [Store() for _ in range(6)]
    streams = [store.stream() for store in stores]
    pieces = [b""] * 6
    for _ in range(4):
        for n, stream in enumerate(streams):
            pieces[n] += stream.read(PIECE)
            assert count_open(stores) <= 2
    assert all(DATA.startswith(piece) and len(piece) == 4 * PIECE for piece in pieces)
    for stream in streams:
        stream.close()
    assert not count_open(stores)
    assert not len(handles.responses())


@pytest.mark.parametrize("change", [{"validator": "v2"}, {"total": len(DATA) + 1}, {"validator": None}])
def test_an_object_that_changed_while_its_response_was_released_is_an_error(change):
    store = Store()
    stream = store.stream()
    assert stream.read(1000)
    assert stream.release()
    store.said = change
    stream.seek(2_000_000)
    with pytest.raises(ShardError, match=r"changed while it was read: .* before, .* now"):
        stream.read(1000)


@pytest.mark.parametrize("said", [{"ranges": False}, {"validator": None}, {"total": None}])
def test_a_response_that_no_other_one_can_continue_is_kept(said):
    store = Store(**said)
    stream = store.stream()
    assert stream.read(1000)
    assert not stream.release()
    assert stream.readall() == DATA[1000:]
    assert store.asked == [0]


def test_a_request_for_a_part_has_an_end_and_leaves_no_response_open():
    store = Store()
    stream = store.stream()
    stream.span = 100_000
    assert stream.read(100_000) == DATA[:100_000]
    assert store.bodies[-1].closed
    stream.seek(3_000_000)
    assert stream.read(10) == DATA[3_000_000:3_000_010]
    assert store.asked == [(0, 100_000), (3_000_000, 3_100_000)]


def test_an_object_without_a_validator_is_not_read_again_for_each_part():
    store = Store(validator=None)
    stream = store.stream()
    stream.span = 100_000
    assert stream.readall() == DATA
    assert store.asked == [(0, 100_000), 0]


def test_responses_are_released_if_a_connection_gets_no_descriptor(monkeypatch):
    monkeypatch.setattr(handles._responses, "value", handles.Handles(100))
    stores = [Store() for _ in range(4)]
    streams = [store.stream() for store in stores]
    for stream in streams:
        stream.read(10)

    def connect(offset: int) -> RangeResponse:
        if count_open(stores) > 2:
            raise UnusableStoreError("no connection to h") from OSError(errno.EMFILE, "Too many open files")
        return Store()(offset)

    assert ResumingStream(connect, "http://h/o", QUICK).readall() == DATA
    assert [stream.readall() for stream in streams] == [DATA[10:]] * 4


def test_a_connection_that_gets_no_descriptor_at_all_is_an_error_at_once(two_responses):
    asked = []

    def connect(offset: int) -> RangeResponse:
        asked.append(offset)
        raise UnusableStoreError("no connection to h") from OSError(errno.EMFILE, "Too many open files")

    with pytest.raises(UnusableStoreError, match="no connection to h"):
        ResumingStream(connect, "http://h/o", QUICK).read()
    assert asked == [0]
