"""`wdspec preview`: a page with the mixture, and real samples of each source before and after its steps.

The page is one file of HTML with everything in it, which runs no script and loads nothing. Charts are drawn by
matplotlib, as SVG in the colours of the page.

All that a page shows of one spec: its mixture, and the first samples of each source, as files and in training.
"""

from __future__ import annotations

import base64
import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files as resources
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from wdspec.base.errors import UsageError, WdspecError
from wdspec.base.progress import progress
from wdspec.base.redaction import printable, redacted_urls
from wdspec.cli.explain_facts import ExplainedSource, Explanation, explain_spec
from wdspec.cli.preview_media import MediaBudget, ShownValue, as_array, shown_values
from wdspec.cli.report import counted, size
from wdspec.cli.samples import (
    ValueMeaning,
    files_of,
    first_batch,
    first_samples,
    only_source,
    samples_of,
    value_meaning,
)
from wdspec.cli.simulate_draws import drawn_sources, simulate
from wdspec.cli.spec_options import SpecChoice, choosing_options, topology_options
from wdspec.planning.plan import Plan
from wdspec.spec.language.decoders import FORMAT_OF
from wdspec.spec.spec import Spec
from wdspec.stores.outputs import save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Sample = dict[str, Any]
MEDIA = 3_500_000
"""Bytes of pictures and sounds that a page may hold, over all its specs and sources."""
_MOST_CLASSES = 50
"""Different whole numbers in a field, above which they are no classes."""
MOST_SOURCES = 40
"""Sources of the mixture's chart, those with the largest shares."""
MOST_DRAWN = 1 << 20
"""Samples drawn to see what the shares come to."""
STRIP = 2_048
"""Samples of the strip at most."""
_INK = "#0a0b0c"
"""Stands for the page's own colour of text."""
_PADDING = (128, 128, 128)
_CLASSES = 20
"""Bars of a chart of classes."""


