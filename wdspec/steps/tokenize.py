"""`tokenize`: text → token ids."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from wdspec.base.amounts import show_value
from wdspec.base.errors import FieldError, LeftOutError, SpecError, in_one_line
from wdspec.base.process import PerProcess
from wdspec.base.workers import parent_watch
from wdspec.spec.language.decoders import library
from wdspec.steps.files import REMOTE, digest_file, find_file, identify_file

Ids = npt.NDArray[Any]
Encode = Callable[[Any, bool], Any]
"""(a text or a pair of texts, whether to add special tokens) → an encoding."""

_tokenizers: dict[tuple[Any, ...], Any] = {}
"""The tokenizers of this process, by file and settings. Forked workers share them."""
_files: dict[tuple[Any, ...], Any] = {}
"""The tokenizers by file, as they were read."""
_is_fast: PerProcess[list[bool]] = PerProcess(list)
"""Whether this process calls `encode_batch_fast`; empty before the first text."""
_OFF = ("false", "off", "no", "n", "0")


def make_tokenizer(
    *,
    file: str,
    eos: str | None = None,
    add_special_tokens: bool = True,
    allow_special: bool = False,
    truncate: int | None = None,
    join: str = "\n",
    pair: bool = False,
    type_ids: bool = False,
) -> Callable[..., Ids | tuple[Ids, Ids]]:
    """Return the function from texts to token ids.

    Args:
        file: a `tokenizer.json`, a folder that has one, or `hf://owner/name@revision`.
        eos: the text of the token that ends each document.
        add_special_tokens: whether to add what the tokenizer adds by itself.
        allow_special: whether the text of special tokens becomes these tokens.
        truncate: the most tokens, with `eos` and special tokens.
        join: what is between several texts.
        pair: whether the last text is the second one of a pair.
        type_ids: whether to return the number of the text of each token, too.

    Returns:
        A function of one text, or of several. It returns ids of shape (length,) as uint16, or as int32 if the tokenizer
        has larger ids; with `type_ids`, a pair of these and of a uint16 array of the same shape. It raises FieldError
        for what is not text, and LeftOutError if there are no tokens.

    Raises:
        SpecError: the file is not a tokenizer, or `eos` is not one token of it.
        UsageError: `tokenizers` is not installed.
    """
    tokenizer = load_tokenizer(file, allow_special)
    end = None if eos is None else _find_token(tokenizer, eos, file)
    added = tokenizer.num_special_tokens_to_add(pair) if add_special_tokens else 0
    most = truncate
    if truncate is not None:
        # What is left of the texts of a document, if something is added to them.
        probe = encode(tokenizer, ("a", "a") if pair else "a", add_special_tokens)
        appends = end is not None and probe.ids[-1:] != [end]
        if truncate <= added + appends:
            raise SpecError(
                f"`truncate: {truncate}` leaves no token for the text, to which {added + appends} are added; write a "
                "larger number"
            )
        if added or pair:
            tokenizer, most = load_tokenizer(file, allow_special, truncate - appends), None
    kind = np.dtype(np.uint16 if _largest_id(tokenizer) < 1 << 16 else np.int32)

    def tokenize(*texts: str) -> Ids | tuple[Ids, Ids]:
        for text in texts:
            if text.__class__ is not str:
                raise _not_text(text)
        if pair:
            *first, second = texts
            encoding = encode(tokenizer, (join.join(first), second), add_special_tokens)
        else:
            encoding = encode(
                tokenizer, texts[0] if len(texts) == 1 else join.join(texts), add_special_tokens
            )
        ids = encoding.ids
        if most is not None and len(ids) > most - (end is not None):
            ids = ids[:most] if end is None or ids[most - 1 : most] == [end] else ids[: most - 1]
        if end is not None and ids[-1:] != [end]:
            ids.append(end)
        if not ids:
            raise LeftOutError("the document has no tokens; `eos` would be one", "empty")
        if not type_ids:
            return np.array(ids, kind)
        types = encoding.type_ids[: len(ids)]
        types += types[-1:] * (len(ids) - len(types)) or [0]
        return np.array(ids, kind), np.array(types[: len(ids)], np.uint16)

    return tokenize


def encode(tokenizer: Any, text: Any, add_special_tokens: bool) -> Any:
    """Return the encoding of a text, or of a pair of texts. It starts no thread, unless the user has asked for some.

    `encode_batch_fast` computes no offsets, which takes a fifth less time; but it starts a thread for each core, even
    for one text, unless `TOKENIZERS_PARALLELISM` is off. In worker processes it is turned off, since their number says
    how many cores to use. The training process may tokenize itself with threads, so nothing is changed there.

    Raises:
        FieldError: the text is not valid Unicode.
    """
    is_fast = _is_fast.value or _choose_fast()
    try:
        if is_fast[0]:
            return tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0]
        if isinstance(text, tuple):
            return tokenizer.encode(*text, add_special_tokens=add_special_tokens)
        return tokenizer.encode(text, add_special_tokens=add_special_tokens)
    except TypeError:  # half of a surrogate pair, which JSON can have
        raise _not_unicode(text) from None


def _choose_fast() -> list[bool]:
    if parent_watch().is_started:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    _is_fast.value.append(os.environ.get("TOKENIZERS_PARALLELISM", "").lower() in _OFF)
    return _is_fast.value


def load_tokenizer(file: str, allow_special: bool = False, truncate: int | None = None) -> Any:
    """Return the tokenizer of a file with some settings, which must not be changed. It is loaded once.

    Args:
        file: a `tokenizer.json`, a folder that has one, or `hf://owner/name@revision`.
        allow_special: whether the text of special tokens becomes these tokens.
        truncate: the most tokens.

    Raises:
        SpecError: the file is not a tokenizer.
        UsageError: `tokenizers` is not installed.
    """
    key = (file, identify_file(file), allow_special, truncate)
    if key not in _tokenizers:
        tokenizer = copy_tokenizer(file)
        if truncate is not None:
            tokenizer.enable_truncation(truncate)
        tokenizer.encode_special_tokens = not allow_special
        _tokenizers[key] = tokenizer
    return _tokenizers[key]


def copy_tokenizer(file: str, user: str = "`tokenize`") -> Any:
    """Return a tokenizer of a file that can be changed, without the truncation and padding that may be set in it.

    All tokenizers of a file share its vocabulary, which takes most of the time and the memory. It is read once.

    Args:
        file: as for `load_tokenizer`.
        user: what needs it, for messages.

    Raises:
        SpecError: the file is not a tokenizer.
        UsageError: `tokenizers` is not installed.
    """
    tokenizers = library("tokenizers", user)
    key = (find_file(file), identify_file(file))
    if key not in _files:
        _files[key] = _read_tokenizer(tokenizers, file)
    whole = _files[key]
    found = tokenizers.Tokenizer(whole.model)  # the same one, not a copy
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if (value := getattr(whole, part)) is not None:
            setattr(found, part, value)
    added = whole.get_added_tokens_decoder()
    found.add_tokens([added[number] for number in sorted(added)])
    if found.get_added_tokens_decoder() != added:  # a file may give its tokens other numbers
        found = tokenizers.Tokenizer.from_str(whole.to_str())
    found.no_truncation()
    found.no_padding()
    return found


def _read_tokenizer(tokenizers: Any, file: str) -> Any:
    try:
        if file.startswith(REMOTE):
            name, _, revision = file.removeprefix(REMOTE).partition("@")
            return tokenizers.Tokenizer.from_pretrained(name, revision=revision)
        digest_file(file)  # says what is wrong with the path
        return tokenizers.Tokenizer.from_file(find_file(file))
    except SpecError:
        raise
    except Exception as cause:  # the library has only this class
        hint = "write the path of a `tokenizer.json`, as `tokenizer.save(path)` of tokenizers writes it"
        if file.startswith(REMOTE):
            hint = "check the name and the revision, or download it and write its path"
        version = tokenizers.__version__
        raise SpecError(
            f"{file} is not a tokenizer that tokenizers {version} can read ({in_one_line(cause)}); {hint}"
        ) from cause


def _find_token(tokenizer: Any, eos: str, file: str) -> int:
    """Return the id of the token with a text."""
    found: int | None = tokenizer.token_to_id(eos)
    if found is None:
        special = [each.content for each in tokenizer.get_added_tokens_decoder().values() if each.special]
        has = f"its special tokens are {_list(special)}" if special else "it has no special tokens"
        raise SpecError(f"`eos: {eos}` is not one token of {file}; {has}")
    return found


def _list(texts: Iterable[str]) -> str:
    shown = [f"`{text}`" for text in texts]
    return ", ".join(shown[:12]) + (", …" if len(shown) > 12 else "")


def _largest_id(tokenizer: Any) -> int:
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)


def _not_text(value: Any) -> FieldError:
    hint = "decode it with `txt`" if isinstance(value, bytes) else "name a field that is text"
    if isinstance(value, list) and value and isinstance(value[0], str):
        hint = (
            "name one of its items, such as `texts[0]`; if these are companions, write `tokenize` in the `make` of the "
            "companions, and `take` the ids here"
        )
    return FieldError(f"`tokenize` needs text, but this is {show_value(value, 60)}; {hint}")


def _not_unicode(text: Any) -> FieldError:
    for each in text if isinstance(text, tuple) else (text,):
        try:
            each.encode()
        except UnicodeEncodeError as error:
            what = f"character {error.start:,} is half of a surrogate pair, U+{ord(each[error.start]):04X}"
            return FieldError(f"`tokenize` needs valid Unicode, but {what}; correct the text")
    return FieldError(f"`tokenize` cannot read {show_value(text, 60)}")
