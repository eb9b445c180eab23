"""The page itself: one file of HTML with everything in it, which runs no script and loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.cli.explain.explanation import ExplainedSource
from wdspec.cli.preview.preview_charts import distributions, mixture, palette, strip
from wdspec.cli.preview.spec_preview import SpecPreview
from wdspec.cli.support.tables import counted


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

    template = files("wdspec.cli.preview").joinpath("preview_page.html.jinja").read_text(encoding="utf-8")
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
