"""Rules that compare sources: repeated shards, and names that depend on variables or look the same."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import combinations_with_replacement, islice
from operator import gt
from typing import Any, Generic, NamedTuple, TypeVar

from wdspec.spec.build import Composition
from wdspec.spec.language.decoder_options import option_values
from wdspec.spec.language.decoders import drawing_options
from wdspec.spec.language.making import Crop, MaskTokens, Recipe, Segment
from wdspec.spec.language.selection import describe_fraction
from wdspec.spec.problems import list_names, quote
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.rules.safety import decoder_names
from wdspec.spec.rules.shards import parts_of
from wdspec.spec.sources import Draft, every_draft
from wdspec.spec.spec import Source, selecting_keys
from wdspec.spec.tree import ListNode, MapNode, Node, Scalar
from wdspec.urls.urls import Part, kind_of, scheme_of

MOST_EXPANDED = 200
"""Patterns with one range are compared as ranges. Other patterns are expanded up to this many strings, or compared as
texts."""

_ONE_RANGE = re.compile(r"([^{}\\]*)\{(\d{1,18})\.\.(\d{1,18})\}([^{}\\]*)")
_DIGITS = re.compile(r"\d{1,18}")
Owner = TypeVar("Owner", bound=Hashable)


class _Range(NamedTuple, Generic[Owner]):
    low: int
    high: int
    width: int
    """The least number of digits."""
    owner: Owner

    def shared_with(self, low: int, high: int, width: int) -> int | None:
        """The first number that is in both ranges, with the same digits; None if there is none."""
        first = max(self.low, low)
        if width != self.width:
            first = max(first, 10 ** (max(width, self.width) - 1))
        return first if first <= min(self.high, high) else None


MOST_RANGES_COMPARED = 1_000_000
"""Ranges of numbers that are compared with each other and with texts; equal ones are always found."""


class ShardSets(Generic[Owner]):
    """Remembers shards and their owners. Long ranges are never expanded."""

    def __init__(self) -> None:
        self._left = MOST_RANGES_COMPARED
        self._texts: dict[str, Owner] = {}
        self._equal: dict[tuple[object, ...], Owner] = {}
        self._ranges: dict[tuple[str, str], list[_Range[Owner]]] = {}

    def add(self, part: Part, owner: Owner) -> tuple[str, Owner] | None:
        """Add shards; returns one that another owner already has, and that owner; None if there is none."""
        match = _ONE_RANGE.fullmatch(part.text)
        if match is not None and not part.listed:
            before, low, high, after = match.groups()
            padded = any(end.startswith("0") and len(end) > 1 for end in (low, high))
            width = max(len(low), len(high)) if padded else 1
            key = (_absolute(before, part.base), after)
            return self._add_range(key, _Range(int(low), int(high), width, owner))
        found = None
        for text in _few(part):
            key_text = _absolute(text, part.base)
            other = self._in_a_range(key_text)
            other = self._texts.setdefault(key_text, owner) if other is None else other
            if other != owner and found is None:
                found = (text, other)
        return found

    def _add_range(self, key: tuple[str, str], added: _Range[Owner]) -> tuple[str, Owner] | None:
        before, after = key
        known = self._ranges.setdefault(key, [])
        low, high, width, owner = added
        first_owner = self._equal.get((key, low, high, width))
        if first_owner is not None:
            return None if first_owner == owner else (f"{before}{low:0{width}d}{after}", first_owner)
        self._equal[key, low, high, width] = owner
        self._left -= len(known) + len(self._texts)
        if self._left < 0:
            return None
        for other in known:
            number = other.shared_with(low, high, width)
            if number is not None and other.owner != owner:
                return f"{before}{number:0{width}d}{after}", other.owner
        known.append(added)
        for text, other_owner in self._texts.items():
            if other_owner != owner and self._in_a_range(text, (added, key)) is not None:
                return text, other_owner
        return None

    def _in_a_range(
        self, text: str, only: tuple[_Range[Owner], tuple[str, str]] | None = None
    ) -> Owner | None:
        """The owner of the range that a text is in."""
        for digits in _DIGITS.finditer(text) if self._ranges else ():
            key = (text[: digits.start()], text[digits.end() :])
            ranges = self._ranges.get(key, ()) if only is None else [only[0]] if only[1] == key else ()
            number = int(digits[0])
            for each in ranges:
                if each.low <= number <= each.high and f"{number:0{each.width}d}" == digits[0]:
                    return each.owner
        return None


_ALTERNATIVES = 16
"""Strings of a pattern that are compared with globs; the others are like these."""
MOST_COMPARED = 100_000
"""Pairs of texts that are compared; a file has at most some hundred texts."""
_Written = tuple[str, Scalar, Part]
"""The owner of shards, the text that names them, and one of its parts."""


def _find_shared_globs(shards: Iterable[_Written]) -> Iterator[tuple[Scalar, str]]:
    """Find the texts with a glob or a directory that has shards of another owner, or is one that has these."""
    known: list[tuple[str, str, str, bool]] = []
    left = MOST_COMPARED
    for owner, at, part in shards:
        for text in islice(part.braces, 1 if _ONE_RANGE.fullmatch(part.text) else _ALTERNATIVES):
            path = _absolute(text, part.base) + "/" * text.endswith("/")
            is_glob = part.listed and kind_of(text) in ("glob", "directory")
            for other, other_path, other_text, is_other_glob in known if left > 0 else ():
                left -= 1
                if owner == other or path == other_path:
                    continue
                if (is_glob and _contains(path, other_path)) or (
                    is_other_glob and _contains(other_path, path)
                ):
                    yield at, f"{quote(text)} and {quote(other_text)} of `{other}` have shards in common"
                    break
            known.append((owner, path, text, is_glob))


def _contains(glob: str, text: str) -> bool:
    """Whether a glob or a directory has all shards of a text, which may be a glob itself."""
    if glob.endswith("/"):
        return text.rpartition("/")[0] + "/" == glob
    segments, others = glob.split("/"), text.split("/")
    return len(segments) == len(others) and all(map(fnmatchcase, others, segments))


def _few(part: Part) -> Iterator[str]:
    """The strings of a part, or its text if there are too many, or if it is a glob or a file."""
    if part.listed or len(part.braces) > MOST_EXPANDED:
        yield part.text
    else:
        yield from part.braces


def _absolute(text: str, base: str) -> str:
    """The text that is the same for the same shard."""
    listed = text.startswith("@")
    path = text.removeprefix("@")
    return (
        text if scheme_of(path) or path == "-" else "@" * listed + os.path.normpath(os.path.join(base, path))
    )


@rule(
    "W301",
    "shards of two sources",
    "If shards are in two sources, they are read more often than the shares specify, and each source shuffles them "
    "separately. Use one source with the sum of the shares instead.",
    keys="shards",
    bad="dataset:\n  - {name: a, shards: 'x-{000..009}.tar'}\n  - {name: b, shards: 'x-{005..020}.tar'}\n",
    good="dataset:\n  - {name: a, shards: 'x-{000..009}.tar'}\n  - {name: b, shards: 'x-{010..020}.tar'}\n",
)
def shards_of_two_sources(composition: Composition) -> Findings:
    """The first shard of each text that is also in an earlier source. Companions are read by themselves."""
    written = [
        # The same URL may be in several stores.
        (repr(leaf.model and leaf.model.storage), leaf.name, leaf, text, parts)
        for leaf, text, parts in parts_of(composition)
        if leaf not in composition.companions
    ]
    yield from _find_shared(written, "source", "put each shard into one source")


@rule(
    "W302",
    "shards of two splits",
    "Data for validation must not be used for training. If splits have a shard in common, validation measures what "
    "the model has memorized.",
    needs="splits",
    bad="splits:\n  train: {dataset: [{shards: 'a-{000..090}.tar'}]}\n"
    "  val: {dataset: [{shards: 'a-{090..099}.tar'}], epoch: pass}\n",
    good="splits:\n  train: {dataset: [{shards: 'a-{000..089}.tar'}]}\n"
    "  val: {dataset: [{shards: 'a-{090..099}.tar'}], epoch: pass}\n",
)
def shards_of_two_splits(splits: Sequence[Composition]) -> Findings:
    """The first shard of each text that is also in an earlier split. Splits may have the same companions."""
    mixed: list[_OfOwner] = []
    beside: list[_OfOwner] = []
    for composition in splits:
        for leaf, text, parts in parts_of(composition):
            into = beside if leaf in composition.companions else mixed
            into.append(("", composition.variant.split or "", leaf, text, parts))
    hint = "use different shards in each split"
    yield from _find_shared(mixed, "split", hint)
    for name in dict.fromkeys(owner for _, owner, *_ in beside):
        own = [each for each in beside if each[1] == name]
        others = [each for each in mixed if each[1] != name]
        texts = {id(text) for *_, text, _ in own}
        yield from (each for each in _find_shared([*others, *own], "split", hint) if id(each.at) in texts)


EVALUATING = re.compile(
    r"(?:val|valid|validation|eval|evaluation|test|testing|dev|holdout)(?![a-z])", re.IGNORECASE
)


@rule(
    "W403",
    "random images in an evaluation",
    "A split that evaluates has random crops, flips or colors, often those of the training, so that its results depend "
    "on them. Resize the images, and crop the center. The same holds for steps of `make` that draw, but `mask_tokens`. "
    "There is no warning if its samples are read several times (`repeat`), or if its name does not begin with val, "
    "eval, test, dev or holdout.",
    needs="splits",
    bad="defaults: {decode: rgb8+random_resized_crop=224}\nsplits:\n  train: {dataset: [{shards: a.tar}]}\n"
    "  val: {dataset: [{shards: b.tar}], epoch: pass}\n",
    good="defaults: {decode: rgb8+random_resized_crop=224}\nsplits:\n  train: {dataset: [{shards: a.tar}]}\n"
    "  val:\n    epoch: pass\n    defaults: {decode: rgb8+resize=256+center_crop=224}\n"
    "    dataset: [{shards: b.tar}]\n",
)
def random_evaluations(splits: Sequence[Composition]) -> Findings:
    """Decoders and steps of splits for evaluation that draw random numbers."""
    training = [each for each in splits if not EVALUATING.match(each.variant.split or "")]
    leaves = [leaf for each in training for leaf in each.leaves]
    written = [at for leaf in leaves for at, _ in decoder_names(leaf)]
    written += [at for leaf in leaves for at, *_ in _drawing_steps(leaf)]
    trained = {at.position for at in written}
    for each in splits:
        split = each.variant.split or ""
        for leaf in each.leaves if EVALUATING.match(split) else ():
            is_repeated = leaf.model is not None and (leaf.model.repeat or 1) > 1
            for at, name in decoder_names(leaf):
                drawing = _drawing_options(name)
                if not drawing or is_repeated:
                    continue
                message = f"the split `{split}` decodes with {list_names(drawing)}"
                form = _without_chance(name)
                if at.position not in trained:
                    message = f"{message}, whose random numbers its results depend on"
                    hint = f"write `{form}`, or `repeat` to read samples several times"
                else:
                    message = f"{message} as in training"
                    fields = leaf.node.map_at("decode")
                    keys = (
                        [key for key, entry in fields.entries.items() if entry.value is at] if fields else []
                    )
                    form = f"{{{keys[0]}: {form}}}" if keys else form
                    hint = f"write `defaults: {{decode: {form}}}` in the split `{split}`"
                yield Finding(at, message, hint)
            for at, name, step in () if is_repeated else _drawing_steps(leaf):
                if isinstance(step, MaskTokens):  # evaluation needs it, too
                    continue
                message = f"the split `{split}` makes `{name}` by `{step.step}`"
                if at.position in trained:
                    message = f"{message} as in training"
                    hint = f"in `defaults` of the split `{split}`, {_advise_to_fix(name, step)}"
                else:
                    message = f"{message}, whose random numbers its results depend on"
                    hint = f"{_advise_to_fix(name, step)}, or `repeat` to read samples several times"
                yield Finding(at, message, hint)


def _drawing_steps(leaf: Draft) -> Iterator[tuple[Node, str, Recipe]]:
    """The steps of `make` that draw random numbers: where, and the field. Crops that are always of the center, and
    clips, are none.
    """
    node = leaf.node.map_at("make")
    if node is None or leaf.model is None:
        return
    for name, step in leaf.model.make.items():
        is_central = isinstance(step, Crop) and step.scale[0] == 1 and not step.hflip
        is_clip = isinstance(step, Segment) and not _drawing_options(step.decode)
        if step.draws and not is_central and not is_clip:
            yield node.value_or_self(name), name, step


def _advise_to_fix(name: str, step: Recipe) -> str:
    """What to write in place of random numbers of a step."""
    if not isinstance(step, Crop):
        return f"write `make: {{{name}: null}}`, which removes the step"
    height, width = step.size if isinstance(step.size, tuple) else (step.size, step.size)
    keys = "scale: [1, 1], ratio: [{0:.4g}, {0:.4g}], hflip: 0".format(width / height)
    return f"write `make: {{{name}: {{{keys}}}}}`, with its other keys, for the crop of the center"


@rule(
    "W470",
    "an evaluation that is no pass",
    "A split that evaluates has no `epoch`, or that of the training, so it is endless and shuffled, and its results "
    "are about other samples each time. Or it has `pass: drop`, which leaves out the samples that fill no batch. "
    "`epoch: pass` reads each sample once; where that leaves a batch with copies, their `__mask__` is false. There is "
    "no warning if the split has an `epoch` of its own, such as `{batches: 50}`, or if its name does not begin with "
    "val, eval, test, dev or holdout.",
    needs="splits",
    bad="batch: 8\nsplits:\n  train: {dataset: [{shards: a.tar}]}\n  val: {dataset: [{shards: b.tar}]}\n",
    good="batch: 8\nsplits:\n  train: {dataset: [{shards: a.tar}]}\n"
    "  val: {dataset: [{shards: b.tar}], epoch: pass}\n",
)
def endless_evaluations(splits: Sequence[Composition]) -> Findings:
    """Splits for evaluation that do not read each sample once."""
    nodes = {each.variant.split or "": each.top.get("epoch") for each in splits}
    trained = {node.position for split, node in nodes.items() if node and not EVALUATING.match(split)}
    for each in splits:
        split, epoch = each.variant.split or "", each.spec.epoch
        node = nodes[split]
        if not EVALUATING.match(split) or "epoch" in each.bad or not each.leaves:
            continue
        if epoch is not None and epoch.remainder == "drop":
            what = f"`pass: drop` leaves out the samples of the split `{split}` that fill no batch"
        elif node is None or (node.position in trained and not each.spec.is_pass):
            why = "as it has no `epoch`" if node is None else "with the `epoch` of training"
            what = f"the split `{split}` is endless and shuffled, {why}"
        else:
            continue
        hint = f"write `epoch: pass` in the split `{split}`, which reads each sample once"
        yield Finding(node or each.leaves[0].node, what, hint)


@rule(
    "W412",
    "random numbers in a pass that is always the same",
    "`epoch: pass` has the same order, and the same random crops, flips and colors, in each epoch. That is right for "
    "evaluation and wrong for training. For training, write `epoch: {pass: drop, reshuffle: true}`, which has new ones "
    "in each epoch. For evaluation, remove what is random. There is no warning about decoders and steps of splits "
    "whose name begins with val, eval, test, dev or holdout (see W403), and of sources that are read several times "
    "(`repeat`).",
    keys="pass",
    bad="epoch: pass\ndefaults: {decode: rgb8+random_resized_crop=224}\ndataset:\n  - {shards: a.tar}\n",
    good="epoch: {pass: drop, reshuffle: true}\ndefaults: {decode: rgb8+random_resized_crop=224}\ndataset:\n"
    "  - {shards: a.tar}\n",
)
def random_passes(composition: Composition) -> Findings:
    """What is random in a pass that does not reshuffle."""
    spec, is_evaluated = composition.spec, EVALUATING.match(composition.variant.split or "")
    for leaf, source in composition.mixed if spec.is_pass and not spec.reshuffles else ():
        found = [
            (leaf.node.key_or_self(key), f"{key}: {getattr(source, key)}")
            for key in ("order", "shuffle")
            if getattr(source, key) not in ("sequential", "resampled", 0, 1)
        ]
        found += [] if source.scale is None else [(leaf.node.key_or_self("scale"), "scale")]
        for at, name in () if is_evaluated or (source.repeat or 1) > 1 else decoder_names(leaf):
            found += [(at, each) for each in _drawing_options(name)]
        for at, name, step in () if is_evaluated or (source.repeat or 1) > 1 else _drawing_steps(leaf):
            found += [(at, f"{name}: {{{step.step}: …}}")]
        if found:
            names = list_names([name for _, name in found], 4)
            message = f"this pass is the same in each epoch, although it has {names}"
            is_short = not isinstance(composition.top.get("epoch"), MapNode)  # `epoch: pass` also pads
            remainder = "drop" if is_short or spec.epoch is None else spec.epoch.remainder
            hint = f"write `epoch: {{pass: {remainder}, reshuffle: true}}` for training; remove it for evaluation"
            yield Finding(found[0][0], message, hint)


def _drawing_options(name: str) -> list[str]:
    """The options of a decoder that draw random numbers, without a clip, which evaluation needs too."""
    return [each for each in drawing_options(name) if each != "clip"]


SPARE = 8 / 7
"""How much larger an image is than the crop of its center: 256 for 224."""


def _without_chance(name: str) -> str:
    """A decoder that draws no random numbers: with a crop of the center."""
    base, *options = name.split("+")
    found = [base]
    for option in options:
        key, _, value = option.partition("=")
        if key == "random_resized_crop":
            sides = [int(side) for side in re.findall(r"\d+", value)] or [224]
            found += [f"resize={round(max(sides) * SPARE)}", f"center_crop={value}"]
        elif key not in (*_drawing_options(name), "scale", "ratio"):
            found.append(option)
    return "+".join(found)


@rule(
    "W447",
    "a crop that is larger than the image",
    "`center_crop` fills what is beyond the image with black. If `resize` makes all images smaller than the crop, "
    "every image gets a black border. The two numbers are probably swapped. Training and evaluation need images of "
    "one size.",
    keys="decode",
    bad="defaults: {decode: rgb8+resize=224+center_crop=256}\ndataset:\n  - {shards: a.tar}\n",
    good="defaults: {decode: rgb8+resize=256+center_crop=224}\ndataset:\n  - {shards: a.tar}\n",
)
def bordered_crops(composition: Composition) -> Findings:
    """Decoders whose `resize` makes every image smaller than their `center_crop`."""
    for leaf in (*composition.leaves, *composition.companions):
        for at, name in decoder_names(leaf):
            options = option_values(name) if "+center_crop=" in name else {}
            if "resize" in options and (hint := _hint_for_border(options["resize"], options["center_crop"])):
                yield Finding(
                    at, "`center_crop` is larger than what `resize` makes: images get a black border", hint
                )


def _hint_for_border(resize: int | tuple[int, int], crop: int | tuple[int, int]) -> str:
    """Return what to write in place of a crop that is larger than any resized image; empty if it is not."""
    height, width = crop if isinstance(crop, tuple) else (crop, crop)
    # A number in `resize` is what the shorter side of every image becomes.
    of_resized = resize if isinstance(resize, tuple) else (resize,)
    of_crop = (height, width) if isinstance(resize, tuple) else (min(height, width),)
    is_larger = any(map(gt, of_crop, of_resized))
    hint = f"make `resize` at least `{height}x{width}`, or crop less"
    if isinstance(resize, int) and isinstance(crop, int):
        larger = f"`resize={round(crop * SPARE)}+center_crop={crop}` for images of {crop} pixels"
        hint = f"write {larger}, or `resize={crop}+center_crop={resize}` for {resize}"
    return hint * is_larger


_OfOwner = tuple[str, str, Draft, Scalar, Sequence[Part]]
"""A text that names shards: its store, its owner, its source, the text, and its parts."""


def _find_shared(written: Sequence[_OfOwner], kind: str, hint: str) -> Findings:
    """Find shards of two owners, unless these select different samples of them.

    Args:
        written: the texts that name shards.
        kind: what the owners are.
        hint: how to fix it.
    """
    shared: dict[int, Finding] = {}  # one for each text
    chosen = [
        "" if leaf.node.entries.keys().isdisjoint(selecting_keys()) else repr(_read_selection(leaf))
        for *_, leaf, _, _ in written
    ]
    leaves = dict(zip(chosen, (leaf for *_, leaf, _, _ in written), strict=True))
    for pair in combinations_with_replacement(leaves, 2):
        if pair[0] != pair[1] and _are_disjoint(leaves[pair[0]], leaves[pair[1]]):
            continue
        stores: defaultdict[str, ShardSets[str]] = defaultdict(ShardSets)
        shards: defaultdict[str, list[_Written]] = defaultdict(list)
        for selection, (store, owner, _, text, parts) in zip(chosen, written, strict=True):
            if selection not in pair:
                continue
            shards[store] += [(owner, text, part) for part in parts]
            for part in parts:
                found = stores[store].add(part, owner)
                if found is not None and found[1] != owner:
                    message = f"{quote(found[0])} is also a shard of the {kind} `{found[1]}`"
                    advice = _separate_parts(leaves[pair[0]], leaves[pair[1]]) or hint
                    shared.setdefault(id(text), Finding(text, message, advice))
                    break
        for of_store in shards.values():
            if any(part.listed for *_, part in of_store):
                for text, message in _find_shared_globs(of_store):
                    shared.setdefault(id(text), Finding(text, message, hint))
    yield from shared.values()


def _read_selection(leaf: Draft) -> tuple[Any, ...]:
    """What decides which samples of its shards a source keeps; empty if that is not known."""
    if leaf.model is None or leaf.bad.intersection(selecting_keys()):
        return ()
    return _selection_of(leaf.model)


def _selection_of(source: Source) -> tuple[Any, ...]:
    return tuple(getattr(source, attribute) for attribute in selecting_keys().values())


def _separate_parts(one: Draft, other: Draft) -> str:
    """How to choose parts of the same shards that have no sample in common; empty without two parts."""
    parts = [None if leaf.model is None else leaf.model.subset for leaf in (one, other)]
    if parts[0] is None or parts[1] is None:
        return ""
    if (parts[0].of, parts[0].seed) != (parts[1].of, parts[1].seed):
        return "parts with another `seed` or `of` overlap: give both the same, and ranges that do not overlap"
    small, large = sorted((parts[0].part, parts[1].part), key=lambda part: part[1] - part[0])
    if small[0] == large[0] and small[1] < large[1]:
        less, more = map(describe_fraction, (small[1], large[1]))
        end = large[1] + small[1] - small[0]
        if end > 1:  # both do not fit next to each other
            return f"all of {less} is in {more}: write `subset: [{less}, {more}]` in place of {more}"
        return f"all of {less} is in {more}: write `subset: [{more}, {describe_fraction(end)}]` in place of {less}"
    return "choose ranges of `subset` that do not overlap"


def _are_disjoint(one: Draft, other: Draft) -> bool:
    """As `are_disjoint`, of sources that may have errors."""
    if one.model is None or other.model is None or not (_read_selection(one) and _read_selection(other)):
        return False
    return are_disjoint(one.model, other.model)


def are_disjoint(one: Source, other: Source) -> bool:
    """Whether two sources surely, or by two different `where`, keep different samples of the same shards."""
    if (ours := _selection_of(one)) == (theirs := _selection_of(other)):
        return False
    (where, subset, keys, exclude), (their_where, their_subset, their_keys, their_exclude) = ours, theirs
    if where and their_where and where != their_where:
        return True
    if (keys and keys == their_exclude) or (exclude and exclude == their_keys):
        return True
    if (
        subset is None
        or their_subset is None
        or (subset.of, subset.seed) != (their_subset.of, their_subset.seed)
    ):
        return False
    bounds = sorted((subset.part, their_subset.part))
    return bool(bounds[0][1] <= bounds[1][0])


_LISTS = re.compile(
    r"[^@].*\.(txt|csv|tsv|json|jsonl|ndjson|npy|lst|list)(\.(gz|bz2|xz|zst))?", re.IGNORECASE
)


@rule(
    "W394",
    "an entry of keys or exclude that is no key",
    "`keys` and `exclude` list keys of samples, and `@file.txt` reads them from a file; without the `@`, the name of "
    "the file itself is the key, which no sample has. `check`, `explain` and `stats` also find other entries that "
    "occur in no sample, if they know all samples.",
    keys="keys exclude",
    bad="dataset:\n  - {shards: a.tar, exclude: bad.txt}\n",
    good="dataset:\n  - {shards: a.tar, exclude: '@bad.txt'}\n",
)
def files_as_keys(composition: Composition) -> Findings:
    """Entries that end like a file of keys."""
    for leaf in composition.leaves:
        for key in ("keys", "exclude"):
            value = leaf.node.get(key) if leaf.node.get("keys_of") is None else None
            for text in value.items if isinstance(value, ListNode) else (value,):
                if isinstance(text, Scalar) and isinstance(text.value, str) and _LISTS.fullmatch(text.value):
                    name = text.value
                    message = f"`{name}` in `{key}` is the key of a sample, and not the name of a file"
                    yield Finding(text, message, name_file(name))
                    break


def name_file(entry: str) -> str:
    """What to do about an entry of `keys` or `exclude` that is meant as a file."""
    return f"write `'@{entry}'` for the keys in the file"


@rule(
    "W303",
    "one shard twice",
    "A shard that is listed twice in a source is read twice in each pass. To read it more often, move it to a "
    "separate source with a larger share.",
    keys="shards",
    bad="dataset:\n  - shards: ['a-{000..009}.tar', a-003.tar]\n",
    good="dataset:\n  - shards: ['a-{000..009}.tar', a-010.tar]\n",
)
def repeated_shards(composition: Composition) -> Findings:
    """The first shard of each text that is already in the source."""
    sets: ShardSets[tuple[str, int]] = ShardSets()
    number = 0
    for leaf, text, parts in parts_of(composition):
        for part in parts:
            number += 1
            found = sets.add(part, (leaf.name, number))
            if found is not None and found[1][0] == leaf.name:
                yield Finding(text, f"{quote(found[0])} is twice in this source", "name it once")
                break


@rule(
    "W343",
    "a source named by a variable",
    "The order of a source depends on its name, and a default name is made from the shards. If it comes from a "
    "variable, another environment has another order, and cannot resume the same states.",
    keys="shards",
    bad="vars: {set: train}\ndataset:\n  - shards: 'data/${set}-{000..009}.tar'\n",
    good="vars: {set: train}\ndataset:\n  - name: train\n    shards: 'data/${set}-{000..009}.tar'\n",
)
def names_of_variables(composition: Composition) -> Findings:
    """Sources without `name` whose default name comes from a variable."""
    for leaf in composition.leaves:
        shards = leaf.node.get("shards")
        text = shards.items[0] if isinstance(shards, ListNode) and shards.items else shards
        if (
            leaf.node.get("name") is not None
            or not isinstance(text, Scalar)
            or not isinstance(text.value, str)
        ):
            continue
        begin = text.value.find(leaf.name)
        if begin >= 0 and _has_variable(text, begin, begin + len(leaf.name)):
            message = (
                f"the name `{leaf.name}` comes from a variable, and the order of the source from its name"
            )
            yield Finding(text, message, "give the source a `name`")


def _has_variable(text: Scalar, begin: int, end: int) -> bool:
    """Whether a part of a value comes from a variable, and not from the file."""
    if len(text.spans) == 1:
        return False
    bounds = [start for start, _ in text.spans] + [len(str(text.value))]
    kept = zip(text.spans, bounds[1:], strict=True)
    written = sum(max(0, min(end, stop) - max(begin, start)) for (start, _), stop in kept if stop > start)
    return written < end - begin or any(begin < start <= end for start, _ in text.spans[1:])


@rule(
    "W345",
    "names that differ only in case",
    "Tables, logs and `--set` refer to sources by name; `Cats` and `cats` are easy to confuse.",
    bad="dataset:\n  - {name: Cats, shards: a.tar}\n  - {name: cats, shards: b.tar}\n",
    good="dataset:\n  - {name: cats-a, shards: a.tar}\n  - {name: cats-b, shards: b.tar}\n",
)
def names_alike(composition: Composition) -> Findings:
    """Names that differ only in case, hyphens and underscores."""
    seen: dict[str, str] = {}
    for draft in every_draft(composition.drafts):
        plain = draft.name.casefold().replace("_", "-")
        other = seen.setdefault(plain, draft.name)
        if other != draft.name:
            message = f"`{draft.name}` is nearly the same name as `{other}`"
            at = draft.node.get("name") or draft.node
            yield Finding(at, message, "use names that differ more")
