"""Merging the samples of a shard with those of its partners (`join`) by key, while all of them stream.

    shard      0001 0002 0003 0004 0005      keys have the same order in both parts, and either may lack some
    partner    0001 0002      0004 0005 0006

As long as each sample of the shard meets its partner at the same place, both are read side by side, and nothing is
looked up. At the first sample that does not (0003 above), the headers of the whole partner are read once: from then on
it is known which keys the partner has, and where. So a partner is never missed because it comes later, and a key that
comes in another order than in the shard, or twice, is an error. Reading resumes in the same way: the shard at the
offset in the state, the partner at the place of the first key that it has. Memory is bounded by the keys of one shard.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest

from wdspec.base.errors import ShardError
from wdspec.fields.extensions import is_reserved
from wdspec.formats.compression import Compression
from wdspec.formats.samples import RawSamples
from wdspec.read.partner import Partner, Sample
from wdspec.spec.language.joins import UNJOINED


class JoinedSamples(RawSamples):
    """The samples of a shard, each with the fields of its partners.

    Args:
        shard: the samples of the shard.
        partners: in the order of `join`.
        lookups: in the order of `lookup`; each adds the fields of a row to a sample.
        url: of the shard.
        source: the name of the source; "" for none.
        on_error: as of `RawSamples`.
    """

    def __init__(
        self,
        shard: RawSamples,
        partners: Sequence[Partner],
        lookups: Sequence[Callable[[Sample], None]],
        url: str,
        source: str,
        on_error: Callable[[ShardError], None],
    ) -> None:
        self._shard, self._partners, self._lookups = shard, partners, lookups
        self._url, self._report_to = url, on_error
        self._constants = {"__url__": url, **({"__source__": source} if source else {})}
        self.is_copy = shard.is_copy
        self._raws: Iterator[Sample] = iter(())
        self._place = shard.next_offset, shard.next_index
        """Where the shard was before the sample that is merged."""
        self._has_ended = False

    def __iter__(self) -> Iterator[Sample]:
        self._raws = iter(self._shard)
        alone = self._partners[0] if len(self._partners) == 1 and not self._lookups else None
        if alone is None or not alone.is_aligned or alone.keys is not None:
            return self._merge_all()
        return chain(self._merge_aligned(alone), self._merge_all())

    @property
    def next_offset(self) -> int:
        """After each yield: as of the shard."""
        return self._shard.next_offset

    @next_offset.setter
    def next_offset(self, offset: int) -> None:
        self._shard.next_offset = offset

    @property
    def next_index(self) -> int:
        """After each yield: as of the shard."""
        return self._shard.next_index

    @next_index.setter
    def next_index(self, index: int) -> None:
        self._shard.next_index = index

    def _merge_aligned(self, partner: Partner) -> Iterator[Sample]:
        """Yield samples as long as each meets its only partner, and nothing has to be reported.

        `_merge_all` does the same; this costs half as much, which counts for small samples.
        """
        shard, url, required, loose, last_key = (
            self._shard,
            self._url,
            partner.required,
            partner.errors.loose,
            "",
        )
        (offset, index), shared = self._place, len(self._constants) + 1
        for raw, other in zip_longest(self._raws, partner.samples):
            if raw is None or other is None or other["__key__"] != (key := raw["__key__"]) or loose:
                break
            if required and not required <= other.keys():
                break
            if len(other) == shared + 1:  # one field, whose move takes half as long as a union
                name, value = other.popitem()
                if name in raw:
                    other[name] = value
                    break
                raw[name] = value
            else:
                count = len(raw)
                raw |= other
                if len(raw) != count + len(other) - shared:
                    raw = dict(islice(raw.items(), count))  # as it was, for the error
                    break
                raw["__url__"] = url
            yield raw
            last_key, offset, index = key, shard.next_offset, shard.next_index
        else:
            return
        self._place, partner.last_key = (offset, index), last_key
        if raw is not None:
            self._raws = chain([raw], self._raws)
        if other is not None:
            partner.samples = chain([other], partner.samples)

    def _merge_all(self) -> Iterator[Sample]:
        """Yield the samples that are left."""
        shard, partners, lookups, url = self._shard, self._partners, self._lookups, self._url
        offset, index = self._place
        shared = len(self._constants) + 1
        for raw in self._raws:
            key = raw["__key__"]
            try:
                for partner in partners:
                    if partner.is_aligned:
                        other = next(partner.samples, None)
                        if other is not None and other["__key__"] == key and partner.keys is None:
                            partner.last_key = key  # without the call of a function
                        else:
                            other = partner.compare(key, other)
                    else:
                        other = partner.find(key, raw)
                    if partner.errors.loose:
                        self._report_all(partner.errors.take_loose())
                    if other is None or (partner.required and not partner.required <= other.keys()):
                        self._fill_gap(partner, raw, other)
                        continue
                    count, total = len(raw), len(raw) + len(other) - shared
                    raw |= other
                    raw["__url__"] = url
                    if len(raw) != total:
                        raise _clash(partner, list(raw)[:count], other)
                for lookup in lookups:
                    if UNJOINED not in raw:
                        lookup(raw)
            except ShardError as error:
                if error.place.get("url", url) != url:
                    error.at(partner=url)
                else:
                    start = offset if shard.next_index == index + 1 else None
                    error.at(source=raw.get("__source__"), url=url, key=key, offset=start)
                if any(error is partner.errors.fatal for partner in partners) or error.code in _UNUSABLE:
                    self.broken = error
                self._report_to(error)
            else:
                yield raw
            if self.broken is not None:
                return
            offset, index = shard.next_offset, shard.next_index
        self.broken = shard.broken
        for partner in partners:
            self._report_all(partner.finish())
        self.unjoined = sum(partner.extra for partner in partners)
        self._has_ended = True

    def count_unjoined(self) -> int:
        return sum(partner.count_extra() for partner in self._partners) if self._has_ended else 0

    @property
    def compression(self) -> Compression | None:
        return self._shard.compression

    def kinds(self) -> Mapping[str, str] | None:
        return self._shard.kinds()

    def close(self) -> None:
        self._shard.close()
        for partner in self._partners:
            partner.close()

    def _report_all(self, errors: Iterable[ShardError]) -> None:
        for error in errors:
            error.at(partner=self._url)
            self._report_to(error)

    def _fill_gap(self, partner: Partner, raw: Sample, other: Sample | None) -> None:
        """Complete a sample whose partner is missing, as `missing` says. Raises ShardError if that is an error.

        Args:
            other: the partner if it lacks a field.
        """
        if (fault := partner.take_fault(raw["__key__"])) is not None:
            raise fault
        if partner.options.missing == "skip" or UNJOINED in raw:
            raw[UNJOINED] = None
        elif partner.options.missing == "none":
            for name in partner.options.names:
                raw.setdefault(name, None)
        else:
            lacks, place, remedy = partner.describe_lack(), {}, ""
            if other is None:
                place = partner.next_place
                remedy = _describe_affix(raw["__key__"], str(place.get("partner_key", "")))
                if remedy:
                    lacks += f", but {place['partner_key']!r:.80}"
            else:
                names = ", ".join(f"`{name}`" for name in sorted(partner.required - other.keys()))
                lacks = f"has no {names} of this key"
            raise partner.error(
                f"the shard that is joined {lacks}; {remedy}add it, or set `missing: skip` or `none` in `join`",
                code="D220",
                **place,
            )


def _describe_affix(key: str, other: str) -> str:
    """The rule for keys that removes what one of two keys has before or after the other; empty if there is none."""
    short, long = sorted((key, other), key=len)
    if not short:  # a partner whose next sample has no key
        return ""
    before, found, after = long.partition(short)
    affix = before or after
    if not found or (before and after) or not affix or any(each.isdigit() for each in affix):
        return ""
    if re.search(r"[./]", long):
        return ""
    words = re.escape(affix)
    rule = rf"(?:{words})?([^.]+)\.(.+)" if before else rf"([^.]+?)(?:{words})?\.(.+)"
    return f"write `key: {{regex: '{rule}'}}` in the source if `{affix}` is no part of the key, "


def _clash(partner: Partner, own: Sequence[str], other: Sample) -> ShardError:
    names = [name for name in other if name in own and name not in ("__key__", "__url__", "__source__")]
    name = next((name for name in names if not is_reserved(name)), names[0])
    return partner.error(
        f"both parts of a join have the field `{name}`; rename that of the partner, such as "
        f"`rename: {{other_{name}: {name}}}` in `join`, or choose files by `extensions`, or by `fields` in `join`",
        code="D224",
    )


_UNUSABLE = ("D221", "D222", "D223")
"""Errors after which the parts of a pair cannot be merged."""
