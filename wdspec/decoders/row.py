"""One decoder, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class ImageSpec(NamedTuple):
    """What an image decoder makes of a picture."""

    container: str
    """``numpy``, ``torch`` or ``pil``."""
    mode: str
    """Pillow's name of the channels: ``L``, ``RGB`` or ``RGBA``."""
    dtype: str
    """``uint8``, ``uint16``, or ``float32`` for values in 0..1."""

    @property
    def gives(self) -> str:
        """The value, for the documentation."""
        if self.container == "pil":
            return f"`PIL.Image`, mode {self.mode}"
        return f"{self.container} {self.dtype}{' in 0..1' if self.dtype == 'float32' else ''}"

    @property
    def shape(self) -> str:
        """The shape, for the documentation: channels last in arrays, first in tensors, none in Pillow images."""
        sides = ["height", "width"]
        if self.mode != "L":
            sides.insert(0 if self.container == "torch" else 2, str(len(self.mode)))
        return "" if self.container == "pil" else f"({', '.join(sides)})"


@dataclass(frozen=True)
class DecoderRow:
    """All that is known of a decoder. Functions are named ``package.module:function``, and imported on first use."""

    names: tuple[str, ...]
    """What a spec calls it: ``decode: rgb8``."""
    gives: str
    """The value, for the documentation (Markdown)."""
    read: str = ""
    """Function: bytes → value, safe on any data. Empty: there is none, such as for pickles."""
    write: str = ""
    """Function: value → bytes, for fields of the row's `extensions`. Empty: only bytes can be written there."""
    extensions: tuple[str, ...] = ()
    """What it takes when it is named for the whole sample (`decode: [audio]`); empty: each name its own extension."""
    everything: bool = False
    """Whether it takes files of any extension."""
    writes: tuple[str, ...] = ()
    """Extensions that `write` writes, where these are others."""
    by_default: bool = False
    """Whether files of its extensions are read so where a spec says nothing."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """Library that must be installed → the extra of wdspec that installs it."""
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Option (`rgb8+upright`) → what is needed with it in place of `needs`, if it is something else."""
    made: bool = False
    """Whether `read` names what makes the reader, from the decoder's name with its options, the field's name and its
    suffix; and `write` what makes the writer, from the extension."""
    read_trusting: str = ""
    """The reader under ``allow: [pickle]``, where that is another one: it may run what the data says."""
    write_trusting: str = ""
    """The writer where pickles are allowed, if that is another one."""
    pickle: bool = False
    """Whether a spec that names it needs ``allow: [pickle]``."""
    is_pickle: bool = False
    """Whether its files are pickles at heart, which WDS_SECURE forbids however they are read."""
    image: ImageSpec | None = None
    """For decoders of images, which can rescale: what they make."""
    left_out: bool = False
    """Not a decoder but a name of webdataset's that is left out on purpose, with functions that say so."""

    def takes(self, name: str, extension: str) -> bool:
        """Whether the decoder, called `name`, takes files of an extension when it is named for the whole sample."""
        return self.everything or extension in (self.extensions or (name,))

    def libraries(self, options: frozenset[str]) -> Mapping[str, str]:
        """What must be installed for the decoder with these options: library → extra."""
        return next((self.options[option] for option in sorted(options) if self.options[option]), self.needs)
