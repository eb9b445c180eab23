"""All that a page shows of one spec: its mixture, and the first samples of each source, as files and in training."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from wdspec.base.errors import WdspecError
from wdspec.base.redaction import redacted_urls
from wdspec.cli.explain_facts import ExplainedSource, Explanation
from wdspec.cli.preview_media import MediaBudget, ShownValue, as_array, shown_values
from wdspec.cli.samples import (
    ValueMeaning,
    files_of,
    first_batch,
    first_samples,
    only_source,
    samples_of,
    value_meaning,
)
from wdspec.spec.language.decoders import FORMAT_OF
from wdspec.spec.spec import Spec

Sample = dict[str, Any]
MEDIA = 3_500_000
"""Bytes of pictures and sounds that a page may hold, over all its specs and sources."""
_MOST_CLASSES = 50
"""Different whole numbers in a field, above which they are no classes."""


@dataclass(frozen=True)
class Distribution:
    """What a chart shows: values, or how often each class comes."""

    title: str
    unit: str
    values: list[float] = field(default_factory=list)
    classes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SampleCard:
    """One sample, as its shard holds it and as training gets it."""

    key: str
    url: str
    files: list[ShownValue]
    fields: list[ShownValue] | None
    """None: it does not come through, or was not among those read."""


@dataclass(frozen=True)
class SourcePreview:
    """One source that is read."""

    explained: ExplainedSource
    cards: list[SampleCard]
    looked_at: int
    """Samples that the distributions are of."""
    distributions: list[Distribution]
    problems: list[str]


@dataclass(frozen=True)
class SpecPreview:
    """One spec."""

    title: str
    explanation: Explanation
    sources: list[SourcePreview]
    batch: list[tuple[str, ValueMeaning]]
    """The columns of the first batch; empty for a spec without `batch`."""
    problems: list[str]
    """Of the whole."""

    @property
    def all_problems(self) -> list[str]:
        """Those of the whole, and those of each source."""
        return [*self.problems, *(problem for source in self.sources for problem in source.problems)]


def preview_of(
    title: str,
    explanation: Explanation,
    *,
    count: int,
    cards: int,
    media: int = MEDIA,
    advance: Callable[[], Any] = lambda: None,
) -> SpecPreview:
    """Reads the first samples of each source that is read, twice: as files, and as training gets them.

    Args:
        title: what to call the spec.
        explanation: the spec, planned.
        count: samples read of each source.
        cards: how many of these are shown.
        media: bytes of pictures and sounds.
        advance: called behind each source.

    What cannot be read is among the problems, and the rest goes on.
    """
    spec, problems = explanation.spec, [str(said) for said in explanation.warnings()]
    sources = []
    for explained in explanation.active:
        budget = MediaBudget(media // len(explanation.active))
        sources.append(_source(spec, explained, count, cards, budget))
        advance()
    batch: list[tuple[str, ValueMeaning]] = []
    if spec.batch is not None:
        try:
            batch = [(name, value_meaning(column)) for name, column in first_batch(spec)]
        except WdspecError as error:
            problems.append(f"the first batch: {error}")
    return SpecPreview(title, explanation, sources, batch, [redacted_urls(each) for each in problems])


def _source(
    spec: Spec, explained: ExplainedSource, count: int, cards: int, budget: MediaBudget
) -> SourcePreview:
    alone = only_source(spec, explained.name)
    problems: list[str] = []
    files = _read(files_of(alone), count, problems)
    done = _read(samples_of(alone).model_copy(update={"to_tuple": None}), count, problems)
    behind = {(sample["__url__"], sample["__key__"]): sample for sample in done}
    shown = []
    for sample in files[:cards]:
        same = behind.get((sample["__url__"], sample["__key__"]))
        shown.append(
            SampleCard(
                str(sample["__key__"]),
                redacted_urls(str(sample["__url__"])),
                shown_values(sample, budget),
                None if same is None else shown_values(same, budget),
            )
        )
    return SourcePreview(
        explained, shown, len(files), [*_of_files(files), *_of_fields(done)], list(dict.fromkeys(problems))
    )


def _read(spec: Spec, count: int, problems: list[str]) -> list[Sample]:
    samples: list[Sample] = []
    try:
        samples.extend(first_samples(spec, count))
    except WdspecError as error:
        problems.append(redacted_urls(str(error)))
    return samples


def _of_files(samples: list[Sample]) -> list[Distribution]:
    """Sizes of samples, and of their pictures, from the files."""
    sizes = [sum(len(file) for file in _fields(sample).values() if file is not None) for sample in samples]
    longer = [max(size) for sample in samples for size in _picture_sizes(sample)]
    found = [Distribution("size of a sample", "bytes", values=list(map(float, sizes)))]
    found += [Distribution("longer side of a picture", "pixels", values=list(map(float, longer)))]
    return [each for each in found if each.values]


def _picture_sizes(sample: Sample) -> Iterable[tuple[int, int]]:
    from PIL import Image

    for name, data in _fields(sample).items():
        kind = FORMAT_OF.get(name.rsplit(".", 1)[-1].lower())
        if kind is not None and data is not None:
            try:
                yield Image.open(io.BytesIO(data), formats=[kind.pillow]).size
            except Exception:  # a damaged picture is among the problems of reading
                continue


def _of_fields(samples: list[Sample]) -> list[Distribution]:
    """Of each field what can be counted: lengths of texts and of lists, classes, numbers."""
    columns: dict[str, list[Any]] = {}
    for sample in samples:
        for name, value in _fields(sample).items():
            if value is not None:
                columns.setdefault(name, []).append(value)
    found = (_of_field(name, values) for name, values in columns.items())
    return [distribution for distribution in found if distribution is not None]


def _of_field(name: str, values: list[Any]) -> Distribution | None:
    if all(isinstance(value, str) for value in values):
        return Distribution(f"length of {name}", "characters", values=[float(len(value)) for value in values])
    if all(isinstance(value, int) for value in values) and len(set(values)) <= _MOST_CLASSES:
        return Distribution(f"classes of {name}", "samples", classes=_counted(values))
    if all(isinstance(value, (int, float)) for value in values):
        return Distribution(f"values of {name}", "", values=[float(value) for value in values])
    arrays = [as_array(value) for value in values]
    if all(array is not None and array.ndim == 1 for array in arrays):
        lengths = [float(len(array)) for array in arrays if array is not None]
        return Distribution(f"length of {name}", "elements", values=lengths)
    if all(isinstance(value, list) for value in values):
        return Distribution(f"length of {name}", "entries", values=[float(len(value)) for value in values])
    return None


def _counted(values: list[int]) -> dict[str, int]:
    return {str(value): number for value, number in sorted(Counter(values).items())}


def _fields(sample: Sample) -> Sample:
    return {str(name): value for name, value in sample.items() if not str(name).startswith("__")}
