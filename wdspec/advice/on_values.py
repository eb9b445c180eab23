"""Advice on values of samples: thresholds, parts, groups, sizes and boxes that the values do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from math import log

from wdspec.advice.facts import Advice, Advices
from wdspec.advice.measure import KeptSamples, WindowFacts
from wdspec.advice.staying_boxes import StayingBoxes
from wdspec.advice.tries import Tries
from wdspec.advice.values import Values, resized_fields
from wdspec.base.amounts import number
from wdspec.spec.language.expressions import find_thresholds
from wdspec.spec.language.selection import describe_fraction
from wdspec.spec.rules.rule import rule
from wdspec.spec.rules.unmoved import ADVICE_ON_FORMATS, find_taken, moves, write_crop
from wdspec.spec.spec import Spec

OfSources = Mapping[str, Values]
LEAST = 20
"""Fewer samples are too few to judge by."""
FEW_VALUES = 10
"""A hash chooses a part of at least this many values."""
MANY_GROUPS = 8
"""So many values of a number are probably not meant as kinds of samples."""
PART_OF_BATCH = 0.75
"""The least part of a batch that is filled on average without a warning."""


@rule("W525", needs="spec values")
def percents(spec: Spec, values: OfSources) -> Advices:
    """Thresholds in percent for values that are fractions, and the other way around."""
    for source in spec.sources:
        for each in find_thresholds(source.where, spec.costs) if source.where else ():
            seen = [value for value in values.get(source.name, {}).get(each.written, ()) if _is_number(value)]
            if len(seen) < LEAST:
                continue
            low, high = min(seen), max(seen)
            is_fraction = low >= 0 and high <= 1 and any(0 < value < 1 for value in seen)
            meant = None
            if is_fraction and 1 < each.number <= 100:
                meant = each.number / 100
            elif 0 < each.number < 1 <= low and low <= each.number * 100 <= high <= 100:
                meant = each.number * 100
            if meant is not None:
                message = (
                    f"`where: {source.where}` of `{source.name}`: `{each.written}` is {low:g} to {high:g} in "
                )
                message += f"{len(seen):,} samples, so `{each.comparison}` is the same for all of them"
                hint = f"write `{each.with_number(f'{meant:g}')}`, if {each.number:g} is on another scale"
                yield Advice(message, hint, source)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@rule("W526", needs="spec values")
def parts_of_few_values(spec: Spec, values: OfSources) -> Advices:
    """Parts of very few values, each of which is kept or left out as a whole."""
    for source in spec.sources:
        subset = source.subset
        seen = values.get(source.name, {}).get(subset.of, ()) if subset is not None and subset.of else ()
        count = len(set(map(repr, seen)))
        if subset is not None and len(seen) >= LEAST and count < FEW_VALUES:
            message = f"`subset` of `{source.name}` chooses whole values of `{subset.of}`, and {len(seen):,} samples "
            message += f"have only {count:,} of them: it can keep any part of the samples"
            first, last = map(describe_fraction, subset.part)
            form = last if first == "0%" else f"[{first}, {last}]"
            yield Advice(message, f"for a part of the samples of each value, write `subset: {form}`", source)


@rule("W528", needs="spec values")
def sides_in_another_order(spec: Spec, values: OfSources) -> Advices:
    """Images that are resized to a width and height, in place of a height and width."""
    for source in spec.sources:
        of_source = values.get(source.name, {})
        for field, decoder, (height, width) in resized_fields(source):
            sizes = list(
                zip(of_source.get(f"{field}.width", ()), of_source.get(f"{field}.height", ()), strict=False)
            )
            wanted = log(width / height)
            shapes = [log(wide / high) for wide, high in sizes if wide and high]
            if shapes and all(abs(shape + wanted) < 0.1 < abs(shape - wanted) - 0.2 for shape in shapes):
                wide, high = sizes[0]
                message = f"`decode: {decoder}` of `{source.name}` makes `{field}` {height} pixels high and {width} "
                message += f"wide, but the images are {high} high and {wide} wide"
                hint = f"`resize` is height x width: write `resize={width}x{height}`"
                yield Advice(message, hint, source)


@rule("W529", needs="spec values windows")
def groups_of_equal_lengths(spec: Spec, values: OfSources, windows: WindowFacts) -> Advices:
    """Groups by a number with so many values that batches are not full."""
    batch = spec.batch
    group_by, size = (None, None) if batch is None else (batch.group_by, batch.size)
    if group_by is None or size is None or windows.sizes[1] >= PART_OF_BATCH * size:
        return
    seen = [value for each in values.values() for value in each.get(group_by, ()) if _is_number(value)]
    if len(seen) >= LEAST and len(set(seen)) >= MANY_GROUPS:
        step = float(f"{max(2.0, (max(seen) - min(seen)) / 4):.0e}")
        message = f"`group_by: {group_by}` puts only samples with the same value into a batch: batches have "
        message += f"{number(windows.sizes[1])} samples on average, not {size}"
        yield Advice(
            message, f"for values that are near each other, write `group_by: ceil({group_by} / {step:g})`"
        )


@rule("W530", needs="spec staying")
def boxes_that_stay(spec: Spec, staying: Mapping[str, StayingBoxes]) -> Advices:
    """Boxes and points next to an image that is flipped or cropped."""
    for source in spec.sources:
        if (taken := find_taken(spec, source)) is not None:
            yield Advice(*taken[1:], source)
        if (found := staying.get(source.name)) is None:
            continue
        is_resized = found.decoder is not None and not moves(found.decoder)
        does = "resizes" if is_resized else "flips or crops"
        message = f"`{found.decoder or 'crop'}` of `{source.name}` {does} `{found.image}`, but `{found.place}` stays "
        message += "as it is" + ", in pixels" * is_resized
        holder = found.place.partition(".")[0]
        new, image = (
            next(filter(lambda name: name not in found.fields, names))
            for names in ((found.kind, f"moved_{found.kind}", "moved"), ("image", "cropped", "cropped_image"))
        )
        place = f'"{found.place}"' if "[" in found.place else found.place
        option = f"{found.kind}: {{{new}: {place}}}"
        if found.moved is not None:
            hint = f"`{found.moved}` of the step has the moved {found.kind}: deliver it by `fields`, without `{holder}`"
            yield Advice(message, hint, source)
            continue
        if found.decoder is None:
            hint, image = f"add `{option}` to the step", found.image
        else:
            step = write_crop(found.image, found.decoder, option)
            hint = f"write `make: {{{image}: {step}}}` in place of these options"
        hint += f", and deliver `{image}` and `{new}` by `fields`, without `{holder}`"
        hint += ADVICE_ON_FORMATS * (found.kind == "boxes")
        yield Advice(message, hint, source)


@rule("W531", needs="spec tries selected")
def settings_that_do_not_fit(spec: Spec, tries: Tries, selected: Mapping[str, KeptSamples]) -> Advices:
    """Settings that the first samples do not fit, such as a field that none of them has."""
    for source in spec.sources:
        has_names = source.name in selected and bool(selected[source.name].names)
        for message in tries.get(source.name, ()):
            if has_names and message.startswith("`label`"):
                continue  # W459 has the same, of more samples
            yield Advice(f"`{source.name}`: {message}", source=source)
