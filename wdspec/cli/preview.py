"""`wdspec preview`: a page with the mixture, and real samples of each source before and after its steps.

The page is one self-contained HTML file without scripts. Charts are drawn by matplotlib, as SVG in the colours of the
page.
"""

from __future__ import annotations

import base64
import io
import math
import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from importlib.resources import files as resources
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from wdspec import __version__
from wdspec.advice.explanation import ExplainedSource, Explanation, explain_spec
from wdspec.advice.words import common_steps
from wdspec.base.amounts import largest_places
from wdspec.base.errors import UsageError, WdspecError
from wdspec.base.progress import progress
from wdspec.base.redaction import printable, redacted_urls
from wdspec.cli.output import chart_text, one_line, percent, pluralize, size
from wdspec.cli.preview_media import BoxFormat, MediaBudget, ShownValue, as_array, format_of, list_values
from wdspec.cli.preview_rows import PackedRow, read_rows
from wdspec.cli.samples import (
    ValueMeaning,
    describe_value,
    first_batch,
    first_samples,
    only_source,
    samples_of,
)
from wdspec.cli.simulate_draws import Amounts, drawn_sources, simulate
from wdspec.cli.spec_options import SpecChoice, choosing_options, require_library, topology_options
from wdspec.fields.values import is_array
from wdspec.planning.plan import Plan
from wdspec.spec.language.decoders import FORMAT_OF
from wdspec.spec.language.making import Crop
from wdspec.spec.spec import Spec
from wdspec.stores.outputs import save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Sample = dict[str, Any]
MEDIA = 3_500_000
"""Maximum number of bytes of images and sounds on a page, for all specs and sources together."""
_MOST_CLASSES = 50
"""A field with more distinct integers than this is not shown as classes."""
_LARGEST_CLASS = 10**9
"""Integers from this on are not shown as classes, whose names would be too long."""
MOST_SOURCES = 40
"""Maximum number of sources in the chart of the mixture: the ones with the largest shares."""
MOST_DRAWN = 1 << 20
"""Samples drawn to compare with the shares."""
STRIP = 2_048
"""Maximum number of samples in the strip."""
_INK = "#0a0b0c"
"""Replaced by the page's text colour."""
_PADDING = (128, 128, 128)
_CLASSES = 20
"""Maximum number of bars in a chart of classes."""


@click.command()
@click.argument("files", metavar="SPEC [OTHER]", nargs=-1, required=True)
@click.option(
    "-o", "--output", metavar="PAGE.html", default="preview.html", show_default=True, help="Page to write."
)
@click.option(
    "-n",
    "cards",
    type=click.IntRange(0, 100),
    default=6,
    show_default=True,
    help="Number of samples to show for each source.",
)
@click.option(
    "--samples",
    "count",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    help="Number of samples to read from each source for the charts.",
)
@click.option(
    "--step",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Number of the global batch to show. The picture of batches starts with it.",
)
@choosing_options("Split of the specs; SPEC#NAME chooses it for one of them.")
@topology_options
def preview(
    files: tuple[str, ...],
    output: str,
    cards: int,
    count: int,
    step: int,
    choose: Callable[[str], SpecChoice],
    ranks: int | None,
    workers: int | None,
) -> None:
    """Create an HTML page that shows one spec, or two side by side.

    The page shows the shares and how they change, and which source each sample of some batches comes from. For each
    source, it shows samples as they are in the shards and in training, and the distributions of sizes, lengths and
    classes. The page is self-contained and runs no script.

    The command reads shards and runs the user functions of the spec (`map`, `select`, decoders); WDS_SECURE=1 forbids
    them. It needs the `charts` extra.
    """
    if len(files) > 2:
        raise click.UsageError(f"a page shows one spec, or two side by side, not {len(files)}")
    for library in ("jinja2", "matplotlib", "PIL"):
        require_library(library, "`wdspec preview`", "wdspec[charts]")
    specs = [explain_spec(choose(file).load(), ranks, workers, 1) for file in files]
    with progress("reading sources", sum(len(_shown(each)) for each in specs)) as bar:
        previews = [
            build_preview(
                file,
                each,
                count=count,
                cards=cards,
                step=step,
                media=MEDIA // len(specs),
                advance=bar.advance,
            )
            for file, each in zip(files, specs, strict=True)
        ]
    data = render_page(previews).encode(errors="backslashreplace")
    save(output, data)
    number = sum(len(each.all_problems) for each in previews)
    problems = pluralize(number, "problem") if number else "no problems"
    click.echo(
        printable(f"{output}: {size(len(data))}, {problems}; open {os.path.abspath(output)} in a browser")
    )


