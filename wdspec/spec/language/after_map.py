"""Measuring samples after `map`: messages that are the same in `validate` and at run time."""

from __future__ import annotations

from wdspec.spec.language.expressions import BEFORE_MAP


def describe_held_media(field: str, source: str, is_staged: bool) -> tuple[str, str]:
    """Return what is wrong with decoded images, sound or videos in a window of samples, and what to do.

    Args:
        field: a field that is decoded to pixels, frames or sound.
        source: the source of the samples.
        is_staged: whether they are measured after a `stage`.
    """
    hint = (
        f"leave `{field}` as bytes (`decode: {{{field}: raw}}`), or do not measure samples after the stage"
        if is_staged
        else f"estimate the value before `map`: `{BEFORE_MAP}(txt.length) / 3`; or leave `{field}` out of `fields`"
    )
    step = "a `stage`" if is_staged else "`map`"
    return (
        f"samples of `{source}` are measured after {step}, so a window of them keeps `{field}` decoded in memory",
        hint,
    )


def describe_lost_header(written: str, field: str) -> tuple[str, str]:
    """Return what is wrong with a value of a header that is read after `map`, and what to do.

    Args:
        written: the value as it is written: `image.width`.
        field: its field, which `map` sets.
    """
    return (
        f"`{written}` is in the header of a file, but `map` sets `{field}`, so it is read after `map`",
        f"write `{BEFORE_MAP}({written})`",
    )
