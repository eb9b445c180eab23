"""The reference model: a slow reader that computes the global batches of any spec.

It follows the sections "The exact rules" of docs/order.md and docs/batches.md, with lists in place of streams. It
starts at step 0, never saves a state, and reads files whole. From the program it takes the checked spec, expressions,
and the arithmetic of `planning/` that has proofs of its own.
"""

from __future__ import annotations

import json
import math
from copy import copy
from dataclasses import replace
from fractions import Fraction
from heapq import heappop, heappush
from itertools import accumulate, count, islice
from typing import Any, NamedTuple

import wdspec
from oracle.batching import as_tuple, collate, pack_row
from oracle.epochs import EpochSource, list_epoch, list_windows
from oracle.files import Damage
from oracle.grouping import Candidate, Rules, plan_groups, plan_window
from oracle.samples import (
    RunError,
    SampleError,
    SourceReader,
    build_function,
    lend_generators,
    seed_generators,
)
from wdspec.planning.draws import Draws
from wdspec.planning.keys import key64, random64
from wdspec.planning.order import Delays, ShardOrder, lanes_of
from wdspec.planning.shares import (
    effective_shares,
    limit_passes,
    scheduled_shares,
    segment_offset,
    starting_batches,
)
from wdspec.planning.topology import Topology
from wdspec.spec.language.samples import Call

_BARREN = 20


def shuffle_size(shuffle, share):
    """N of a source with a share (docs/order.md, "Sizes")."""
    m = sorted((2, round(4000 * share), 16))[1]
    return 1 if shuffle in (0, 1) else max(min(m, shuffle), round(shuffle * share))


