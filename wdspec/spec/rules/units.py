"""Rules for numbers in another unit, or on another scale, than they were probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wdspec.base.amounts import size as show_size
from wdspec.spec.build import Composition
from wdspec.spec.language.decoders import split_decoder
from wdspec.spec.problems import list_names
from wdspec.spec.rules.batches import epoch_samples, least_global_batch
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.rules.safety import decoder_names
from wdspec.spec.tree import MapNode, Node, Scalar, locate, scalars
from wdspec.urls.urls import scheme_of

LEAST_TEMPERATURE = 0.5
LEAST_RETRY = 30
MOST_TIMEOUT = 3600
MOST_LANES = 256
EARLIEST = 0.005
"""A step of a schedule before this part of an epoch is probably a number of batches."""
MOST_EPOCHS = 10_000
"""A step of a schedule after more epochs is probably a slip."""
MOST_EPOCHS_OF_SAMPLES = 100
"""The same for a step in samples, if the spec counts tokens."""
MOST_RANKS = 8
"""Ranks that may share a cache; with more, each machine reads a part of the shards in a pass."""


def _numbers(composition: Composition, *path: str) -> Iterator[tuple[Scalar, Scalar]]:
    """The keys and plain numbers at a path in the top level and in all sources and mixes, each once."""
    seen = set()
    for _, node, bad in composition.holders:
        held: MapNode | None = node
        for step in path[:-1]:
            held = None if held is None or path[0] in bad else held.map_at(step)
        value = None if held is None or path[0] in bad else held.get(path[-1])
        is_number = isinstance(value, Scalar) and type(value.value) in (int, float)
        if held is not None and isinstance(value, Scalar) and is_number and id(value) not in seen:
            seen.add(id(value))
            yield held.key(path[-1]), value


@rule(
    "W396",
    "a temperature that sharpens the shares",
    "Shares are sizes to the power of 1 / `temperature`: above 1, small sources get more; below 1, large ones. "
    "Other tools have `alpha`, the power itself: its 0.3 is a `temperature` of 3.33. There is no warning from 0.5 on.",
    keys="temperature",
    bad="mix: {temperature: 0.3}\ndataset:\n  - {name: a, shards: a.tar, samples: 9000}\n"
    "  - {name: b, shards: b.tar, samples: 100}\n",
    good="mix: {temperature: 3.33}\ndataset:\n  - {name: a, shards: a.tar, samples: 9000}\n"
    "  - {name: b, shards: b.tar, samples: 100}\n",
)
def low_temperatures(composition: Composition) -> Findings:
    """Temperatures below 0.5, which are probably an alpha."""
    for key, node in _numbers(composition, "mix", "temperature"):
        if 0 < node.value < LEAST_TEMPERATURE:
            message = f"`temperature: {node.written}` gives large sources more: sizes to the power of "
            message += f"{1 / node.value:.3g}"
            hint = f"for sizes to the power of {node.written}, write `temperature: {1 / node.value:.3g}`"
            yield Finding(key, message, hint)


@rule(
    "W397",
    "a duration without a unit",
    "Durations without a unit are seconds. `retry` is how long to retry, not how often: no warning from 30 on. "
    "A `timeout` in milliseconds would be hours: there is no warning up to 3600. A number with a unit, such as `5s`, "
    "has no warning.",
    keys="retry timeout",
    bad="errors: {retry: 5}\ndataset:\n  - shards: s3://b/a.tar\n",
    good="errors: {retry: 5m}\ndataset:\n  - shards: s3://b/a.tar\n",
)
def bare_durations(composition: Composition) -> Findings:
    """Numbers of attempts as `retry`, and of milliseconds as `timeout`."""
    for key, node in _numbers(composition, "errors", "retry"):
        if 1 < node.value < LEAST_RETRY and node.value == int(node.value):
            number = node.written
            message = f"`retry: {number}` retries for {number} seconds, not {number} times"
            yield Finding(
                key, message, f"write `retry: {number}s`, or a longer time such as `retry: {number}m`"
            )
    for key, node in _numbers(composition, "errors", "timeout"):
        if node.value > MOST_TIMEOUT:
            message = f"`timeout: {node.written}` is {node.value / 3600:.1f} hours"
            hint = f"for milliseconds, write `timeout: {node.value / 1000:g}s`; if it is meant, `{node.written}s`"
            yield Finding(key, message, hint)


@rule(
    "W399",
    "a step of a schedule within the first batch",
    "`at` counts samples, not batches or epochs. A step after 0 but below the batch size would begin before the first "
    "batch ends. There is the same warning for a step within a batch, in the first 0.5% of an epoch of batches, whose "
    "number would be a batch of this epoch.",
    keys="schedule",
    bad="batch: 64\nmix: {schedule: [{at: 0, shares: {a: 1}}, {at: 2, shares: {a: 1, b: 1}}]}\ndataset:\n"
    "  - {name: a, shards: a.tar}\n  - {name: b, shards: b.tar}\n",
    good="batch: 64\nmix: {schedule: [{at: 0, shares: {a: 1}}, {at: 128, shares: {a: 1, b: 1}}]}\ndataset:\n"
    "  - {name: a, shards: a.tar}\n  - {name: b, shards: b.tar}\n",
)
def early_steps(composition: Composition) -> Findings:
    """Steps whose `at` is probably a number of batches."""
    batch = None if "batch" in composition.bad else composition.spec.batch
    size = None if batch is None else batch.global_size or batch.size
    for item in composition.schedule.items if size and composition.schedule else ():
        node = item.get("at") if isinstance(item, MapNode) else None
        if size and isinstance(node, Scalar) and isinstance(node.value, int) and 0 < node.value < size:
            message = f"`at: {node.written}` is within the first batch: `at` counts samples, and a batch has {size:,}"
            yield Finding(node, message, f"for batch {node.value:,}, write `at: {node.value * size}`")
        elif size and isinstance(node, Scalar) and isinstance(node.value, int):
            yield from _find_batch(composition, node, size)


def _find_batch(composition: Composition, node: Scalar, size: int) -> Findings:
    """A step at the very start of an epoch of batches, and within a batch, whose `at` is that of a batch."""
    epoch, at = composition.spec.epoch, node.value
    batches = epoch.batches if epoch is not None and not epoch.remainder else None
    if batches and at <= batches and at % size and at < size * batches * EARLIEST:
        message = f"`at: {node.written}` counts samples: this is batch {at // size:,} of {batches:,}"
        yield Finding(node, message, f"for batch {at:,}, write `at: {at * size}`")


@rule(
    "W492",
    "a step of a schedule after very many epochs",
    "`at` counts samples. Where epochs and batches count tokens, a number of tokens without its unit is hundreds of "
    "times as many tokens, so that the shares never change: there is a warning from 100 epochs on. In the unit of the "
    "epoch, there is one from 10,000 epochs on. Epochs of tokens are compared if the mean lengths are known (`stats`). "
    "Loading a spec gives this warning, too.",
    keys="schedule",
    bad="epoch: {tokens: 1e6}\nbatch: {pack: {fields: ids, length: 512}}\n"
    "mix: {shares_in: tokens, schedule: [{at: 0, shares: {a: 1, b: 1}}, {at: 2_000_000, shares: {b: 1, a: 9}}]}\n"
    "dataset:\n  - {name: a, shards: a.tar, mean_cost: 500}\n  - {name: b, shards: b.tar, mean_cost: 500}\n",
    good="epoch: {tokens: 1e6}\nbatch: {pack: {fields: ids, length: 512}}\n"
    "mix: {shares_in: tokens, schedule: [{at: 0, shares: {a: 1, b: 1}}, {at: {tokens: 2e6}, shares: {b: 1, a: 9}}]}\n"
    "dataset:\n  - {name: a, shards: a.tar, mean_cost: 500}\n  - {name: b, shards: b.tar, mean_cost: 500}\n",
    warns_at_load=True,
)
def late_steps(composition: Composition) -> Findings:
    """The first step of a schedule that a run hardly reaches."""
    spec, epoch = composition.spec, composition.spec.epoch
    if epoch is None or spec.is_pass or composition.bad & {"mix", "epoch", "batch"}:
        return
    costs = [
        source.mean_cost or (source.tokens and source.tokens.length) or 0 for _, source in composition.mixed
    ]
    mean = sum(costs) / len(costs) if costs and all(costs) else 0  # of any order of magnitude
    of_tokens = epoch.tokens / mean if epoch.tokens and mean else 0
    samples = epoch_samples(composition) or of_tokens
    lengths = {"samples": samples, "batches": epoch.batches, "tokens": epoch.tokens or samples * mean}
    for number, step in enumerate(spec.mix.schedule or ()):
        unit, at, length = step.at.unit, step.at.number, lengths[step.at.unit]
        is_slip = unit == "samples" and spec.counts_tokens
        most = MOST_EPOCHS_OF_SAMPLES if is_slip else MOST_EPOCHS
        if length and at > length * most:
            what = f"this step is at {at:,.15g} {unit}, which is after more than {most:,} epochs"
            hint = f"for tokens, write `at: {{tokens: {at:.15g}}}`" if is_slip else "correct `at` or `epoch`"
            yield Finding(locate(composition.top, ("mix", "schedule", number, "at")), what, hint)
            return


@rule(
    "W111",
    "very many shards that are read in turn",
    "`interleave` is the number of shards that each worker has open at once for this source: each needs a connection "
    "or a file, and memory for its buffers. There is no warning up to 256.",
    keys="interleave",
    bad="dataset:\n  - {shards: 's3://b/a-{0000..1999}.tar', interleave: 1024}\n",
    good="dataset:\n  - {shards: 's3://b/a-{0000..1999}.tar', interleave: 16}\n",
)
def many_lanes(composition: Composition) -> Findings:
    """Values of `interleave` that were probably meant for `shuffle`."""
    for key, node in _numbers(composition, "interleave"):
        if node.value > MOST_LANES:
            message = f"`interleave: {node.written}` keeps {node.value:,} shards open in each worker"
            yield Finding(key, message, "write `interleave: 16`; to shuffle samples more, use `shuffle`")


_OBJECT_STORES = ("profile", "region", "endpoint", "anonymous", "requester_pays")


@rule("W102", keys="storage")
def unused_storage(composition: Composition) -> Findings:
    """Keys of object stores in `storage` where all shards have `http://` or `https://` URLs."""
    storage = composition.top.map_at("storage")
    trees = [
        composition.top.without("storage"),
        *(leaf.node for leaf in (*composition.leaves, *composition.companions)),
    ]
    texts = (str(each.value).removeprefix("@") for tree in trees for each in scalars(tree))
    named = {scheme_of(text) for text in texts if "://" in text}
    shards = {scheme_of(text) for _, source in composition.models for text in source.shards or ()}
    if storage is not None and (named | shards) <= {"http", "https"}:  # lists on disks may have any URLs
        for key in _OBJECT_STORES:
            if storage.get(key) is not None:
                message = f"`storage.{key}` has no effect: all shards are read through http:// or https://"
                yield Finding(storage.key(key), message, "name them by `s3://…`, or remove the key")


@rule(
    "W405",
    "a cache smaller than what it is for",
    "If the cache is full, a new copy removes the one that was not read for the longest time, which the next pass "
    "needs first: with less space than the shards need, nearly all of them are fetched again. A source that "
    "is too large can have `cache: false`. There is no warning for more than 8 ranks, since each machine then reads a "
    "part of the shards, or if the spec does not say how large the sources are (`bytes`, `stats`).",
    keys="cache",
    bad="cache: {dir: /data/cache, size: 500GB}\ndataset:\n  - {shards: 's3://b/a-{000..999}.tar', bytes: 1.2TB}\n",
    good="cache: {dir: /data/cache, size: 1.3TB}\ndataset:\n  - {shards: 's3://b/a-{000..999}.tar', bytes: 1.2TB}\n",
)
def small_caches(composition: Composition) -> Findings:
    """Caches with a limit below the bytes of the remote sources that use them."""
    spec = composition.spec
    if composition.bad & {"cache", "elastic"} or (
        spec.elastic is not None and spec.elastic.ranks > MOST_RANKS
    ):
        return
    used: dict[str, tuple[int, int, list[str], Node]] = {}
    for leaf, source in composition.models:
        cache = source.cache if "cache" in source.model_fields_set else spec.cache
        node = leaf.node.get("cache") or composition.top.get("cache")
        is_remote = any(scheme_of(text) for text in source.shards or ())
        if cache is not None and cache.size and source.bytes and node is not None and is_remote:
            before, size, names, at = used.get(cache.dir, (0, cache.size, [], node))
            used[cache.dir] = before + source.bytes, size, [*names, leaf.name], at
    for needed, size, names, at in used.values():
        if size < needed:
            message = f"the cache of {show_size(size)} is smaller than the {show_size(needed)} of "
            message += f"{list_names(names, 4)}, so later passes fetch shards again"
            hint = f"write `size: {_round_up(needed)}`, or `cache: false` for a source that is too large"
            yield Finding(at.value_or_self("size"), message, hint)


def _round_up(count: float) -> str:
    """A size with some space left, in two digits: `1.3TB` for 1.2 TB."""
    return show_size(float(f"{count * 1.08:.1e}")).replace(" ", "")


@rule(
    "W406",
    "a limit within a batch",
    "`limit` counts samples, not batches. All batches must be full, so a run with such a limit is an error. With "
    "`epoch: pass`, the last batch is padded.",
    keys="limit",
    bad="limit: 10\nbatch: 32\ndataset:\n  - shards: a.tar\n",
    good="limit: 320\nbatch: 32\ndataset:\n  - shards: a.tar\n",
)
def short_limits(composition: Composition) -> Findings:
    """Values of `limit` that are no multiple of the batch."""
    spec, size = composition.spec, least_global_batch(composition)
    limit = None if composition.bad & {"limit", "batch", "epoch"} or spec.is_pass else spec.limit
    if limit and size and limit % size:
        message = f"`limit: {limit}` counts samples, and ends within a batch of {size:,}"
        hint = f"for {limit:,} batches, write `limit: {limit * size}`; else a multiple, such as "
        hint += f"`limit: {-(-limit // size) * size}`"
        yield Finding(composition.top.entries["limit"].value, message, hint)


@rule(
    "W408",
    "a scale next to random crops",
    "The key `scale` changes the size of an image, whose random crop then is a random part of it as before. In "
    "torchvision, `scale` is the part of the area that a random crop has: that is the option `scale` of "
    "`random_resized_crop`. There is no warning for a `scale` above 1, or if the crop has its own.",
    keys="scale",
    bad="dataset:\n  - {shards: a.tar, decode: rgb8+random_resized_crop=224, scale: [0.35, 1.0]}\n",
    good="dataset:\n  - {shards: a.tar, decode: rgb8+random_resized_crop=224+scale=0.35..1}\n",
)
def scales_of_crops(composition: Composition) -> Findings:
    """A `scale` of at most 1 in a source whose images are cropped at random."""
    for leaf, source in composition.models:
        if source.scale is None or source.scale[1] > 1 or leaf.bad & {"scale", "decode"}:
            continue
        low, high = source.scale
        for _, name in decoder_names(leaf):
            options = split_decoder(name)[1]
            if "random_resized_crop" in options and "scale" not in options:
                key = leaf.node.key_or_self("scale")
                message = f"`scale: [{low:g}, {high:g}]` changes the size of images before `random_resized_crop` takes "
                message += "a random part of them"
                crop = re.sub(r"(random_resized_crop=[^+]+)", rf"\1+scale={low:g}..{high:g}", name)
                yield Finding(
                    key, message, f"for the area of the crop, write `decode: {crop}` in place of `scale`"
                )
                break
