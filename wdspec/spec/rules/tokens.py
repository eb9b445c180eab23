"""Rules for files of token ids."""

from __future__ import annotations

from wdspec.spec.build import Composition
from wdspec.spec.language.values import SUFFIXES
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.spec import Source


def _suffixes_of(source: Source) -> set[str]:
    """The suffixes of token files that the shards of a source have."""
    names = (text.partition("?")[0].lower() for text in source.shards or ())
    return {suffix for name in names for suffix in SUFFIXES["tokens"] if name.endswith(suffix)}


@rule(
    "E336",
    "token files without the type of their numbers",
    "nanotron's `.ds` files contain only numbers, without their type: `tokens: {dtype: uint16}`. They have no "
    "index either, so samples need a `length`, or documents an `eos`.",
    keys="tokens",
    bad="dataset:\n  - {shards: 'web-{00..09}.ds', tokens: {length: 2048}}\n",
    good="dataset:\n  - {shards: 'web-{00..09}.ds', tokens: {length: 2048, dtype: uint16}}\n",
)
def untyped_tokens(composition: Composition) -> Findings:
    """Sources of `.ds` files that lack `dtype`, or both `length` and `eos`."""
    for leaf, source in composition.models:
        if source.tokens is None or ".ds" not in _suffixes_of(source):
            continue
        at = leaf.node.value_or_self("tokens")
        if source.tokens.dtype is None:
            yield Finding(at, "`.ds` files do not say the type of their numbers", "add `dtype: uint16`")
        elif source.tokens.length is None and source.tokens.eos is None:
            yield Finding(at, "`.ds` files have no index of documents", "add `length: 2048`, or `eos: 0`")


@rule(
    "E337",
    "an end of documents that is not used",
    "With `length`, samples are consecutive tokens, regardless of documents.",
    keys="tokens",
    bad="dataset:\n  - {shards: a.npy, tokens: {length: 2048, eos: 0}}\n",
    good="dataset:\n  - {shards: a.npy, tokens: {eos: 0, dtype: uint16}}\n",
)
def unused_eos(composition: Composition) -> Findings:
    """`tokens` with both `length` and `eos`."""
    for leaf, source in composition.models:
        if source.tokens is not None and source.tokens.length is not None and source.tokens.eos is not None:
            yield Finding(
                leaf.node.value_or_self("tokens"),
                "`eos` ends documents, but `length` cuts samples of one length",
                "remove one of them",
            )


@rule(
    "W385",
    "`tokens` of shards that are no token files",
    "`tokens` is for files of token ids: shards with `format: tokens`, or with the suffix `.bin`, `.npy` or `.ds`. "
    "Other shards ignore it.",
    keys="tokens",
    bad="dataset:\n  - {shards: a.tar, tokens: {length: 2048}}\n",
    good="dataset:\n  - {shards: a.bin, tokens: {length: 2048}}\n",
)
def idle_tokens(composition: Composition) -> Findings:
    """Sources with `tokens` of which no shard is a token file by its name, nor all by `format`."""
    for leaf, source in composition.models:
        if source.tokens is None or source.format == "tokens" or not source.shards:
            continue
        is_plain = all(not text.startswith("@") and "." in text.rpartition("/")[2] for text in source.shards)
        if source.format != "auto" or (is_plain and not _suffixes_of(source)):
            yield Finding(
                leaf.node.key_or_self("tokens"),
                "the shards of this source are no files of token ids",
                "set `format: tokens`, or remove `tokens`",
            )
