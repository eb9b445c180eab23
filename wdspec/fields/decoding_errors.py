"""What decoders raise: what the data is at fault for, and what may be a mistake in code of the user's own."""

from __future__ import annotations

from wdspec.errors import FieldError


class UserDecoderError(FieldError):
    """A function that the user names in `decode` has failed: on bad data or by a mistake in it, nobody can tell.

    A function that knows that the data is at fault raises a FieldError itself.
    """

    code = "D203"


def one_line(cause: Exception) -> str:
    """What an exception says, in one line of bounded length; with its type where words are not enough."""
    text = " ".join(str(cause).split())
    if not text or not isinstance(cause, (ValueError, OSError, EOFError)):
        text = f"{type(cause).__name__}: {text}".rstrip(": ")
    return text if len(text) <= 300 else f"{text[:300]}…"
