"""Which names members may have: those that the reader takes apart again into the same key and field."""

from __future__ import annotations

from typing import Literal

from wdspec.errors import FieldError
from wdspec.formats.tar.sample_keys import splitter
from wdspec.spec.language.sample_options import KeyRule

KeySplit = Literal["first_dot", "last_dot"]


class MemberNames:
    """Makes the names of members, and refuses those that would not be read back as they were written.

    Args:
        rule: where the reader is going to split names; the `key` of a source in a spec.
    """

    def __init__(self, rule: KeySplit = "first_dot") -> None:
        if rule not in ("first_dot", "last_dot"):
            raise ValueError(f"`key` is first_dot or last_dot, not {rule!r}")
        self._rule = rule
        self._split = splitter(KeyRule(kind=rule))
        self._suffixes: dict[str, bytes] = {}

    def key(self, key: object) -> bytes:
        """The key of a sample as it begins the names of its members.

        Raises:
            FieldError: it is no text, or no relative path that can be read back.
        """
        if not isinstance(key, str):
            seen = (
                "the sample has no `__key__`" if key is None else f"`__key__` is {key!r:.60}, which is no str"
            )
            raise FieldError(f"{seen}; give each sample a text that is its own, such as '000042'")
        name = key.encode("utf-8", "surrogateescape")
        reason = self._objection(key, name)
        if reason:
            raise FieldError(f"the key {key[:200]!r} {reason}", key=key)
        return name + b"."

    def _objection(self, key: str, name: bytes) -> str:
        base = key[key.rfind("/") + 1 :]
        if not base:
            return "names no file: it is empty or ends in a slash"
        if "\0" in key:
            return "holds a NUL character, where tar ends names"
        if key.startswith("/"):
            return "is an absolute path; take the slash away"
        if ".." in key.split("/"):
            return "leads out of its folder by `..`; take that away"
        if base.startswith("."):
            return "begins its last part with a dot, as hidden files do, which readers skip"
        if self._rule == "first_dot" and "." in base:
            read = key[: len(key) - len(base)] + base.split(".")[0]
            return (
                f"has a dot in its last part: it would be read as the key {read!r}; "
                "write another character, such as `_`, or use `key='last_dot'` here and `key: last_dot` in the spec"
            )
        if self._split(name + b".x") != (name, b"x"):
            return "looks like `__meta__` files, which readers skip"
        return ""

    def suffix(self, field: str) -> bytes:
        """A field as it ends the name of its member.

        Raises:
            FieldError: it would be read as another field or key.
        """
        known = self._suffixes.get(field)
        if known is not None:
            return known
        reason = ""
        if not field or field.startswith("."):
            reason = f"write {field.lstrip('.') or 'an extension'!r}, without a dot before it"
        elif "/" in field or "\0" in field:
            reason = "an extension holds no slash and no NUL character"
        elif self._rule == "last_dot" and "." in field:
            reason = "with `key='last_dot'` a field holds no dot"
        if reason:
            raise FieldError(
                f"the field {field[:200]!r} cannot be the extension of a file: {reason}", field=field
            )
        if len(self._suffixes) > 10_000:
            self._suffixes.clear()
        suffix = self._suffixes[field] = field.encode("utf-8", "surrogateescape")
        return suffix
