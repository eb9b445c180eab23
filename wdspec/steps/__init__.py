"""The steps of `make`: ordinary functions from values to values, which can also be imported and called.

Each file has one step. Its factory, such as `make_label`, takes the options of the step by keyword and returns a
function of a value. Nothing is read before a factory is called. The models of the options, and the table of the steps,
are in `spec/language/making.py`.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wdspec.steps.chat import make_chat as make_chat
    from wdspec.steps.choose import make_choose as make_choose
    from wdspec.steps.label import make_label as make_label
    from wdspec.steps.mask_tokens import make_mask_tokens as make_mask_tokens
    from wdspec.steps.tokenize import make_tokenizer as make_tokenizer

_FACTORIES = {
    "make_add_noise": "wdspec.fields.codecs.sound_mixing",
    "make_chat": "wdspec.steps.chat",
    "make_choose": "wdspec.steps.choose",
    "make_convolve": "wdspec.fields.codecs.sound_mixing",
    "make_crop": "wdspec.fields.codecs.cropping",
    "make_label": "wdspec.steps.label",
    "make_mask_tokens": "wdspec.steps.mask_tokens",
    "make_segment": "wdspec.fields.codecs.segments",
    "make_tokenizer": "wdspec.steps.tokenize",
}
__all__ = [
    "make_add_noise",
    "make_chat",
    "make_choose",
    "make_convolve",
    "make_crop",
    "make_label",
    "make_mask_tokens",
    "make_segment",
    "make_tokenizer",
]


def __getattr__(name: str) -> Any:
    # A factory is imported when it is used: some need libraries.
    if name not in _FACTORIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(f"{_FACTORIES[name]}:{name}")
