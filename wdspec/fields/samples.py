"""One raw sample → one sample: names, missing fields, decoding, rescaling, decided once for each layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from wdspec.base.errors import FieldError, SpecError, WdspecError, warn_user
from wdspec.base.user_code import secure_mode
from wdspec.fields.decode import DecodeRules, FieldDecoder, one_line
from wdspec.fields.extensions import Extensions, Naming, is_reserved, listed_fields
from wdspec.fields.scale import Numbers

if TYPE_CHECKING:
    from wdspec.spec.spec import Source

MAX_LAYOUTS = 1024
"""Layouts remembered before all are forgotten; real data has a handful."""
TRIAL = 100
"""Samples after which a key of `decode` that no field has matched is warned of."""
MAX_LAYOUT_TEXT = 4096
"""Characters in the names of a layout, beyond which it is decided anew each time instead of remembered."""

Step = tuple[str, Callable[[bytes], Any]]
DrawnStep = tuple[str, Callable[[bytes, float | None, Numbers | None], Any]]


@dataclass(frozen=True)
class SampleLayout:
    """What is done to every sample whose entries have the same names in the same order."""

    moves: tuple[tuple[str, str], ...] | None
    """(new name, old name) of all that is kept; None if that is everything, as it is."""
    absent: dict[str, None]
    """Fields that are missing and become None."""
    plain: tuple[Step, ...]
    """Fields to decode, the images among them at their own size."""
    others: tuple[Step, ...]
    """Of these, the ones that are no images."""
    images: tuple[DrawnStep, ...]
    """The images, to be rescaled on the way, and what else draws."""
    labels: dict[str, str]
    """What to call the decoder of a field in a message."""

    @property
    def is_in_place(self) -> bool:
        """Whether every entry keeps its name and its place, and none is added: fields are decoded, or not even that."""
        return self.moves is None and not self.absent


class SampleFields:
    """Turns raw samples of one source (names → bytes) into samples (names → values).

    The order of work is `extensions`, `rename`, `missing`, `decode`, `scale`. Entries like ``__key__`` pass
    as they are, and come first. All that the names alone decide is decided once for each layout, the tuple
    of names; what is left for a sample is a copy of the dict and a loop over functions.

    Args:
        extensions: see `file_patterns.Extensions`.
        missing: ``error``, ``skip`` or ``none``, for each field asked for by `extensions`, `rename` or
            `required`.
        rename: new name → the names it may have had.
        required: fields asked for by later stages (`fields`, `to_tuple`), each maybe with ``;`` alternatives.
        only: the fields that anything later can look at, if that is known; all others are not even decoded.
        names, fields: `decode`, see `decode_rules.DecodeRules`. A key of `fields` that no field matches in the first
            `TRIAL` samples is warned of, once in each process.
        scales: whether factors may be given.
        allow_pickle: whether pickles may be read, and then `pth` and `npy` with objects too.
        secure: whether functions and pickle are forbidden; by default whether WDS_SECURE forbids them now.

    Raises:
        SpecError: the options contradict each other or are not allowed.
    """

    def __init__(
        self,
        extensions: Sequence[str] | None = None,
        *,
        missing: str = "error",
        rename: Mapping[str, Sequence[str]] | None = None,
        required: Sequence[str] = (),
        only: Sequence[str] | None = None,
        names: Sequence[str] = (),
        fields: Mapping[str, str] | None = None,
        scales: bool = False,
        allow_pickle: bool = False,
        secure: bool | None = None,
        folder: str = "",
    ) -> None:
        if missing not in ("error", "skip", "none"):
            raise SpecError(f"`missing` is error, skip or none, not {missing!r}")
        self.naming = Naming(
            Extensions(extensions),
            {new: tuple(olds) for new, olds in (rename or {}).items()},
            missing,
            tuple(required),
            None if only is None else tuple(only),
        )
        secure = secure_mode() if secure is None else secure
        self.rules = DecodeRules(tuple(names), dict(fields or {}), scales, allow_pickle, secure, folder)
        for new, olds in self.naming.rename.items():
            for old in olds:
                self.rules.check(new, old)
        self.source: str | None = None
        """What messages call the source."""
        self._layouts: dict[tuple[str, ...], SampleLayout | FieldError | Literal["skip"]] = {}
        self.in_place: dict[tuple[str, ...], tuple[Step, ...]] = {}
        """Of the layouts remembered those decoded in place, and how where there is neither factor nor numbers."""
        self._unmatched = set(self.rules.fields)
        self._tried = 0

    @classmethod
    def of(
        cls,
        source: Source,
        *,
        allow: Sequence[str] = (),
        required: Sequence[str] = (),
        only: Sequence[str] | None = None,
        secure: bool | None = None,
        folder: str = "",
    ) -> SampleFields:
        """The fields of a source of a spec, whose `allow` is given; the other arguments as for the class."""
        decode = source.decode
        made = cls(
            source.extensions,
            missing=source.missing,
            rename=source.rename,
            required=required,
            only=only,
            names=decode.names if decode else (),
            fields=decode.fields if decode else None,
            scales=source.scale is not None,
            allow_pickle="pickle" in allow,
            secure=secure,
            folder=folder,
        )
        made.source = source.name
        return made

    def field_of(self, suffix: str) -> str | None:
        """For the tar reader: the name under which a file of this suffix is kept, None to leave it unread."""
        return self.naming.field_of(suffix)

    def __call__(
        self, raw: Mapping[str, Any], factor: float | None = None, numbers: Numbers | None = None
    ) -> dict[str, Any] | None:
        """Decodes one sample.

        Args:
            raw: ``__key__`` and the like, and bytes under the names that `field_of` gave; left as it is. What is not
                bytes is a value already (CBOR and JSON have those), and is not decoded.
            factor: the rescale factor of this sample, None to leave its images as they are.
            numbers: the sample's own, for decoders that draw (`rules.draw`); they are the same for all its fields.

        Returns:
            A new dict; or None for a sample that lacks a field and is to be skipped and counted.

        Raises:
            FieldError: a field is missing or cannot be decoded, with source, url, key and field; a UserDecoderError
                where a function of the user's has failed.
            UsageError, SpecError: a mistake that is not the sample's, such as a decoder that cannot be
                imported.
        """
        names = tuple(raw)
        layout = self._layouts.get(names) or self._study(names)
        if not isinstance(layout, SampleLayout):
            if isinstance(layout, FieldError):
                # Errors gather the place of one sample and a traceback: the remembered one stays clean.
                raise _placed(FieldError(layout.message, code=layout.code, **layout.place), raw)
            return None
        moves = layout.moves
        sample = dict(raw) if moves is None else {new: raw[old] for new, old in moves}
        if layout.absent:
            sample.update(layout.absent)
        name = ""
        try:
            if (factor is None and numbers is None) or not layout.images:
                for name, decode in layout.plain:
                    if (data := sample[name]).__class__ is bytes:
                        sample[name] = decode(data)
            else:
                for name, decode in layout.others:
                    if (data := sample[name]).__class__ is bytes:
                        sample[name] = decode(data)
                for name, rescale in layout.images:
                    if (data := sample[name]).__class__ is bytes:
                        sample[name] = rescale(data, factor, numbers)
        except WdspecError as error:
            _placed(error, raw, name)
            raise
        except Exception as cause:
            message = f"cannot decode as {layout.labels[name]}: {one_line(cause)}"
            raise _placed(FieldError(message), raw, name) from cause
        return sample

    def _study(self, names: tuple[str, ...]) -> SampleLayout | FieldError | Literal["skip"]:
        """Decides what is done to samples of this layout, and remembers it."""
        decided: SampleLayout | FieldError | Literal["skip"]
        try:
            fields = self.naming.arrange([name for name in names if not is_reserved(name)])
            decided = "skip" if fields is None else self._lay_out(names, fields)
        except FieldError as error:
            decided = error.with_traceback(None)
        # While keys of `decode` are unmatched every sample is studied, so that remembered layouts cost nothing more.
        if self._unmatched and self._tried < TRIAL:
            self._try(names)
        elif sum(map(len, names)) <= MAX_LAYOUT_TEXT:
            if len(self._layouts) >= MAX_LAYOUTS:
                self._layouts.clear()
                self.in_place.clear()
            self._layouts[names] = decided
            if isinstance(decided, SampleLayout) and decided.is_in_place:
                self.in_place[names] = decided.plain
        return decided

    def _try(self, names: Sequence[str]) -> None:
        """Counts a sample in which keys of `decode` may match, and warns of those that never did."""
        self._tried += 1
        if self._tried == TRIAL:
            which = ", ".join(f"`{key}`" for key in sorted(self._unmatched))
            of = f" of source `{self.source}`" if self.source else ""
            warn_user(
                f"`decode` names {which}, but no field{of} has matched in {TRIAL} samples; the last one's fields: "
                f"{listed_fields(names)}. Keys are names of fields, or suffixes of files"
            )

    def _lay_out(self, names: tuple[str, ...], fields: Mapping[str, str | None]) -> SampleLayout:
        present = {name: stored for name, stored in fields.items() if stored is not None}
        moves = [(name, name) for name in names if is_reserved(name)] + list(present.items())
        if self._unmatched:
            self._unmatched -= {self.rules.key_for(name, stored) for name, stored in present.items()}
        found = ((name, self.rules.decoder_of(name, stored)) for name, stored in present.items())
        decoders: dict[str, FieldDecoder] = {name: decoder for name, decoder in found if decoder is not None}
        return SampleLayout(
            moves=None if moves == [(name, name) for name in names] else tuple(moves),
            absent={name: None for name, stored in fields.items() if stored is None},
            plain=tuple((name, d.decode) for name, d in decoders.items()),
            others=tuple((name, d.decode) for name, d in decoders.items() if d.rescale is None),
            images=tuple((name, d.rescale) for name, d in decoders.items() if d.rescale is not None),
            labels={name: d.label for name, d in decoders.items()},
        )

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_layouts": {},
            "in_place": {},
            "_unmatched": set(self.rules.fields),
            "_tried": 0,
        }


def _placed(error: WdspecError, raw: Mapping[str, Any], field: str | None = None) -> WdspecError:
    return error.at(
        source=raw.get("__source__"), url=raw.get("__url__"), key=raw.get("__key__"), field=field or None
    )