@click.command()
@click.argument("files", metavar="SPEC [OTHER]", nargs=-1, required=True)
@click.option(
    "-o", "--output", metavar="PAGE.html", default="preview.html", show_default=True, help="The page."
)
@click.option(
    "-n",
    "cards",
    type=click.IntRange(0, 100),
    default=6,
    show_default=True,
    help="Samples shown of each source.",
)
@click.option(
    "--samples",
    "count",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    help="Samples read of each source, for the charts.",
)
@choosing_options("Split of the specs; SPEC#NAME chooses one's own.")
@topology_options
def preview(
    files: tuple[str, ...],
    output: str,
    cards: int,
    count: int,
    choose: Callable[[str], SpecChoice],
    ranks: int | None,
    workers: int | None,
) -> None:
    """Write a page of HTML that shows a spec, or two side by side: shares asked for and given, which source each sample
    of the first batches comes from, and of each source real samples, as its shards hold them and as training gets them,
    with the distributions of sizes, lengths and classes.

    Everything is in the one file, which loads nothing and runs no script. Reads shards and runs the functions that the
    spec names (`map`, `select`, decoders); WDS_SECURE=1 forbids them. Needs `pip install 'wdspec[charts]'`.
    """
    if len(files) > 2:
        raise click.UsageError(f"a page shows one spec, or two side by side; here are {len(files)}")
    check_libraries()
    found = [explain_spec(choose(file).load(), ranks, workers, 1) for file in files]
    with progress("reading sources", sum(len(each.active) for each in found)) as bar:
        previews = [
            preview_of(file, each, count=count, cards=cards, media=MEDIA // len(found), advance=bar.advance)
            for file, each in zip(files, found, strict=True)
        ]
    data = page(previews).encode()
    save(output, data)
    problems = sum(len(each.all_problems) for each in previews)
    said = "no problems" if not problems else counted(problems, "problem")
    click.echo(printable(f"{output}: {size(len(data))}, {said}; open {os.path.abspath(output)} in a browser"))


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


def check_libraries() -> None:
    """Raises UsageError where a library that draws pages is not installed."""
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
        import PIL  # noqa: F401
    except ImportError as error:
        raise UsageError(f"`wdspec preview` needs {error.name}: pip install 'wdspec[charts]'") from None


def page(previews: Sequence[SpecPreview]) -> str:
    """The previews of one or two specs, side by side."""
    import jinja2

    template = resources("wdspec.cli").joinpath("preview.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.from_string(template).render(previews=[_parts(preview) for preview in previews])


def _parts(preview: SpecPreview) -> dict[str, Any]:
    """What the template asks for of one spec."""
    plan = preview.explanation.plan
    picture, batches, width = strip(plan)
    colours = dict(zip((source.name for source in plan.sources), palette(len(plan.sources)), strict=True))
    unit = "batch" if plan.batching.batched else "step"
    caption = f"The first {counted(batches, unit, 'batches' if unit == 'batch' else 'steps')}, a square for each sample"
    if plan.batching.batched:
        cut = f", of which the first {width:,} are shown" if width < plan.batching.global_size else ""
        caption += f"; a column is a global batch of {plan.batching.global_size:,}{cut}"
    samples = plan.epoch_samples
    return {
        "spec": preview,
        "epoch": f"an epoch is {counted(samples, 'sample')}" if samples else "the stream has no end",
        "mixture": mixture(plan),
        "rows": [_row(each, colours) for each in preview.explanation.active],
        "strip": picture,
        "strip_rows": batches,
        "strip_caption": f"{caption}.",
        "charts": [
            distributions(each.distributions) if each.distributions else "" for each in preview.sources
        ],
    }


def _row(source: ExplainedSource, colours: dict[str, tuple[int, int, int]]) -> dict[str, str]:
    about = "~" if source.estimated else ""
    return {
        "name": source.name,
        "colour": "#{:02x}{:02x}{:02x}".format(*colours[source.name]),
        "share": f"{100 * source.share:.2f} %",
        "shards": f"{source.shards:,}" if source.shards is not None else "",
        "samples": f"{about}{source.samples:,.0f}" if source.samples is not None else "unknown",
        "passes": f"{about}{source.passes:.2f}" if source.passes is not None else "",
        "fields": source.fields,
        "steps": source.steps,
    }


def palette(count: int) -> list[tuple[int, int, int]]:
    """Colours that many sources can be told apart by, as 8-bit RGB."""
    from matplotlib import colormaps

    table = colormaps["tab10" if count <= 10 else "tab20" if count <= 20 else "turbo"]
    places = range(count) if count <= 20 else np.linspace(0.05, 0.95, count)
    found = (table(place) for place in places)
    return [(round(255 * red), round(255 * green), round(255 * blue)) for red, green, blue, _ in found]


def mixture(plan: Plan) -> str:
    """The shares that the spec asks for beside what the first epoch (or a million samples) gives, as SVG."""
    size = plan.batching.global_size
    batches = max(1, min(plan.epoch_batches or MOST_DRAWN, MOST_DRAWN // size))
    found = simulate(plan, batches)
    asked, given = found.expected / max(1, found.expected.sum()), found.drawn / max(1, found.drawn.sum())
    order = np.argsort(-asked, kind="stable")[:MOST_SOURCES][::-1]
    colours = palette(len(plan.sources))
    figure = _figure(7, 0.6 + 0.42 * len(order))
    axes = figure.subplots()
    places = np.arange(len(order))
    bars = axes.barh(places, 100 * given[order], 0.6, color=[_hex(colours[n]) for n in order])
    axes.bar_label(bars, fmt="%.2f %%", padding=6, fontsize=8, color=_INK)
    axes.scatter(100 * asked[order], places, marker="|", s=220, color=_INK, zorder=3)
    axes.set_yticks(places, [plan.sources[n].name for n in order])
    axes.set_xlabel("% of the samples; the line is the share asked for")
    axes.margins(x=0.15)
    return _svg(figure, axes)


def distributions(found: Sequence[Distribution]) -> str:
    """Histograms and bars side by side, as SVG."""
    from matplotlib.ticker import MaxNLocator

    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    figure = _figure(3 * columns, 2.1 * rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, each in zip(grid, found, strict=False):
        axes.set_title(each.title, fontsize=9, color=_INK)
        if each.classes:
            most = sorted(each.classes.items(), key=lambda item: -item[1])[:_CLASSES]
            names = sorted((name for name, _ in most), key=int)
            axes.bar(names, [each.classes[name] for name in names], color="#4c8bf5")
            axes.tick_params(axis="x", labelrotation=90 if len(names) > 8 else 0)
        else:
            low, high = min(each.values), max(each.values)
            around = (low - 1, high + 1) if low == high else (low, high)
            axes.hist(each.values, bins=20 if low < high else 3, range=around, color="#4c8bf5")
            axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("" if each.classes else each.unit, fontsize=8)
    for axes in grid[len(found) :]:
        axes.set_visible(False)
    return _svg(figure, *grid)


def strip(plan: Plan) -> tuple[str, int, int]:
    """The first global batches as a picture, a square a sample, coloured by source; a column is a batch.

    Returns:
        a `data:` URL, how many batches, how many samples of each are shown.
    """
    from PIL import Image

    size = plan.batching.global_size
    batches = max(1, min(plan.epoch_batches or 64, 64, STRIP // min(size, STRIP)))
    if plan.batching.batched:
        drawn = drawn_sources(plan, batches)[:, :128]
    else:  # a step is a sample of each rank: columns of 32 say more
        batches = max(1, min(plan.epoch_batches or STRIP, STRIP // min(size, STRIP)))
        flat = drawn_sources(plan, batches).ravel()[:STRIP]
        drawn = np.full((-(-len(flat) // 32), 32), -1)
        drawn.ravel()[: len(flat)] = flat
    colours = np.array([*palette(len(plan.sources)), _PADDING, (255, 255, 255)], dtype=np.uint8)
    side = min(24, max(6, 900 // len(drawn)), max(6, 400 // drawn.shape[1]))
    picture = Image.fromarray(colours[drawn.T].repeat(side, axis=0).repeat(side, axis=1))
    file = io.BytesIO()
    picture.quantize(min(256, len(colours))).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode(), batches, drawn.shape[1]


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _svg(figure: Figure, *axes: Any) -> str:
    """The figure as an `svg` element without a background, whose texts and lines have the page's colour."""
    for each in axes:
        each.tick_params(colors=_INK, labelsize=8)
        each.xaxis.label.set_color(_INK)
        each.set_facecolor("none")
        for spine in each.spines.values():
            spine.set_color(_INK)
        each.spines[["top", "right"]].set_visible(False)
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "wdspec"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :].replace(_INK, "currentColor")


def _hex(colour: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
