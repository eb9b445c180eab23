"""Settings that the first samples do not fit: fields that are always None, boxes of another format, and more.

Samples are fetched, decoded and made as in a run, without user functions. What notices that they do not fit is a
`Trial` of each setting (`base/trials.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import islice

from wdspec.base.errors import WdspecError
from wdspec.base.trials import FEWEST, SAMPLES, collect
from wdspec.read.error_budget import ErrorBudget, is_mistake
from wdspec.read.left import OF_OBJECTS
from wdspec.read.shard import Piece
from wdspec.read.transform import SourceParts, UserFunctions
from wdspec.shards.shards import Shards
from wdspec.spec.language.making import Crop, Label, Recipe
from wdspec.spec.language.options import Errors
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import UrlSequence, scheme_of, spread

MOST_SHARDS = 4
"""Shards that the samples are in."""
MOST_READ = 1_000
"""Samples that are read to find those that the selection keeps."""
_MANY = 0.1
"""The part of the samples without a reference, from which on to warn that they are left out."""
Tries = Mapping[str, Sequence[str]]
"""The settings that the first samples do not fit, in words, by name of the source."""


def try_samples(spec: Spec, shards: Shards, *, everywhere: bool = False) -> Tries:
    """Make the first samples of each source with a setting that they may not fit.

    Args:
        spec: the spec.
        shards: its shards.
        everywhere: whether to read from stores, too, and not only local files.
    """
    if spec.functions["decode"]:
        return {}
    found = {}
    alone = {"map": (), "batch": None, "stage": None, "to_tuple": None, "map_batches": None}
    for source in spec.sources:
        roots = [each.root for each in source.fetch.values()]
        is_near = source.name in shards.local and not any(root is None or scheme_of(root) for root in roots)
        urls = shards.lists.get(source.name)
        if not urls or not (is_near or everywhere) or not may_not_fit(source, is_near):
            continue
        keep = None if source.map or spec.map or spec.to_tuple else spec.fields
        plain = source.model_copy(update={"map": (), "select": None, "expect": None, "scale": None})
        whole = spec.model_copy(update={**alone, "fields": keep})
        with suppress(WdspecError):  # W502 reports it, or reading
            found[source.name] = _try(SourceParts.of(whole, plain, shards), urls, spec.seed)
        if (
            found.get(source.name) and keep is not None
        ):  # with all fields, among which there may be the one meant
            whole = whole.model_copy(update={"fields": None})
            with suppress(WdspecError):
                found[source.name] = _try(SourceParts.of(whole, plain, shards), urls, spec.seed)
    return {name: messages for name, messages in found.items() if messages}


def may_not_fit(source: Source, is_near: bool = True) -> bool:
    """Whether a source has something that notices whether samples fit it.

    Args:
        source: the source.
        is_near: whether its objects are local. Otherwise, those that must exist are not requested for this alone.
    """

    def is_tried(recipe: Recipe) -> bool:
        has_boxes = isinstance(recipe, Crop) and recipe.boxes
        takes_any = isinstance(recipe, Label) and recipe.unknown != "error"
        has_items = any(len(path) > 1 for path in recipe.origins)
        may_lack = recipe.optional or recipe.fills or source.missing == "none"
        return bool(has_boxes or takes_any or has_items or may_lack)

    fetched = (is_near or (each.missing or source.missing) != "error" for each in source.fetch.values())
    return any(map(is_tried, source.make.values())) or any(fetched)


def _try(parts: SourceParts, urls: UrlSequence, seed: int) -> list[str]:
    """Make samples of a source, and return what does not fit."""
    budget = ErrorBudget(Errors(), parts.open.source).without_log()
    choose = parts.build_choice(budget)
    process = parts.transform.build(budget, seed, 0, UserFunctions(False), parts.open)
    places = spread(len(urls), min(MOST_SHARDS, len(urls)))
    lacks = Counter[str]()
    with collect() as messages:
        for place in places:
            with closing(parts.open(Piece(urls[place]), on_error=lambda error: None)) as samples:
                kept = (raw for raw in islice(samples, MOST_READ // len(places)) if choose(raw))
                for number, raw in enumerate(islice(kept, -(-2 * SAMPLES // len(places)))):
                    budget.lack = ""
                    try:
                        process(raw, number)
                    except WdspecError as error:  # which reading raises
                        if is_mistake(error):  # of all samples, which show nothing else then
                            raise
                    lacks[budget.lack] += 1
    return messages + list(_judge_left_out(lacks))


def _judge_left_out(lacks: Counter[str]) -> Iterator[str]:
    """Messages about references that many of the samples, but not all, lack, so that `missing: skip` drops them.

    Args:
        lacks: how many samples lack what, in words; "" for those that lack nothing.
    """
    samples = lacks.total()
    for lack, count in lacks.items():
        if lack.startswith(OF_OBJECTS[1]) and samples >= FEWEST and samples * _MANY <= count < samples:
            url = lack.removeprefix(OF_OBJECTS[1]).rpartition(" for `")[0]
            yield (
                f"{count} of the first {samples} samples name no object in {url}, and `missing: skip` leaves them out; "
                "write `missing: none` to keep them"
            )