class Model:
    """The global batches of a spec.

    Args:
        spec: a dict, a path, or what `wdspec.load` returns.
        ranks, workers: those of the first run, which are canonical without `elastic`.
        live: (step before which `set_shares` is called, shares, `after`).
        skips: (step before which `skip_steps` is called, first, last).
        is_older: whether an older release runs it, with copies of a sample in batches.
    """

    def __init__(self, spec, *, ranks=1, workers=0, live=(), skips=(), is_older=False):
        self.is_older = is_older
        self.spec = (
            wdspec.load(spec) if isinstance(spec, (dict, str)) or hasattr(spec, "__fspath__") else spec
        )
        self.topology = Topology.of(self.spec, ranks, workers)
        self._live_calls, self._skip_calls = list(live), list(skips)
        self._live = []
        self._skips = set()
        self._spec_skips = {step for each in self.spec.skip for step in range(each.first, each.last + 1)}
        self._parts = []
        self._error = None
        self._older = {}
        self._plan()

    # The plan

    def _plan(self):
        spec, batch, ranks = self.spec, self.spec.batch, self.topology.ranks
        self.is_windowed = batch is not None and batch.has_windows
        if batch is None:
            self.per_slot = 1
        elif self.is_windowed:
            self.per_slot = batch.window if batch.group_by is None else batch.group_wait
        else:
            self.per_slot = batch.size or batch.global_size // ranks
        self.global_size = self.per_slot * ranks
        self.is_split = batch is None or self.is_windowed or batch.accumulate
        self.items_per_step = ranks if self.is_split else 1
        self.stop_at, self.fail_at = None, None
        self.begun = None
        """The first step of an epoch that begins anew after a change."""
        self.barren = set()
        """Sources of which a slot has dropped every sample since it last kept one, so that the run may end."""
        self.readers = {source.name: SourceReader(spec, source) for source in spec.sources_by_name}
        if spec.is_pass:
            kinds = (PlainPass, WindowedPass), (ReshuffledPass, ReshuffledWindows)
            self._pass = kinds[spec.epoch.reshuffle][self.is_windowed](self)
            self.epoch = self._pass.batches
        else:
            self._pass = None
            self._plan_mix()
            self._plan_epoch()
            self._slots = {}

    def _plan_mix(self):
        spec = self.spec
        starts = starting_batches(scheduled_shares(spec, self.count_shards), self.global_size)
        exhausted = ()
        if any(source.max_passes is not None for source in spec.sources):
            limited, exhausted = limit_passes(spec, starts, self.global_size)
            starts = limited or {0: starts[0]}  # nothing is drawn if the first batch exceeds `max_passes`
        for each in exhausted:
            self.stop_at = each.start if each.then == "stop" else self.stop_at
            self.fail_at = each.start if each.then == "error" else self.fail_at
        largest = {name: max(shares[name] for shares in starts.values()) for name in starts[0]}
        self.sources = [source for source in spec.sources_by_name if largest[source.name]]
        self.sizes = {}
        for source in self.sources:
            share = Fraction(1, len(self.sources)) if spec.mix.draw == "round_robin" else largest[source.name]
            self.sizes[source.name] = shuffle_size(source.shuffle, share), lanes_of(source.interleave, share)
        self.segments = [(start, self._draws(shares, "schedule", start)) for start, shares in starts.items()]
        if spec.mix.schedule is None and len(starts) == 1:
            self.segments = [(0, self._draws(starts[0], None, 0))]
        self.constant_shares = starts

    def count_shards(self, source):
        """Return the number of shards of a source."""
        return len(self.readers[source.name].shards)

    def _draws(self, shares, kind, start, counts_from=None):
        """Return the draws of a segment: counted from its start, unless `counts_from` says otherwise."""
        offset = 0 if kind is None else segment_offset(self.spec.seed, kind, start)
        mix = self.spec.mix
        shares = [shares[source.name] for source in self.sources]
        first = start if counts_from is None else counts_from
        return Draws(shares, self.spec.seed, self.topology, self.per_slot, mix.draw, mix.unit, first, offset)

    def draws_at(self, step, batch):
        """Return the draws of a batch of a slot, or of a window that starts at a step.

        Args:
            batch: J of the batch; for a window, J as if windows were batches.
        """
        live = [each for each in self._live if each[0] <= step]
        if live:
            start, shares = live[-1]
            found = effective_shares(self.spec.dataset, self.spec.mix, self.count_shards, shares)
            has_sections = self.is_windowed or self.spec.stage is not None
            return self._draws(found, "shares set", start, 0 if has_sections else None)
        return [draws for start, draws in self.segments if start <= batch][-1]

    def has_live_shares(self, step):
        """Whether shares that were set at run time are in effect at a step."""
        return any(start <= step for start, _ in self._live)

    def _plan_epoch(self):
        spec, length = self.spec, None
        if spec.epoch is not None:
            length = spec.epoch.batches
            if spec.epoch.samples is not None:
                length = spec.epoch.samples // self.global_size
            if spec.epoch.tokens is not None:
                length = max(1, (spec.epoch.tokens / self._count_tokens() + Fraction(1, 2)) // 1)
        if spec.limit is not None and (length is None or length * self.global_size > spec.limit):
            if spec.limit % self.global_size:
                raise RunError("`limit` ends inside a global batch")
            length = spec.limit // self.global_size
        self.epoch = length

    def _count_tokens(self):
        """Return t: the tokens of a global batch."""
        shares, mean = self.constant_shares[0], Fraction(0)
        for source in self.sources:
            share = shares[source.name]
            if self.spec.mix.draw == "round_robin":
                share = Fraction(1, len(self.sources))
            mean += share * Fraction(source.mean_cost or source.tokens.length)
        batch, windows = self.spec.batch, [1]
        if self.is_windowed:
            most = batch.max_cost or batch.max_tokens or (batch.pack and batch.pack.length)
            size = batch.size or batch.max_size
            windows += [math.ceil(mean * self.per_slot / Fraction(most))] if most else []
            windows += [math.ceil(Fraction(self.per_slot, size))] if size else []
        return mean * self.global_size / max(windows)

    # What the loader gives

    def items(self, step):
        """Return the items of global batch J; none if it is skipped, or after the end of the run.

        Raises:
            RunError: the run ends with an error before or at this step.
        """
        return self.items_of(step, 0, 1)

    def items_of(self, step, rank, ranks):
        """Return the items of global batch J that one of R ranks gets."""
        while len(self._parts) <= step:
            if self._error is not None:  # slots have moved on
                raise self._error
            try:
                self._parts.append(self._take(len(self._parts)))
            except RunError as error:
                self._error = error
                raise
        parts = self._parts[step]
        if parts is None:
            return []
        if self.is_split:
            each = len(parts) // ranks
            return self._assemble(step, parts[rank * each : (rank + 1) * each], rank * each)
        each = self.global_size // ranks
        samples = [sample for part in parts for sample in part][rank * each : (rank + 1) * each]
        return [collate(samples, self.spec, step * self.global_size + rank * each)]

    def length(self, step=0):
        """Return `len(loader)` before a step: that of its epoch, None without `epoch`."""
        if self.epoch is None:
            return None
        if self.stop_at is not None and step >= self.stop_at:
            return 0
        skipped = set(self._spec_skips)
        for called, begin, last in self._skip_calls:
            if called <= step:
                skipped |= set(range(begin, last + 1))
        _, first, end = self.epoch_at(step)
        if step > first and skipped.issuperset(range(step, end)):  # nothing is left of this epoch
            first, end = end, end + self.epoch
        end = end if self.stop_at is None else min(end, self.stop_at)
        return sum(each not in skipped for each in range(first, end)) * self.items_per_step

    def epoch_at(self, step):
        """Return the number of the epoch of a step, J of its first step, and J of the step after its last one."""
        if self._pass is not None:
            return self._pass.epoch_at(step)
        number = step // self.epoch
        return number, number * self.epoch, (number + 1) * self.epoch

    def end(self):
        """Return J after the last step of the run; None if it does not end."""
        return self.stop_at

    def _take(self, step):
        """Return the samples of each slot of a step; None if it is skipped, or after the end of the run."""
        for called, shares, after in self._live_calls:
            if called == step:
                self._check_shares(shares)
                start = step + after
                self._live = [each for each in self._live if each[0] < start] + [(start, shares)]
        for called, first, last in self._skip_calls:
            if called == step and self._pass is not None:
                raise RunError("steps of a pass cannot be skipped")
            if called == step:
                self._skips |= set(range(first, last + 1))
        if self.stop_at is not None and step >= self.stop_at:
            return None
        is_skipped = step in self._spec_skips or step in self._skips
        parts = []
        for rank in range(self.topology.ranks):
            if self._pass is not None:
                parts.append(self._pass.take_of(rank, step))
            else:
                m, worker = divmod(step, self.topology.workers)
                parts.append(self.slot(rank, worker).take(m, is_skipped))
        return None if is_skipped else parts

    @property
    def slot_kind(self):
        """The class of its slots."""
        return WindowSlot if self.is_windowed else StagedSlot if self.spec.stage is not None else Slot

    def _check_shares(self, shares):
        """Raise RunError if these shares cannot be set (docs/training.md)."""
        has_limits = any(source.max_passes is not None for source in self.spec.sources)
        if self._pass is not None or self.spec.mix.draw == "round_robin" or has_limits:
            raise RunError("shares cannot be set")
        if not shares.keys() <= {each.name for each in self.spec.dataset}:
            raise RunError("shares are set by the names of the top-level list")
        found = effective_shares(self.spec.dataset, self.spec.mix, self.count_shards, shares)
        if any(found[source.name] for source in self.spec.sources if source not in self.sources):
            raise RunError("a source that the spec never gives a share cannot get one")

    def slot(self, rank, worker):
        """Return slot (c, k)."""
        if (rank, worker) not in self._slots:
            self._slots[rank, worker] = slot = self.slot_kind(self, rank, worker)
            old = self._older.get((rank, worker))
            if old is not None:
                slot.follow(old)
        return self._slots[rank, worker]

    def follow(self, old, step):
        """Continue a run of another spec before a step."""
        if step and old._pass is None:
            old.items(step - 1)
        self._parts = (
            [None] * step if old._pass is not None else old._parts[:step]
        )  # a pass reads all at once
        if self.topology != old.topology:
            raise RunError("the topology has changed")
        if isinstance(self._pass, ReshuffledPass) and old._pass is not None:
            self.begun = self._pass.begin(*old._pass.begins(step))
            self._parts = [None] * self.begun
        if self._pass is not None or old._pass is not None:
            return
        if old.slot_kind is not Slot:
            for place in old._older:  # what is open changed there, also where that spec has read nothing
                old.slot(*place)
        self._older = {**old._older, **old._slots}
        self._skips = set(old._skips)
        if self.constant_shares == old.constant_shares:
            self._live = list(old._live)

    def readers_after(self, old):
        """Return the readers that finish what an older model began: they select as that one did."""
        return {
            name: SourceReader(
                self.spec, reader.source.model_copy(update={"select": old.readers[name].source.select})
            )
            for name, reader in self.readers.items()
            if name in old.readers
        }

    def _assemble(self, step, parts, first=0):
        """Return the items of parts of global batch J, of which the first belongs to canonical rank `first`."""
        spec, place = self.spec, step * self.global_size + first * self.per_slot
        if spec.batch is None:
            samples = [sample for part in parts for sample in part]
            return samples if spec.to_tuple is None else [as_tuple(each, spec.to_tuple) for each in samples]
        places = [place + rank * self.per_slot for rank in range(len(parts))]
        if self.is_windowed:
            return [self._assemble_window(part, at) for part, at in zip(parts, places, strict=True)]
        return [collate(part, spec, at) for part, at in zip(parts, places, strict=True)]

    def _assemble_window(self, given, place):
        spec, (samples, costs) = self.spec, given
        pack = spec.batch.pack
        item = collate(samples, spec, place) if pack is None else pack_row(samples, pack)
        if isinstance(item, dict):
            item["__size__"] = len(costs)
            is_sum = pack is not None or not spec.batch.padded
            item["__cost__"] = sum(costs) if is_sum else len(costs) * max(costs, default=0)
        if pack is not None and spec.to_tuple is not None:
            return tuple(item[entry] for entry in spec.to_tuple)
        return item


def replay(phases, *, ranks=1, workers=0, live=(), skips=(), is_older=False):
    """Return the model of a run that was saved and loaded with other specs.

    Plain mixes follow docs/order.md. A window, a section of groups or a section of a stage that is open at a change is
    finished by the plan it was begun with, or starts again; then the new plan applies.

    Args:
        phases: (spec, first step) of each part of the run.
        live, skips: as of `Model`, for all parts.
        is_older: whether an older release runs the first part.
    """
    model = None
    for spec, first in phases:
        by_older = is_older and model is None
        following = Model(spec, ranks=ranks, workers=workers, live=live, skips=skips, is_older=by_older)
        if model is not None:
            following.follow(model, first)
        model = following
    return model


def are_read_alike(old, new, name):
    """Whether the slots of two models read the raw samples of a source in the same order."""
    keys = ("order", "key", "where", "subset", "only_keys", "exclude", "keys_of", "tokens", "join", "lookup")
    keys += ("extensions",)
    before, now = old.readers[name], new.readers[name]
    return (
        old.spec.seed == new.spec.seed
        and before.shards == now.shards
        and all(getattr(before.source, key) == getattr(now.source, key) for key in keys)
    )


def _makes(model, name):
    """Return what makes the fields that are measured after a function of the whole sample; None if none are.

    After a stage, all fields are measured after it.
    """
    reader = model.readers[name]
    source = reader.source
    if not model.is_windowed or not (reader.measures_after_map or model.spec.stage is not None):
        return None
    if all(call.field is not None for call in (*source.map, *model.spec.map)):
        return None
    return source.rename, source.tags, source.decode


def _companions(model, name):
    """Return what the companions of a source depend on."""
    found = model.readers[name].source.companions
    return {field: (each, model.spec.companions[each.source]) for field, each in found.items()}


def _drops(model, name):
    """Return which samples of a source are dropped late, except by `select`."""
    missing = model.readers[name].source.missing
    return missing, model.spec.fields if missing == "skip" else None


def are_drawn_alike(old, new):
    """Whether nothing that the order depends on differs between two models whose sources are read alike."""
    selects = ({name: reader.source.select for name, reader in model.readers.items()} for model in (old, new))
    return (
        (old.sizes, old.constant_shares, mix_of(old)) == (new.sizes, new.constant_shares, mix_of(new))
    ) and len({*map(str, selects)}) == 1


def mix_of(model):
    """Return the keys of the mix, but those that only the shares depend on."""
    return model.spec.mix.model_copy(update=dict.fromkeys(("by", "cap", "temperature")))


def has_plain_shares(spec):
    """Whether shares are numbers of samples in a mix without mixes."""
    has_mixes = {each.name for each in spec.dataset} != {source.name for source in spec.sources}
    return spec.mix.shares_in == "samples" and not has_mixes


class Section(NamedTuple):
    """A window, a section of groups or the input of a stage, which is open: how it began."""

    model: Model
    """The model by which it began."""
    streams: list
    """The streams of the slot at its start."""
    point: int
    """The number of the section of the stage that was open then."""
    window: int
    """The number of the window."""
    is_live: bool
    """Whether it began by shares that were set at run time."""

    def can_be_finished(self, model):
        """Whether it can be finished in the run of another model.

        `rename`, `tags` and `decode` of single fields that are measured are not compared.
        """
        old, kept = self.model, [source.name for source in self.model.sources]
        return (
            old.per_slot == model.per_slot
            and (not old.is_windowed or old.spec.batch == model.spec.batch)
            and all(getattr(old.spec, key) == getattr(model.spec, key) for key in ("seed", "costs", "stage"))
            and {*kept} <= {source.name for source in model.sources}
            and all(are_read_alike(old, model, name) for name in kept)
            and all(_drops(old, name) == _drops(model, name) for name in kept)
            and all(_makes(old, name) == _makes(model, name) for name in kept)
            and all(_companions(old, name) == _companions(model, name) for name in kept)
            and (not self.is_live or has_plain_shares(model.spec) or are_drawn_alike(old, model))
        )


class Lanes:
    """The raw samples of a source in the order in which a slot reads them, from the start of a turn on."""

    def __init__(self, reader, order, slot, turn, width):
        self._reader, self._order, self._slot = reader, order, slot
        self.next_turn = turn
        self._open = []
        self.begin_pass(width)

    def begin_pass(self, width):
        """Start the next pass of the slot."""
        order, turn = self._order, self.next_turn
        self._last_turn = order.last_turn(self._slot, order.passes_at(self._slot, turn))
        self.widen(width)

    def widen(self, width):
        """Read so many shards in turn from here on; surplus ones are read to their ends."""
        self.width = width
        while len(self._open) < width and self.next_turn <= self._last_turn:
            self._open.append(self._next_shard())

    @property
    def first_turn(self):
        """The first turn that is not finished."""
        return min((turn for turn, _ in self._open), default=self.next_turn)

    def _next_shard(self):
        turn = self.next_turn
        entry = self._order.entry(self._slot, turn)
        self.next_turn += 1
        found = []
        order = self._order
        is_endless = order.kind == "resampled"
        reading = turn * order.slots + self._slot if is_endless else order.passes_at(self._slot, turn)
        for index, part in enumerate(self._reader.parts(entry.shard, reading)):
            if index % self._order.split != entry.residue:
                continue
            if isinstance(part, Damage):
                self._reader.skip_or_raise(SampleError("shard", "a damaged sample"))
            elif not self._reader.has_selection or self._reader.keeps(part):
                found.append(part)
        return turn, found

    def next(self):
        """Return the next raw sample; None at the end of a pass of the slot."""
        for _ in range(1000 + 20 * self._order.per_pass):
            if not self._open:
                return None
            turn, shard = self._open[0]
            if shard:
                self._open = [*self._open[1:], (turn, shard[1:])]
                return shard[0]
            if len(self._open) <= self.width and self.next_turn <= self._last_turn:
                self._open[0] = self._next_shard()
            else:
                self._open = self._open[1:]
        raise RunError("the shards of a source have no sample")  # resampled ones never end


class Piece(NamedTuple):
    """Samples of a pass that were in progress when the spec changed."""

    until: int
    """Ordinal of the first sample after them."""
    size: int
    """N of these samples."""
    width: int
    """Number of shards read in turn for them."""


class Stream:
    """The raw samples of a source in the order in which a slot yields them, with their ordinals.

    Args:
        turn, ordinal: where the pass of the slot starts.
        pieces: its samples that keep other sizes than those of the plan.
        out: the ordinals of those that were yielded already.
        origin: the ordinal from which a run that was resumed reads.
    """

    def __init__(self, model, source, slot, turn=0, ordinal=0, pieces=(), out=(), origin=None):
        self.reader, self.source, self.slot = model.readers[source.name], source, slot
        self._seed, slots = model.spec.seed, model.topology.slots
        self.order = ShardOrder(self._seed, source.name, len(self.reader.shards), slots, source.order)
        self.size, self.width = model.sizes[source.name]
        self.number_key = key64(self._seed, "transform", source.name, slot)
        self.companions = CompanionStreams(model, source, slot)
        self._barren, self._dropped = model.barren, frozenset()
        self.pieces, self.out = list(pieces), dict.fromkeys(out)
        self._begin(turn, ordinal)
        self._origin = ordinal if origin is None else origin

    def _begin(self, turn, ordinal):
        self._turn, self._start, self._read, self._origin = turn, ordinal, ordinal, ordinal
        self._lanes, self._buffer = None, []

    @property
    def lanes(self):
        """The open shards of this pass. A source that is never drawn opens none."""
        if self._lanes is None:
            _, width = self._sizes_of(self._start)
            self._lanes = Lanes(self.reader, self.order, self.slot, self._turn, width)
        return self._lanes

    def copy(self):
        """Return a stream that is here, and goes on by itself."""
        copied = copy(self)
        copied.pieces, copied.out, copied._buffer = [*self.pieces], dict(self.out), [*self._buffer]
        if self._lanes is not None:
            copied._lanes = copy(self._lanes)
            copied._lanes._open = [*self._lanes._open]
        copied.companions = self.companions.copy()
        return copied

    def _sizes_of(self, ordinal):
        """Return N and the width of a sample of this pass."""
        piece = next((piece for piece in self.pieces if ordinal < piece.until), None)
        return (self.size, self.width) if piece is None else (piece.size, piece.width)

    def release(self, ordinal):
        """Return when a sample of this pass is due, in 2⁻²⁰ samples."""
        size, _ = self._sizes_of(ordinal)
        delays = Delays(self._seed, self.source.name, size)
        return int(delays.releases(delays.key(self.slot), ordinal, 1)[0])

    def next_raw(self):
        """Return (raw sample, its ordinal)."""
        barren = 0
        while True:
            # Everything that is due before the first sample not yet read.
            due = self._pop_until(self._read << 20)
            if due is not None:
                return due
            _, width = self._sizes_of(self._read)
            if width != self.lanes.width:
                self.lanes.widen(width)
            raw = self.lanes.next()
            if raw is not None:
                heappush(self._buffer, (self.release(self._read), self._read, raw))
                self._read += 1
                continue
            due = self._pop_until(None)  # at the end of a pass, everything
            if due is not None:
                return due
            barren += self._read == self._start
            if barren > 64 * self.order.split:  # by then, it has read every part of every shard
                raise RunError(f"{self.reader.name} yields nothing")
            self.pieces, self.out = [], {}
            self._begin(self.lanes.next_turn, self._read)

    def _pop_until(self, release):
        """Return the next sample that is due and was not yielded before; None if there is none."""
        while self._buffer and (release is None or self._buffer[0][0] < release):
            _, ordinal, raw = heappop(self._buffer)
            if ordinal not in self.out:
                self.out[ordinal] = None
                return raw, ordinal
        return None

    def after_change(self, model, source, is_alike):
        """Return the stream of a changed spec that continues here.

        Args:
            is_alike: whether raw samples are read in the same order.
        """
        changed = self._after_change(model, source, is_alike)
        if self._seed == model.spec.seed:
            changed.companions = self.companions
        return changed

    def _after_change(self, model, source, is_alike):
        if is_alike and not self.out:
            return Stream(model, source, self.slot, self._turn, self._start)
        restart, turn = self._find_restart()
        if is_alike:
            until = (self.release(next(reversed(self.out))) >> 20) + 1
            kept = [piece for piece in self.pieces if piece.until < until]
            current = (
                self.pieces[len(kept)] if len(kept) < len(self.pieces) else Piece(0, self.size, self.width)
            )
            pieces = [*kept, current._replace(until=until)]
            return Stream(model, source, self.slot, self._turn, self._start, pieces, self.out, restart)
        last = next(reversed(self.out), -1)
        return Stream(model, source, self.slot, turn, max(restart, last + 1))

    def _find_restart(self):
        """Return from which ordinal a resumed run reads, and the first turn that is not finished there.

        A run reads blocks, and may start again at the start of a block before which all samples were yielded.
        """
        if not self.out:
            return self._origin, self._turn_at(self._origin)
        last = next(reversed(self.out))
        if self.size == 1 and all(piece.until <= last + 1 for piece in self.pieces):
            return last + 1, self._turn_at(last + 1)
        block, points, at = (
            Delays(self._seed, self.source.name, self.size).block,
            [self._origin],
            self._origin,
        )
        end = self._find_end()
        until = (self.release(last) >> 20) + 1
        has_ended = False
        while at < until and not has_ended:
            if at % block == 0 and at > points[-1]:
                points.append(at)
            wanted = min(block - at % block, max(16, at - self._origin))
            wanted = min([wanted, *(piece.until - at for piece in self.pieces if at < piece.until)])
            has_ended = end is not None and at + wanted > end
            at = end if has_ended else at + wanted
        oldest = next((each for each in range(self._start, at) if each not in self.out), at)
        if has_ended and oldest == at:
            return at, self._turn_at(at, ends=True)
        restart = max(point for point in points if point <= oldest)
        return restart, self._turn_at(restart)

    def _reread(self):
        """Yield the lanes before each sample of the pass is read, and at its end."""
        lanes = Lanes(self.reader, self.order, self.slot, self._turn, self._sizes_of(self._start)[1])
        for ordinal in count(self._start):
            _, width = self._sizes_of(ordinal)
            if width != lanes.width:
                lanes.widen(width)
            yield lanes
            if lanes.next() is None:
                return

    def _find_end(self):
        """Return the ordinal at which the pass ends; None if it does not."""
        if self.source.order == "resampled":
            return None
        return self._start + sum(1 for _ in self._reread()) - 1

    def _turn_at(self, ordinal, ends=False):
        """Return the first turn that is not finished before a sample of the pass is read."""
        for number, lanes in enumerate(self._reread(), self._start):
            turn = lanes.first_turn
            if number == ordinal and not ends:
                return turn
        return lanes.next_turn

    def next_with(self, use):
        """Return the next sample for which `use(raw, number)` is not None; numbers count from 1."""
        most = 1000 + 20 * sum(len(self.reader.own(shard)) for shard in range(len(self.reader.shards)))
        for _ in range(most):
            raw, ordinal = self.next_raw()
            reader = self.reader.beside(self.companions.draw(self._seed, ordinal + 1))
            try:
                found = use(reader, raw, self.number_key, ordinal + 1)
            except SampleError as error:
                self.reader.skip_or_raise(error)
                found = None
            if found is not None:
                self._dropped = frozenset()
                return found
            self._dropped |= {(raw.url, raw.key)}
            if self._dropped >= self.reader.names:
                self._barren.add(self.reader.name)
        raise RunError(f"{self.reader.name} yields nothing")


def finish(reader, raw, number_key, number):
    """Return the sample of a raw sample."""
    return reader.finish(raw, number_key, number)


def keep(reader, raw, number_key, number):
    """Return the sample of a raw sample, its reader, and what it was made of; None if it is dropped."""
    sample = reader.finish(raw, number_key, number)
    return None if sample is None else (sample, reader, (raw, number_key, number))


def finish_skipped(reader, raw, number_key, number):
    """Return the sample of a raw sample in a skipped step, which is not decoded unless it may be dropped."""
    return reader.finish(raw, number_key, number) if reader.source.drops_decoded else {}


class CompanionStreams:
    """The companions of a source in a slot (docs/companions.md)."""

    def __init__(self, model, source, slot):
        self._owner, self._slot, self.streams = source.name, slot, {}
        for field, companion in source.companions.items():
            seed = key64(model.spec.seed, "companion", source.name, field)
            self.streams[field] = companion, _Alone(model, companion.source, seed).stream(slot)

    def copy(self):
        """Return streams that are here, and go on by themselves."""
        copied = copy(self)
        copied.streams = {field: (each, stream.copy()) for field, (each, stream) in self.streams.items()}
        return copied

    def draw(self, seed, number):
        """Return the companions of the sample of a number: field → companion, a list of them, or None."""
        found = {}
        for field, (companion, stream) in self.streams.items():
            key = key64(seed, "companion", self._owner, field, "chance", self._slot)
            if random64(key, number) >= companion.chance * 2**64:
                found[field] = None
                continue
            taken = [stream.next_with(finish) for _ in range(companion.count)]
            found[field] = taken[0] if companion.count == 1 else taken
        return found


class _Alone:
    """What `Stream` asks of a model: a mix of one source of companions, with a seed of its own."""

    def __init__(self, model, name, seed):
        self.source, self.topology = model.spec.companions[name], model.topology
        self.barren = model.barren
        plain = {"map": (), "fields": None, "to_tuple": None, "batch": None, "stage": None, "seed": seed}
        self.spec = model.spec.model_copy(update=plain)
        self.readers = {name: SourceReader(self.spec, self.source)}
        whole = Fraction(1)
        self.sizes = {
            name: (shuffle_size(self.source.shuffle, whole), lanes_of(self.source.interleave, whole))
        }

    def stream(self, slot):
        """Return the stream of a slot."""
        return Stream(self, self.source, slot)


class Slot:
    """An endless slot (c, k)."""

    section = None
    """What is open: a `Section`; None between two of them, and in a slot without."""

    def __init__(self, model, rank, worker):
        self.model, self.rank, self.worker = model, rank, worker
        self.number = model.topology.slot(rank, worker)
        self.streams = [Stream(model, source, self.number) for source in model.sources]

    def follow(self, old):
        """Continue where the slot of an older spec is; or where what is open there starts, if it cannot be finished."""
        section, is_like = old.section, self.kinds == old.kinds
        if section is None or (is_like and section.can_be_finished(self.model)):
            self._read_on(old.streams, old.model)
            if is_like:
                self._finish(old)
        else:
            self._read_on(section.streams, section.model)
            if is_like:
                self._begin_again(section)

    def begin_section(self, step, point, window):
        """Return a section that begins here."""
        streams = [stream.copy() for stream in self.streams]
        return Section(self.model, streams, point, window, self.model.has_live_shares(step))

    def _read_on(self, streams, model):
        """Read where the streams of an older model are."""
        before = {stream.source.name: stream for stream in streams}
        self.streams = [
            before[source.name].after_change(
                self.model, source, are_read_alike(model, self.model, source.name)
            )
            if source.name in before
            else Stream(self.model, source, self.number)
            for source in self.model.sources
        ]

    @property
    def kinds(self):
        """Which kinds of sections it has."""
        return (self.model.spec.stage is not None, self.model.is_windowed)

    def _finish(self, old):
        """Continue with what is open in the slot of an older spec."""

    def _begin_again(self, section):
        """Begin a section of the slot of an older spec again."""

    def draw(self, step, m):
        """Return the sources of the m-th batch (or window), drawn by the shares of a step."""
        batch = m * self.model.topology.workers + self.worker
        if self.model.fail_at is not None and batch >= self.model.fail_at:
            raise RunError(f"batch or window {batch} would exceed `max_passes`")
        draws = self.model.draws_at(step, batch)
        return [self.streams[source] for source in draws.batches(self.rank, self.worker, m, 1)[0].tolist()]

    def take(self, m, is_skipped=False):
        """Return the samples of the m-th batch."""
        step = m * self.model.topology.workers + self.worker
        use = finish_skipped if is_skipped else finish
        return [stream.next_with(use) for stream in self.draw(step, m)]


class Output(NamedTuple):
    """A sample that a stage has yielded: as which number for the raw samples of the section that starts at a point."""

    sample: Any
    raws: Any
    point: int
    number: int
    begun: Model
    """The model by which that section began."""


class StagedInput:
    """What a stage yields for a slot, in sections of its input."""

    def __init__(self, slot):
        model, stage = slot.model, slot.model.spec.stage
        self._slot = slot
        self._stage = build_function(Call(call=stage.call, args=stage.args), model.spec.folder)
        self._blocks = -(-stage.every // model.per_slot)
        self._key = key64(model.spec.seed, "stage", slot.number)
        self.next, self._outputs, self._raws = 0, [], []
        self.section = None

    def continue_from(self, old):
        """Continue with what an older stage has yielded, of samples that are made by the spec of now."""
        self.next, self.section, self._raws = old.next, old.section, old._raws
        if old._outputs:  # all of the last section
            readers = self._slot.model.readers_after(self.section.model)
            again = self.make_again(readers, old._outputs[0])
            self._outputs = [each._replace(sample=again[each.number]) for each in old._outputs]

    def make_again(self, readers, output):
        """Return all samples that the stage yields for the section of an output, made by the spec of now."""
        inputs = [finish(readers[reader.name].beside(reader.companions), *raw) for reader, raw in output.raws]
        return self._call(inputs, output.point)

    def take(self, turn):
        """Return the next b outputs; sections that begin now are drawn by the shares of a turn of the slot."""
        size = self._slot.model.per_slot
        for _ in range(_BARREN):
            if len(self._outputs) >= size:
                break
            self._run_once(turn)
        if len(self._outputs) < size:
            raise RunError("the stage yields nothing")
        taken, self._outputs = self._outputs[:size], self._outputs[size:]
        return taken

    def _run_once(self, turn):
        """Call the stage with the samples of a section."""
        slot, point = self._slot, self.next
        self.next += self._blocks
        step = turn * slot.model.topology.workers + slot.worker
        self.section = slot.begin_section(step, point, 0)
        found = [stream.next_with(keep) for m in range(point, self.next) for stream in slot.draw(step, m)]
        self._raws = [each[1:] for each in found]
        samples = self._call([sample for sample, *_ in found], point)
        self._outputs += [
            Output(each, self._raws, point, number, slot.model) for number, each in enumerate(samples)
        ]

    def _call(self, inputs, point):
        """Return what the stage yields for the samples of the section that starts at a point."""
        slot, outputs = self._slot, []

        def feed():
            for number, sample in enumerate(inputs, point * slot.model.per_slot + 1):
                seed_generators(random64(self._key, number))
                yield sample

        given = 0
        output_key = key64(self._key, "output", point)
        with lend_generators(random64(output_key, 0)):
            for sample in self._stage(feed()):
                outputs.append(sample)
                given += 1
                seed_generators(random64(output_key, given))
        return outputs


class StagedSlot(Slot):
    """A slot after a stage."""

    def __init__(self, model, rank, worker):
        super().__init__(model, rank, worker)
        self._input = StagedInput(self)

    @property
    def section(self):
        """The section of the stage."""
        return self._input.section

    def _finish(self, old):
        self._input.continue_from(old._input)

    def _begin_again(self, section):
        self._input.next = section.point

    def take(self, m, is_skipped=False):
        """Return the next samples that the stage yields."""
        return [each.sample for each in self._input.take(m)]


def make_chooser(model):
    """Return the function of `Stream.next_with` that measures a raw sample for a window."""
    batch = model.spec.batch

    def choose(reader, raw, number_key, number):
        is_decoded = batch.is_by_function or reader.source.select is not None or reader.measures_after_map
        sample = None
        if is_decoded:
            sample = reader.finish(raw, number_key, number)
            if sample is None:
                return None
        found = reader.measure(raw, batch, sample)
        if found is None:
            return None
        take = lambda: dict(sample) if is_decoded else reader.finish(raw, number_key, number)  # noqa: E731
        candidate = Candidate(
            *found,
            take,
            reader,
            name=None if model.is_older else (raw.url, raw.key),
            begun=model,
            again=lambda readers: (
                readers[reader.name].beside(reader.companions).finish(raw, number_key, number)
            ),
        )
        return candidate if has_room(candidate, batch) else None

    return choose


def has_room(measured, batch):
    """Whether a sample enters the window. Raises SampleError if it exceeds the limits, which is an error."""
    if batch.cuts_samples or batch.overlong not in ("error", "drop") or Rules(batch).fits([measured]):
        return True
    if batch.overlong == "drop":
        return False
    raise SampleError("decode", f"a sample costs {measured.cost}")


def give(batch, pack, is_skipped=False):
    """Return the samples of a planned batch that can be delivered, and their costs; in a skipped step, how many."""
    samples, costs = [], []
    for each in batch:
        reader = each.reader
        if is_skipped and not reader.source.drops_decoded:
            sample = {}
        else:
            try:
                sample = each.take()
                if sample is not None and each.cut is not None:
                    sample = _cut_fields(sample, each.cut, pack)
            except SampleError as error:
                reader.skip_or_raise(error)
                sample = None
        if sample is not None:
            samples.append(sample)
            costs.append(each.cost)
    return samples, costs


def _cut_fields(sample, cut, pack):
    length, start, stop = cut
    sample = dict(sample)
    for name in pack.fields:
        if name in sample:
            if len(sample[name]) != length:
                raise SampleError(
                    "decode", f"`{name}` has {len(sample[name])} elements, and the sample costs {length}"
                )
            sample[name] = sample[name][start:stop]
    return sample


def plan_batches(samples, spec, keys, window, turn):
    """Return the batches of a window in order.

    Args:
        keys: those of the slot for the order of batches, and of the canonical worker for groups.
        window: the number of the window.
        turn: the number of the slot's batch with which it starts.
    """
    if spec.batch.group_by is not None:
        return plan_groups(samples, spec.batch, keys[1], turn)
    return plan_window(samples, spec.batch, key64(keys[0], window), turn)


def window_keys(model, slot, worker):
    """Return the keys of `plan_batches`."""
    return key64(model.spec.seed, "window", slot), key64(model.spec.seed, "groups", worker)


class WindowSlot(Slot):
    """A slot whose batches are planned from windows."""

    def __init__(self, model, rank, worker):
        super().__init__(model, rank, worker)
        self._choose = make_chooser(model)
        self._window, self._batches, self._section = 0, [], None
        self._input = None if model.spec.stage is None else StagedInput(self)

    @property
    def section(self):
        """The open window, or else the section of the stage. An older release noticed the end only when it went on."""
        ends_at_once = self.model.spec.batch.group_by is None and not self.model.is_older
        if self._section is not None and (self._batches or not ends_at_once):
            return self._section
        found = None if self._input is None else self._input.section
        return None if found is None else found._replace(window=self._window)

    def _finish(self, old):
        self._window, self._section, self._batches = old._window, old._section, old._batches
        if self._batches:
            self._batches = [[_read_by(self.model, each) for each in batch] for batch in self._batches]
        if self._input is not None:
            self._input.continue_from(old._input)

    def _begin_again(self, section):
        self._window = section.window
        if self._input is not None:
            self._input.next = section.point

    def take(self, m, is_skipped=False):
        """Return the samples of the next batch, and what each of them costs."""
        first = self._window
        while self._window - first <= _BARREN:
            for _ in range(_BARREN):
                if self._batches:
                    break
                self._open(m)
            if not self._batches:
                raise RunError("windows of samples have made no batch")
            given = give(self._batches.pop(0), self.model.spec.batch.pack, is_skipped)
            if given[0]:
                return given
        raise RunError("no sample is left of many windows")

    def _open(self, m):
        step = m * self.model.topology.workers + self.worker
        self._section = self.begin_section(step, self._input.next if self._input else 0, self._window)
        if self._input is not None and self._input.section is not None:
            is_live = self._section.is_live or self._input.section.is_live
            self._section = self._input.section._replace(window=self._window, is_live=is_live)
        if self._input is not None:
            found = [self._choose_finished(output) for output in self._input.take(m)]
            samples = [each for each in found if each is not None]
        else:
            samples = [stream.next_with(self._choose) for stream in self.draw(step, self._window)]
        keys = window_keys(self.model, self.number, self.worker)
        self._batches = plan_batches(samples, self.model.spec, keys, self._window, m)
        self._window += 1

    def _choose_finished(self, output):
        """Return the measured sample of a stage; None if it does not enter the window."""
        reader = self.model.readers[output.sample["__source__"]]
        try:
            measured = Candidate(
                *reader.measure_finished(output.sample, self.model.spec.batch),
                lambda: output.sample,
                reader,
                begun=output.begun,
                again=lambda readers: self._input.make_again(readers, output)[output.number],
            )
            return measured if has_room(measured, self.model.spec.batch) else None
        except SampleError as error:
            reader.skip_or_raise(SampleError("map", str(error)))
            return None


def _read_by(model, candidate):
    """Return a candidate whose sample is made by the spec of now, and selected as by the one that its section began."""
    readers = model.readers_after(candidate.begun)
    return replace(candidate, reader=readers[candidate.reader.name], take=lambda: candidate.again(readers))


class PlainPass:
    """`epoch: pass` in batches of a fixed size."""

    def __init__(self, model):
        self.model, spec = model, model.spec
        self.copies, self._companions = {}, {}
        self.positions = {name: self._list_positions(reader) for name, reader in model.readers.items()}
        before = 0
        for name, positions in self.positions.items():
            if not positions and (spec.limit is None or before < spec.limit or spec.epoch.reshuffle):
                raise RunError(f"no sample of {name} has a position")
            before += len(positions)
        self.samples = before if spec.limit is None else min(before, spec.limit)
        self._slots = {}
        self._first = None
        self._plan()

    def _plan(self):
        size, ranks = self.model.global_size, self.model.topology.ranks
        is_cut = self.model.spec.epoch.remainder == "drop"
        self.batches = self.samples // size if is_cut else -(-self.samples // size)
        if not self.samples or not self.batches:
            raise RunError("the pass has no batch")
        self._ranges = {}
        start = 0
        for rank in range(ranks):
            for worker in range(self.model.topology.workers):
                mine = len(range(worker, self.batches, self.model.topology.workers)) * self.model.per_slot
                self._ranges[rank, worker] = start, start + mine
                start += mine

    def _list_positions(self, reader):
        """Return (shard, index of the sample) at each position of a source."""
        source, spec = reader.source, self.model.spec
        kind = "sequential" if spec.epoch.reshuffle else source.order
        order = ShardOrder(spec.seed, source.name, len(reader.shards), 1, kind)
        shards = [order.entry(0, turn).shard for turn in range(len(reader.shards))]
        counted = self._counted(reader)
        whole, again = [], []
        for shard in shards:
            entries = reader.own(shard)
            if all(isinstance(entry, Damage) for entry in entries):
                continue
            for index, entry in enumerate(entries):
                is_damaged = isinstance(entry, Damage)
                if is_damaged and (entry.ends or counted):
                    continue
                part = None if is_damaged else reader.parts(shard)[index]
                if counted == "keys" and not reader.keeps(entry, by_value=False):
                    continue
                if counted == "all" and (isinstance(part, Damage) or not reader.keeps(part)):
                    continue
                whole.append((shard, index))
                if source.copies % 1 and not is_damaged and reader.is_again(entry):
                    again.append((shard, index))
        self.copies[source.name] = [len(whole)] * int(source.copies) + [len(again)] * (source.copies % 1 > 0)
        return whole * int(source.copies) + again

    def _counted(self, reader):
        """Return which part of the selection decides before the run who has a position: none, `keys` or `all`."""
        spec = self.model.spec
        if not reader.has_selection or self.model.is_windowed:
            return ""
        if spec.stats is not None:
            with open(spec.stats, encoding="utf-8") as file:
                measurements = json.load(file)["sources"].get(reader.name, {})
            if measurements.get("keeping"):
                return "all"
        return "keys" if reader.is_kept_by_key else ""

    def read(self, first, stop, slot, use):
        """Yield what `use` makes of the samples first..stop-1, None for each that is lost, in the order of a slot."""
        start = 0
        for name, positions in self.positions.items():
            low, high = max(first, start), min(stop, start + len(positions), self.samples)
            if low < high:
                yield from self._read_source(name, low - start, high - start, slot, use)
            start += len(positions)

    def _read_source(self, name, low, high, slot, use):
        spec, reader = self.model.spec, self.model.readers[name]
        delays = Delays(spec.seed, name, self._held(reader))
        releases = delays.releases(delays.key(slot), 0, high - low).tolist()
        order = sorted(range(high - low), key=lambda at: (releases[at], at))
        for at in order:
            yield self._read_position(reader, low + at, use, slot)

    def _held(self, reader):
        return shuffle_size(reader.source.shuffle, Fraction(1))

    def _read_position(self, reader, position, use, slot, seed=None, epoch=0):
        shard, index = self.positions[reader.name][position]
        ends = accumulate(self.copies[reader.name])
        reading = (epoch << 32) + next(number for number, end in enumerate(ends) if position < end)
        part = reader.parts(shard, reading)[index]
        try:
            if isinstance(part, Damage):
                raise SampleError("shard", "a damaged sample")
            counted = self._counted(reader)
            if reader.has_selection and counted != "all" and not reader.keeps(part, by_key=counted != "keys"):
                return None
            seed = self.model.spec.seed if seed is None else seed
            if (reader.name, slot) not in self._companions:
                self._companions[reader.name, slot] = CompanionStreams(self.model, reader.source, slot)
            reader = reader.beside(self._companions[reader.name, slot].draw(seed, position))
            return use(reader, part, key64(seed, "transform", reader.name, 0), position)
        except SampleError as error:
            reader.skip_or_raise(error)
            return None

    def first(self):
        """Return the sample that fills batches without samples: the first of the pass, if slot 0 read all of it."""
        if self._first is None:
            companions, self._companions = self._companions, {}  # the sample takes none away
            found = self.read(0, self.samples, 0, finish)
            self._first = next((sample for sample in found if sample is not None), None)
            self._companions = companions
            if self._first is None:
                raise RunError("all samples of the pass were dropped")
        return dict(self._first)

    def epoch_at(self, step):
        """Return the number of the epoch of a step, J of its first step, and J of the step after its last one."""
        number = step // self.batches
        return number, number * self.batches, (number + 1) * self.batches

    def begins(self, step):
        """Return the number of the epoch of a step, and J of its first step."""
        return self.epoch_at(step)[:2]

    def take_of(self, rank, step):
        """Return the samples of a rank in global batch J."""
        m, worker = divmod(step % self.batches, self.model.topology.workers)
        return self.take(rank, worker, m)

    def take(self, rank, worker, m):
        """Return the samples of the m-th batch of a slot."""
        if (rank, worker) not in self._slots:
            number = self.model.topology.slot(rank, worker)
            self._slots[rank, worker] = [*self.read(*self._ranges[rank, worker], number, finish)]
        size = self.model.per_slot
        return self._pad(self._slots[rank, worker][m * size : (m + 1) * size])

    def _pad(self, samples):
        """Return the samples of a batch with `__mask__`."""
        samples += [None] * (self.model.per_slot - len(samples))
        present = next((sample for sample in samples if sample is not None), None)
        padding = present or self.first()
        return [{**(padding if each is None else each), "__mask__": each is not None} for each in samples]


class ReshuffledPass(PlainPass):
    """`epoch: {pass: …, reshuffle: true}`."""

    def _plan(self):
        super()._plan()
        self._plan_sources()
        self._given = min(self.samples, self.batches * self.model.global_size)
        self._epoch = None, {}

    def _plan_sources(self):
        total = sum(map(len, self.positions.values()))
        self._shares = {name: Fraction(len(own), total) for name, own in self.positions.items()}
        self._sources = []
        for name, positions in self.positions.items():
            source, shards = self.model.readers[name].source, iter([shard for shard, _ in positions])
            copies = [[next(shards) for _ in range(size)] for size in self.copies[name]]
            width = lanes_of(source.interleave, self._shares[name])
            count, held = len(self.model.readers[name].shards), self._held(self.model.readers[name])
            self._sources.append(EpochSource(name, source.order == "sequential", count, copies, held, width))

    def _held(self, reader):
        return shuffle_size(reader.source.shuffle, self._shares[reader.name])

    def begin(self, number, first):
        """Begin an epoch after a change; `first` is J of its first step before. Return J of its first step."""
        return number * self.batches

    def take_of(self, rank, step):
        """Return the samples of a rank in global batch J."""
        spec, model = self.model.spec, self.model
        epoch, batch = divmod(step, self.batches)
        m, worker = divmod(batch, model.topology.workers)
        if self._epoch[0] != epoch:
            whole = list_epoch(
                spec.seed, epoch, self._sources, model.topology, model.per_slot, self.batches, self._given
            )
            self._epoch = epoch, whole
        key, slot = key64(spec.seed, "epoch", epoch), model.topology.slot(rank, worker)
        return self._pad(
            [
                self._read_position(model.readers[name], position, finish, slot, key, epoch)
                for name, position in self._epoch[1][rank, worker][m]
            ]
        )


class WindowedPass(PlainPass):
    """`epoch: pass` in batches that are planned from windows."""

    def _held(self, reader):
        return 1

    def _read_position(self, reader, position, use, slot, seed=None, epoch=0):
        found = super()._read_position(reader, position, use, slot, seed, epoch)
        if isinstance(found, Candidate) and not self.model.is_older:
            shard, index = self.positions[reader.name][position]
            found = replace(found, name=(reader.shards[shard][0], index))
        return found

    def _plan(self):
        size = self.model.per_slot

        def windows_of(rank, worker):
            number, slots = self.model.topology.slot(rank, worker), self.model.topology.slots
            first, stop = number * self.samples // slots, (number + 1) * self.samples // slots
            samples = self.read(first, stop, number, make_chooser(self.model))
            while window := [*islice(samples, size)]:
                yield window

        self._batches, self.batches = self._plan_windows(windows_of, 0)

    def _plan_windows(self, windows_of, first):
        """Return the batches of all slots, and E; windows are numbered, and turns counted, from `first` on."""
        model, topology = self.model, self.model.topology
        is_cut = model.spec.epoch.remainder == "drop"
        found, steps, after = {}, [], {}
        for rank in range(topology.ranks):
            for worker in range(topology.workers):
                slot = topology.slot(rank, worker)
                keys, batches = window_keys(model, slot, worker), []
                after[slot] = [(-1, self._companions_of(slot))]
                for window, samples in enumerate(windows_of(rank, worker), first):
                    there = [each for each in samples if each is not None]
                    planned = plan_batches(there, model.spec, keys, window, first + len(batches))
                    if planned:
                        after[slot].append((len(batches), self._companions_of(slot)))
                    else:  # it is not read
                        self._return_to(after[slot][-1][1])
                    batches += planned
                found[rank, worker] = batches
                if is_cut:
                    steps.append(len(batches) * topology.workers + worker)
                else:
                    steps.append((len(batches) - 1) * topology.workers + worker + 1 if batches else 0)
        length = min(steps) if is_cut else max(steps)
        if not length:
            raise RunError("the pass has no batch")
        for slot, windows in after.items():  # those that begin after the last step are not read
            last = (length - slot % topology.workers - 1) // topology.workers
            self._return_to([streams for begin, streams in windows if begin <= last][-1])
        return found, length

    def _return_to(self, companions):
        """Take companions from there on."""
        self._companions |= {place: streams.copy() for place, streams in companions.items()}

    def _companions_of(self, slot):
        """Return where the companions of a slot are."""
        return {
            (name, slot): self._companions[name, slot].copy()
            if (name, slot) in self._companions
            else CompanionStreams(self.model, reader.source, slot)
            for name, reader in self.model.readers.items()
        }

    def take(self, rank, worker, m):
        """Return the samples of the m-th batch of a slot, and what each of them costs."""
        batches, pack = self._batches[rank, worker], self.model.spec.batch.pack
        samples, costs = give(batches[m], pack) if m < len(batches) else ([], [])
        if samples:
            return [{**sample, "__mask__": True} for sample in samples], costs
        padding = {**self.first(), "__mask__": False}
        packed = () if pack is None else pack.fields
        return [padding | {name: padding[name][:0] for name in packed if name in padding}], costs


class ReshuffledWindows(WindowedPass, ReshuffledPass):
    """`epoch: {pass: …, reshuffle: true}` in batches that are planned from windows."""

    def _held(self, reader):
        return ReshuffledPass._held(self, reader)

    def _plan(self):
        self._plan_sources()
        self.start = 0, 0
        """The number of an epoch, and J of its first step."""
        self._known = {}
        self.batches = self._epoch_of(0)[1]

    def begin(self, number, first):
        """Begin an epoch after a change, at the same step."""
        self.start = number, first
        return first

    def _epoch_of(self, number):
        """Return the batches of all slots in an epoch, and its number of steps."""
        if number not in self._known:
            model, seed = self.model, self.model.spec.seed
            windows = list_windows(seed, number, self._sources, model.topology, model.per_slot, self.samples)
            choose, key = make_chooser(model), key64(seed, "epoch", number)

            def windows_of(rank, worker):
                slot = model.topology.slot(rank, worker)
                for window in windows[rank, worker]:
                    yield [
                        self._read_position(model.readers[name], at, choose, slot, key, number)
                        for name, at in window
                    ]

            self._known[number] = self._plan_windows(windows_of, number << 32)
        return self._known[number]

    def epoch_at(self, step):
        """Return the number of the epoch of a step, J of its first step, and J of the step after its last one."""
        number, first = self.begins(step)
        return number, first, first + self._epoch_of(number)[1]

    def begins(self, step):
        """Return the epoch of a step, and J of its first step. One that starts there may have no batch."""
        number, first = self.start
        while step > first and step >= first + self._epoch_of(number)[1]:
            number, first = number + 1, first + self._epoch_of(number)[1]
        return number, first

    def take_of(self, rank, step):
        """Return the samples of a rank in global batch J."""
        number, first, _ = self.epoch_at(step)
        self._batches = self._epoch_of(number)[0]
        m, worker = divmod(step - first, self.model.topology.workers)
        return self.take(rank, worker, m)