@dataclass(frozen=True)
class Distribution:
    """The data of a chart: values, or the count of each class."""

    title: str
    unit: str
    values: list[float] = field(default_factory=list)
    classes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SampleCard:
    """One sample, as in its shard and as in training."""

    key: str
    url: str
    files: list[ShownValue]
    fields: list[ShownValue] | None
    """None if it is dropped, or was not read."""


@dataclass(frozen=True)
class SourcePreview:
    """A source that is read."""

    explained: ExplainedSource
    cards: list[SampleCard]
    looked_at: int
    """Number of samples in the distributions."""
    distributions: list[Distribution]
    problems: list[str]
    skipped: dict[str, int]
    """Samples that the spec skips or drops, by cause, until it has these."""


@dataclass(frozen=True)
class SpecPreview:
    """One spec."""

    title: str
    explanation: Explanation
    sources: list[SourcePreview]
    step: int
    """J of the batch to show."""
    batch: list[tuple[str, ValueMeaning]]
    """The columns of the batch; empty for a spec without `batch`."""
    packed: list[PackedRow]
    """The rows of the batch and of those after it; empty for a spec without `pack`."""
    problems: list[str]
    """Problems of the whole spec."""

    @property
    def all_problems(self) -> list[str]:
        """Problems of the whole spec and of each source that is shown."""
        return [*self.problems, *(problem for source in self.sources for problem in source.problems)]

    @property
    def charts(self) -> list[tuple[str, Distribution]]:
        """The distributions, with the names of their sources."""
        return [(source.explained.name, chart) for source in self.sources for chart in source.distributions]

    @cached_property
    def shares(self) -> tuple[Amounts, Amounts]:
        """The shares of the sources in the spec, and those of the first epoch (or a million samples)."""
        plan = self.explanation.plan
        size = plan.batching.global_size
        end = plan.timeline.end(0) if plan.finite is None else plan.finite.rounds
        found = simulate(plan, max(1, min(end or MOST_DRAWN, MOST_DRAWN // size)))
        return found.expected / max(1, found.expected.sum()), found.drawn / max(1, found.drawn.sum())


def build_preview(
    title: str,
    explanation: Explanation,
    *,
    count: int,
    cards: int,
    step: int = 0,
    media: int = MEDIA,
    advance: Callable[[], Any] = lambda: None,
) -> SpecPreview:
    """Read the first samples of each source twice: as files, and as in training. Errors are listed as problems.

    Of many sources, only the largest are read.

    Args:
        title: name of the spec.
        explanation: the spec, planned.
        count: samples to read of each source.
        cards: samples to show of each source.
        step: number of the global batch to show.
        media: maximum number of bytes of images and sounds.
        advance: called after each source.
    """
    spec, problems = explanation.spec, list(map(one_line, explanation.advice))
    timeline = explanation.plan.timeline
    last = timeline.epoch_steps if timeline.is_pass else timeline.stop
    if last is not None and step >= last:
        what = "a pass" if timeline.is_pass else "the run"
        raise UsageError(
            f"{title}: {what} has {pluralize(last, 'batch', 'batches')}; choose a --step below {last:,}"
        )
    sources, shown = [], _shown(explanation)
    for explained in shown:
        budget = MediaBudget(media // len(shown))
        sources.append(_source(spec, explained, count, cards, budget))
        advance()
    batch: list[tuple[str, ValueMeaning]] = []
    packed: list[PackedRow] = []
    if spec.batch is not None:
        try:
            packed = read_rows(spec, step)
            batch = [(name, describe_value(column)) for name, column in first_batch(spec, step)]
        except WdspecError as error:
            problems.append(f"batch {step:,}: {error}")
    return SpecPreview(
        title, explanation, sources, step, batch, packed, [redacted_urls(each) for each in problems]
    )


def _shown(explanation: Explanation) -> list[ExplainedSource]:
    """The sources to show: all of a few, the largest ones of many."""
    active = explanation.active
    return [active[place] for place in largest_places([each.share for each in active])]


def _source(
    spec: Spec, explained: ExplainedSource, count: int, cards: int, budget: MediaBudget
) -> SourcePreview:
    alone = only_source(spec, explained.name)
    problems: list[str] = []
    skipped: Counter[str] = Counter()
    samples = samples_of(alone).model_copy(update={"to_tuple": None})
    files = _read(samples, count, problems, Counter(), as_files=True)
    trained = _read(samples, count, problems, skipped)
    by_key = {(sample["__url__"], sample["__key__"]): sample for sample in trained}
    formats = _box_formats(alone)
    shown = []
    for sample in files[:cards]:
        same = by_key.get((sample["__url__"], sample["__key__"]))
        url = redacted_urls(str(sample["__url__"]))
        values = list_values(sample, budget), None if same is None else list_values(same, budget, formats)
        shown.append(SampleCard(str(sample["__key__"]), url, *values))
    charts = [*_of_files(files), *_of_fields(trained)]
    problems = list(dict.fromkeys(problems))
    return SourcePreview(explained, shown, len(files), charts, problems, dict(sorted(skipped.items())))


def _box_formats(spec: Spec) -> dict[str, BoxFormat]:
    """Field → the numbers of its boxes, for those that `crop` makes."""
    steps = [step for source in spec.sources for step in source.make.values() if isinstance(step, Crop)]
    return {name: BoxFormat(step.box_format, step.relative) for step in steps for name in step.boxes}


def _read(
    spec: Spec, count: int, problems: list[str], skipped: Counter[str], as_files: bool = False
) -> list[Sample]:
    samples: list[Sample] = []
    try:
        samples.extend(first_samples(spec, count, skipped=skipped, as_files=as_files))
    except WdspecError as error:
        problems.append(redacted_urls(str(error)))
    return samples


def _of_files(samples: list[Sample]) -> list[Distribution]:
    """Sizes of samples, and of their images, from the files."""
    sizes = [sum(map(_bytes_of, _fields(sample).values())) for sample in samples]
    longer = [max(size) for sample in samples for size in _image_sizes(sample)]
    found = [Distribution("size of a sample", "bytes", values=list(map(float, sizes)))]
    found += [Distribution("longer side of an image", "pixels", values=list(map(float, longer)))]
    return [each for each in found if each.values]


def _bytes_of(value: Any) -> int:
    """The bytes of a file, or those that a value of a table takes up in memory, roughly."""
    if value is None or isinstance(value, bytes):
        return len(value or b"")
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if is_array(value):
        return int(value.nbytes)
    if isinstance(value, float):
        return 8
    try:
        return len(pickle.dumps(value))
    except Exception:  # very deep lists, objects of users
        return 0


def _image_sizes(sample: Sample) -> Iterable[tuple[int, int]]:
    from PIL import Image

    for name, data in _fields(sample).items():
        kind = FORMAT_OF.get(format_of(name, data)) if isinstance(data, bytes) else None
        if kind is not None:
            try:
                yield Image.open(io.BytesIO(data), formats=[kind.pillow]).size
            except Exception:  # reading reports a damaged image
                continue


def _of_fields(samples: list[Sample]) -> list[Distribution]:
    """Lengths of texts and lists, classes and numbers of each field."""
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
    are_classes = all(isinstance(value, int) and abs(value) < _LARGEST_CLASS for value in values)
    if are_classes and len(set(values)) <= _MOST_CLASSES:
        counts = {str(value): number for value, number in sorted(Counter(values).items())}
        return Distribution(f"classes of {name}", "samples", classes=counts)
    if all(isinstance(value, (int, float)) for value in values):
        with suppress(OverflowError):  # an integer above the range of floats
            return Distribution(f"values of {name}", "", values=[float(value) for value in values])
        return None
    arrays = [as_array(value) for value in values]
    if all(array is not None and array.ndim == 1 for array in arrays):
        lengths = [float(len(array)) for array in arrays if array is not None]
        return Distribution(f"length of {name}", "elements", values=lengths)
    if all(isinstance(value, list) for value in values):
        return Distribution(f"length of {name}", "entries", values=[float(len(value)) for value in values])
    return None


def _fields(sample: Sample) -> Sample:
    return {str(name): value for name, value in sample.items() if not str(name).startswith("__")}


def render_page(previews: Sequence[SpecPreview]) -> str:
    """Render the previews of one or two specs side by side."""
    import jinja2

    template = resources("wdspec.cli").joinpath("preview.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    axes = Axes(previews)
    return environment.from_string(template).render(
        previews=[_parts(preview, axes) for preview in previews],
        made=f"wdspec {__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    )


class Axes:
    """The ends of the x axes, which are the same for two specs side by side."""

    def __init__(self, previews: Sequence[SpecPreview]) -> None:
        self.share = max(float(each.max()) for preview in previews for each in preview.shares)
        self.samples = 1
        """The last sample in charts of schedules."""
        self.values: dict[tuple[str, str], tuple[float, float]] = {}
        """The least and the greatest value, by source and title of a chart."""
        for preview in previews:
            steps = preview.explanation.schedule
            epoch = preview.explanation.plan.epoch_samples or 0
            self.samples = max(self.samples, epoch, *(round(1.2 * step.at) for step in steps))
            for source, chart in preview.charts:
                if chart.values:
                    low, high = self.values.get((source, chart.title), (math.inf, -math.inf))
                    self.values[source, chart.title] = min(low, *chart.values), max(high, *chart.values)


def _parts(preview: SpecPreview, axes: Axes) -> dict[str, Any]:
    """The values of the template for one spec."""
    plan = preview.explanation.plan
    picture, batches, width = strip(plan, preview.step)
    colours = dict(zip((source.name for source in plan.sources), palette(len(plan.sources)), strict=True))
    unit = "batch" if plan.batching.batched else "step"
    count = pluralize(batches, unit, "batches" if unit == "batch" else "steps")
    begin = f"{count} from number {preview.step:,} on" if preview.step else f"The first {count}"
    caption = f"{begin}, a square for each sample"
    if plan.batching.windowed:
        windows = pluralize(batches, "window")
        begin = f"{windows} from number {preview.step:,} on" if preview.step else f"The first {windows}"
        caption = f"{begin}, of {width:,} samples, a square for each sample; a row is a window"
    elif plan.batching.batched:
        cut = f", of which the first {width:,} are shown" if width < plan.batching.global_size else ""
        caption += f"; a column is a global batch of {plan.batching.global_size:,}{cut}"
    epoch = "the stream has no end"
    if plan.timeline.epoch_steps is not None:
        steps = plan.timeline.length(0)
        samples = plan.epoch_samples
        length = pluralize(samples, "sample") if samples else pluralize(steps, "batch", "batches")
        epoch = f"an epoch is {length}"
    return {
        "spec": preview,
        "colours": {name: _hex(colour) for name, colour in colours.items()},
        "epoch": epoch,
        "mixture": mixture(plan, *preview.shares, axes.share),
        "schedule": schedule(preview.explanation, axes.samples)
        if len(preview.explanation.schedule) > 1
        else "",
        "schedule_in_words": "; ".join(
            f"{'by' if step.ramp else 'from'} sample {step.at:,}: "
            + ", ".join(f"{name} {percent(share)}" for name, share in step.shares.items() if share)
            for step in preview.explanation.schedule
        ),
        "rows": [
            _row(each.explained, colours, common_steps(preview.explanation.spec)) for each in preview.sources
        ],
        "more": len(preview.explanation.active) - len(preview.sources),
        "strip": picture,
        "strip_rows": batches,
        "strip_caption": f"{caption}.",
        "charts": [distributions(each.distributions, each.explained.name, axes) for each in preview.sources],
    }


def _row(source: ExplainedSource, colours: dict[str, tuple[int, int, int]], common: str) -> dict[str, str]:
    about = "~" if source.estimated else ""
    return {
        "name": source.name,
        "colour": _hex(colours[source.name]),
        "share": f"{100 * source.share:.2f}%",
        "shards": f"{source.shards:,}" if source.shards is not None else "",
        "samples": f"{about}{source.samples:,.0f}" if source.samples is not None else "unknown",
        "passes": f"{about}{source.passes:.2f}" if source.passes is not None else "",
        "fields": source.fields,
        "steps": ", ".join(filter(None, (source.steps, common))),
    }


def palette(count: int) -> list[tuple[int, int, int]]:
    """Distinct colours for sources, as 8-bit RGB."""
    from matplotlib import colormaps

    table = colormaps["tab10" if count <= 10 else "tab20" if count <= 20 else "turbo"]
    places = range(count) if count <= 20 else np.linspace(0.05, 0.95, count)
    found = (table(place) for place in places)
    return [(round(255 * red), round(255 * green), round(255 * blue)) for red, green, blue, _ in found]


def mixture(plan: Plan, shares: Amounts, drawn: Amounts, most: float) -> str:
    """The shares of the spec next to those that were drawn, as SVG.

    Args:
        plan: the plan.
        shares, drawn: of its sources.
        most: the share at the end of the axis.
    """
    order = np.argsort(-shares, kind="stable")[:MOST_SOURCES][::-1]
    colours = palette(len(plan.sources))
    figure = _figure(7, 0.6 + 0.42 * len(order))
    axes = figure.subplots()
    places = np.arange(len(order))
    bars = axes.barh(places, 100 * drawn[order], 0.6, color=[_hex(colours[n]) for n in order])
    axes.bar_label(bars, fmt="%.2f %%", padding=6, fontsize=8, color=_INK)
    axes.scatter(100 * shares[order], places, marker="|", s=220, color=_INK, zorder=3)
    axes.set_yticks(places, [chart_text(plan.sources[n].name) for n in order])
    axes.set_xlabel("% of the samples; the line is the share in the spec")
    axes.set_xlim(0, 115 * most)
    return _svg(figure, axes)


def schedule(explanation: Explanation, last: int) -> str:
    """The shares of the sources by sample, on top of each other, as SVG.

    Args:
        explanation: the spec.
        last: the last sample to show.
    """
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    names = [source.name for source in explanation.plan.sources]
    places: list[float] = []
    shares: list[list[float]] = []
    for step in explanation.schedule:
        size = explanation.plan.batching.global_size
        place = -(-step.at // size) * size
        if shares and not step.ramp:
            places.append(place)
            shares.append(shares[-1])
        places.append(place)
        shares.append([100 * step.shares[name] for name in names])
    figure = _figure(7, 2.2)
    axes = figure.subplots()
    columns = zip(*shares, shares[-1], strict=True)
    axes.stackplot([*places, last], *columns, colors=[_hex(colour) for colour in palette(len(names))])
    axes.set_xlim(0, last)
    axes.set_ylim(0, 100)
    axes.set_ylabel("% of the samples", fontsize=8, color=_INK)
    axes.set_xlabel("sample")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    return _svg(figure, axes)


def distributions(found: Iterable[Distribution], source: str, ends: Axes) -> list[str]:
    """Histograms and bars of a source, each as SVG."""
    from matplotlib.ticker import MaxNLocator

    drawn = []
    for each in found:
        figure = _figure(3, 2.1)
        axes = figure.subplots()
        axes.set_title(chart_text(each.title), fontsize=9, color=_INK)
        if each.classes:
            most = sorted(each.classes.items(), key=lambda item: -item[1])[:_CLASSES]
            names = [name for name in each.classes if name in dict(most)]
            axes.bar(names, [each.classes[name] for name in names], color="#4c8bf5")
            axes.tick_params(axis="x", labelrotation=90 if len(names) > 8 else 0)
        else:
            low, high = ends.values[source, each.title]
            around = (low - 1, high + 1) if low == high else (low, high)
            axes.hist(each.values, bins=20 if low < high else 3, range=around, color="#4c8bf5")
            axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("" if each.classes else each.unit, fontsize=8)
        drawn.append(_svg(figure, axes))
    return drawn


def strip(plan: Plan, first: int = 0) -> tuple[str, int, int]:
    """Draw global batches: a square for each sample, coloured by source; a column is a batch, or a row a window.

    Args:
        plan: the plan.
        first: the number of the first one.

    Returns:
        a `data:` URL, the number of batches, and the number of samples shown of each.
    """
    from PIL import Image

    size = plan.batching.global_size
    # A step without a batch is one sample of each rank, so use columns of 32
    most = STRIP // min(size, STRIP)
    if plan.batching.batched:
        most = min(64, most)
    line = plan.timeline
    left = (line.epoch_steps or most) - (first if line.is_pass else 0)
    left = left if line.stop is None else min(left, line.stop - first)
    batches = max(1, min(left, most))
    drawn = drawn_sources(plan, batches, first)
    if plan.batching.batched:
        drawn = drawn[:, :128]
    else:
        flat = drawn.ravel()[:STRIP]
        drawn = np.full((-(-len(flat) // 32), 32), -1)
        drawn.ravel()[: len(flat)] = flat
    colours = np.array([*palette(len(plan.sources)), _PADDING, (255, 255, 255)], dtype=np.uint8)
    # A window has many samples, and there are few of them
    grid = drawn if plan.batching.windowed else drawn.T
    side = min(24, max(6, 900 // grid.shape[1]), max(6, 400 // grid.shape[0]))
    picture = Image.fromarray(colours[grid].repeat(side, axis=0).repeat(side, axis=1))
    file = io.BytesIO()
    picture.quantize(min(256, len(colours))).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode(), batches, drawn.shape[1]


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _svg(figure: Figure, axes: Any) -> str:
    """The figure as an `svg` element without background, with texts and lines in the page's text colour."""
    axes.tick_params(colors=_INK, labelsize=8)
    axes.xaxis.label.set_color(_INK)
    axes.set_facecolor("none")
    for spine in axes.spines.values():
        spine.set_color(_INK)
    axes.spines[["top", "right"]].set_visible(False)
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "wdspec"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :].replace(_INK, "currentColor")


def _hex(colour: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
