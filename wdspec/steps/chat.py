"""`chat`: messages → token ids, and labels that have a loss where the assistant wrote.

What the assistant wrote is known in one of two ways:

- The template has `{% generation %}`: what this contains.
- Otherwise by comparing texts: that of the messages before an answer, with the prompt for an answer, must begin that of
  the messages up to the answer. The rest is what the assistant wrote, up to and with the last special token.

Both are tried when the template is loaded, on a conversation of two turns: the token that ends a turn must have a loss,
otherwise a model would never learn to stop.
"""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wdspec.base.amounts import pluralize
from wdspec.base.errors import FieldError, SpecError
from wdspec.spec.language.decoders import library
from wdspec.steps.files import identify_file
from wdspec.steps.templates import BREAK, Message, Span, Template, Text, special_pattern
from wdspec.steps.tokenize import copy_tokenizer

IGNORED = -100
"""The label of a token without loss, as torch's `cross_entropy` ignores it."""
_MARK = "\U0010fffe{}\U0010ffff"
"""The text of a special token that the template wrote. These are no characters of any text."""

ASSISTANTS = frozenset(
    {"assistant", "bot", "model", "gpt", "chatgpt", "chatbot", "ai", "agent", "answer", "response"}
)
"""Names that the assistant has in some data, in lower case."""

Ids = npt.NDArray[np.int64]


class Tokens(NamedTuple):
    """A conversation as tokens."""

    ids: Ids
    labels: Ids
    """The ids, and -100 where there is no loss."""


class Chat:
    """Turns conversations into tokens and labels; made by `make_chat`."""

    def __init__(
        self,
        encoder: Encoder,
        template: Template,
        loss: str,
        image: int | None,
        image_token: str,
        special: re.Pattern[str] | None,
    ) -> None:
        self._encoder, self._template, self._loss = encoder, template, loss
        self._image, self._image_token, self._special = image, image_token, special
        if loss != "all":
            self._check_probe()

    def __call__(
        self,
        messages: Any,
        *,
        prompt: Any = None,
        tools: Any = None,
        images: Any = None,
        image_length: Any = 1,
        images_named: str = "`images`",
    ) -> Tokens:
        """Return the tokens of a conversation.

        Args:
            messages: mappings with `role` and `content`, or `from` and `value`; with a prompt, also an answer as text.
            prompt: messages before them, which have no loss; before an answer as text, also a question as text.
            tools: JSON schemas of functions that the assistant may call: a list, or its JSON text.
            images: the images of the conversation. The text must have as many placeholders; null items have none.
            image_length: how many tokens stand for an image, or a list with one number for each.
            images_named: the fields that have the images, for errors.

        Raises:
            FieldError: they are no messages, the template does not accept them, or it cannot say what the assistant
                wrote.
        """
        read = self._template.read_messages
        if prompt is not None and is_prose(messages):
            messages = [{"role": "assistant", "content": messages}]
            if is_prose(prompt):
                prompt = [{"role": "user", "content": prompt}]
        whole = read(messages, self._special)
        before = [] if prompt is None else read(prompt, self._special, "messages as `prompt`")
        if before and whole[: len(before)] == before:
            raise FieldError(
                "the messages begin with those of `prompt`, which would be there twice; write `loss: last` without "
                "`prompt`"
            )
        whole = before + whole
        if not whole:
            raise FieldError("there are no messages")
        tools = self._read_tools(tools)
        text = self._template.render(whole, tools)
        if self._loss != "all":
            text = Text(text.text, self._find_answers(whole, tools, text, len(before)))
        ids, has_loss = self._encoder.encode(text)
        labels = ids if self._loss == "all" else np.where(has_loss, ids, IGNORED)
        return self._with_images(Tokens(ids, labels), images, image_length, images_named)

    def _read_tools(self, tools: Any) -> Any:
        if isinstance(tools, str):
            try:
                tools = json.loads(tools)
            except ValueError as cause:
                raise FieldError(f"`tools` is no JSON: {cause}") from cause
        if tools is None:
            return None
        if not isinstance(tools, (list, tuple, np.ndarray)):
            raise FieldError(f"`tools` is a list of functions, and this is {type(tools).__name__}")
        if len(tools) == 0:
            return None
        if "tools" not in self._template.reads:
            raise FieldError(
                f"the template {self._template.name} leaves out `tools`; take a template that writes them, or remove "
                "the option"
            )
        return self._template.read_tools(tools, self._special)

    def _find_answers(self, messages: Sequence[Message], tools: Any, text: Text, prompt: int) -> list[Span]:
        """Return the parts of a text that have a loss, in order.

        Args:
            prompt: how many messages have none.
        """
        answers = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
        if not any(at >= prompt for at in answers):
            found = sorted({message["role"] for message in messages[prompt:]})
            other = next((role for role in found if role.lower() in ASSISTANTS), None)
            remedy = "select conversations with an answer, or write `loss: all`"
            if other is not None:
                remedy = f"write `roles: {{{other}: assistant}}` in `make` if this is the assistant"
            raise FieldError(
                f"no message has the role `assistant`, so there is nothing to learn; the roles are "
                f"{', '.join(found) or 'none'}; {remedy}"
            )
        first = answers[-1] if self._loss == "last" else prompt
        spans = text.spans
        if not self._template.has_generation:
            spans = [self._compare(messages, tools, text.text, at) for at in answers if at >= first]
        elif first:
            shared = _shared_length(text.text, self._template.render(messages[:first], tools).text)
            spans = [span for span in spans if span[0] >= shared]
        if not spans:
            raise FieldError(
                f"the template {self._template.name} writes no answer of the assistant inside "
                "`{% generation %}` for these messages"
            )
        return spans

    def _compare(self, messages: Sequence[Message], tools: Any, text: str, at: int) -> Span:
        """Return where in a text the answer is that is message `at`."""
        name, place = self._template.name, f"message {at + 1} of {len(messages)}"
        before = self._template.render(messages[:at], tools, prompt=True).text
        is_last = at + 1 == len(messages)
        upto = text if is_last else self._template.render(messages[: at + 1], tools).text
        answer = upto[len(before) :]
        ends = [found.end() for found in self._encoder.special.finditer(answer)]
        if upto.startswith(before):
            # What follows the end of a turn may depend on whether it is the last one.
            for end in reversed(ends):
                if self._encoder.special.sub("", answer[end:]).strip():
                    break
                if text.startswith(answer[:end], len(before)) and text.startswith(before):
                    return len(before), len(before) + end
            if not ends:
                raise FieldError(
                    f"the template {name} ends {place} with {answer[-30:]!r}, and not with a special token of the "
                    f"tokenizer, so a model would not learn to end its turn; is {name} the template of this "
                    "tokenizer? `loss: all` does not need to know where an answer ends"
                )
            why = "it writes messages in another way when others follow"
        else:
            why = f"the prompt for an answer, {before[-30:]!r}, is not in the text of the messages"
        raise FieldError(
            f"the template {name} does not say what the assistant wrote in {place}: {why}. Put `{{% generation %}}` "
            "before and `{% endgeneration %}` after the answer in the template, or write `loss: last` or `loss: all`"
        )

    def _with_images(self, tokens: Tokens, images: Any, length: Any, named: str) -> Tokens:
        """Return tokens in which each placeholder stands as often as its image has tokens."""
        if self._image is None:
            return tokens
        places = tokens.ids == self._image
        number = count_images(images)
        count = int(places.sum())
        if count != number:
            why = f", as {named} is null in this sample, or missing" if images is None else ""
            if isinstance(images, (list, tuple)) and (lost := len(images) - number):
                why = f", as {lost} of {len(images)} in {named} are null"
            raise FieldError(
                f"the messages have {pluralize(count, 'placeholder')} `{self._image_token}` for "
                f"{pluralize(number, 'image')}{why}; each image needs one"
            )
        if isinstance(images, (list, tuple)) and np.ndim(length) == 1 and len(length) == len(images):
            length = [each for each, image in zip(length, images, strict=True) if image is not None]
        lengths = np.asarray(length)
        if lengths.ndim == 0:
            lengths = lengths.repeat(count)
        if lengths.shape != (count,) or (count and (lengths.dtype.kind not in "iu" or lengths.min() < 1)):
            raise FieldError(
                f"`image_length` is a number of tokens, or a list with one for each image, and this is {length!r:.60} "
                f"for {pluralize(count, 'image')}"
            )
        times = np.ones(len(places), np.int64)
        times[places] = lengths
        labels = np.where(places, IGNORED, tokens.labels)
        return Tokens(np.repeat(tokens.ids, times), np.repeat(labels, times))

    def _check_probe(self) -> None:
        """Check on a conversation of two turns that the end of each turn has a loss."""
        template, messages = self._template, self._template.probe
        text = template.render(messages)
        ends = self._encoder.special
        try:
            spans = self._find_answers(messages, None, Text(text.text, text.spans), 0)
        except FieldError as cause:
            raise SpecError(f"`chat`: {cause.message}") from cause
        answers = [message for message in messages if message["role"] == "assistant"]
        for message in answers[-1:] if self._loss == "last" else answers:
            content = message["content"]
            word = content if isinstance(content, str) else content[0]["text"]
            start = text.text.index(word)
            inside = next((span for span in spans if span[0] <= start < span[1]), None)
            if inside is None:
                raise SpecError(
                    f"`chat`: `{{% generation %}}` of {template.name} does not contain what the assistant wrote"
                )
            if not template.has_generation:
                self._check_head(messages[: messages.index(message)], text.text[inside[0] : start])
            written = text.text[inside[0] : inside[1]]
            if not re.search(f"(?:{ends.pattern})\\s*\\Z", written):
                raise SpecError(
                    f"`chat`: an answer ends with {written[-30:]!r}, and not with a special token of the tokenizer "
                    f"that has a loss, so a model would not learn to end its turn. Is {template.name} the template of "
                    "this tokenizer? Put the token inside `{% generation %}`, or write `loss: all`"
                )

    def _check_head(self, before: Sequence[Message], head: str) -> None:
        """Check that what comes before the text of an answer is what a model is to write, and not the prompt for it.

        Args:
            before: the messages before the answer.
            head: what the template adds before the text of the answer, and would be trained. After the prompt for an
                answer, this is a part of the answer, such as `<think>`. Without one, it is what should be the prompt.
        """
        render = self._template.render
        if head.strip() and render(before, prompt=True).text == render(before).text:
            raise SpecError(
                f"`chat`: the template {self._template.name} has no prompt for an answer, so {head!r} would be trained "
                "before each answer. Write it where `{% if add_generation_prompt %}` asks for it, at the end of the "
                "template, or put `{% generation %}` before and `{% endgeneration %}` after the answer"
            )


def _shared_length(text: str, other: str) -> int:
    """Return how many characters two texts begin with that are the same."""
    if text.startswith(other):
        return len(other)
    pairs = enumerate(zip(text, other, strict=False))
    return next((at for at, (one, two) in pairs if one != two), len(text))


def is_prose(value: Any) -> bool:
    """Return whether a value is text, and not that of a list in JSON."""
    return isinstance(value, str) and not re.match(r"\s*\[\s*[\]{]", value)


def count_images(images: Any) -> int:
    """Return how many images a value has: the items of a list that are not null, otherwise one; none if it is null."""
    return sum(each is not None for each in (images if isinstance(images, (list, tuple)) else [images]))


class Encoder:
    """Turns rendered conversations into ids.

    Special tokens that the template wrote are replaced by texts that nothing else has, and the tokenizer takes special
    tokens for plain text. So those that a message has as text stay text, and all other text has the same ids as always.

    Args:
        file: a file of `tokenizers`.
        names: texts of further special tokens.

    Attributes:
        special: finds the special tokens in a text.

    Raises:
        SpecError: it is no such file, or it has no special tokens.
    """

    def __init__(self, file: str, names: Iterable[str]) -> None:
        tokenizer = copy_tokenizer(file, "`chat`")
        tokenizer.post_processor = (
            None  # the template writes its tokens; it would cut spaces from the offsets
        )
        added = {each.content: each for each in tokenizer.get_added_tokens_decoder().values()}
        self.special_ids: dict[str, int] = {
            text: tokenizer.token_to_id(text) for text, token in added.items() if token.special
        }
        for text in names:
            if text and (number := tokenizer.token_to_id(text)) is not None:
                self.special_ids[text] = number
        self.added_ids = {text: tokenizer.token_to_id(text) for text in added} | self.special_ids
        if not self.special_ids:
            raise SpecError(
                f"`chat`: {file} has no special tokens, so no token can end a turn; add those of the template to the "
                "tokenizer"
            )
        self.special = special_pattern(self.special_ids)
        self._marks = {text: _MARK.format(number) for text, number in self.special_ids.items()}
        tokenizer.encode_special_tokens = True
        plain = library("tokenizers", "`chat`").AddedToken
        flags = ("lstrip", "rstrip", "single_word")
        tokenizer.add_tokens(
            [
                plain(mark, normalized=False, special=False,
                      **({flag: getattr(added[text], flag) for flag in flags} if text in added else {}))
                for text, mark in self._marks.items()
            ]
        )  # fmt: skip
        last = max(tokenizer.get_vocab(with_added_tokens=True).values())
        self._table = np.arange(last + 1)
        for text, mark in self._marks.items():
            self._table[tokenizer.token_to_id(mark)] = self.special_ids[text]
        self._tokenizer = tokenizer

    def encode(self, text: Text) -> tuple[Ids, npt.NDArray[np.bool_]]:
        """Return the ids of a text, and which of them are in its spans, at least in part.

        Raises:
            FieldError: the tokenizer cannot write the text of a special token as plain text.
        """
        ends = [0, *chain.from_iterable(text.spans), len(text.text)]
        pieces = [self._mark(text.text[start:end]) for start, end in pairwise(ends)]
        found = self._tokenizer.encode("".join(pieces), add_special_tokens=False)
        raw = np.array(found.ids, np.int64)
        if BREAK in text.text:
            self._check_plain(text.text, raw)
        starts, stops = np.array(found.offsets, np.int64).reshape(-1, 2).T
        places = [0, *accumulate(map(len, pieces))]
        inside = np.zeros(len(raw), np.bool_)
        for first, last in zip(places[1::2], places[2::2], strict=False):
            inside |= (starts < last) & (stops > first)
        return self._table[raw], inside

    def _mark(self, text: str) -> str:
        return self.special.sub(lambda found: self._marks[found[0]], text).replace(BREAK, "")

    def _check_plain(self, text: str, raw: Ids) -> None:
        for special, number in self.special_ids.items():
            if number in raw and special[0] + BREAK + special[1:] in text:
                raise FieldError(
                    f"a message has {special!r} as text, which the tokenizer turns into its special token even so; "
                    "remove it from the data, or write `allow_special: true`"
                )


class Folder(NamedTuple):
    """What a folder of `transformers` says about conversations."""

    tokenizer: str
    """The path of its file of `tokenizers`."""
    tokens: Mapping[str, str]
    """Names of special tokens, such as `eos_token`, and their texts."""
    template: str | None
    """The text of its chat template."""
    template_name: str


def read_folder(path: str) -> Folder:
    """Read the files of a folder of `transformers`, or a single file of `tokenizers`, which has no template.

    Raises:
        SpecError: a file is missing, or is no JSON.
    """
    place = Path(path)
    if not place.is_dir():
        return Folder(path, {}, None, "")
    config: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        config |= _read_json(place / name)
    tokens = {key: _token_text(value) for key, value in config.items() if key.endswith("_token")}
    named = {key: text for key, text in tokens.items() if text is not None}
    template, name = place / "chat_template.jinja", "chat_template.jinja"
    if template.exists():
        return Folder(str(place / "tokenizer.json"), named, template.read_text("utf-8"), name)
    found: Any = _read_json(place / "chat_template.json").get("chat_template")
    beside = "tokenizer_config.json" if found is None else "chat_template.json"
    found = config.get("chat_template") if found is None else found
    if isinstance(found, list):
        found = {each["name"]: each["template"] for each in found}.get("default")
    return Folder(str(place / "tokenizer.json"), named, found, f"`chat_template` of {beside}")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as cause:
        raise SpecError(f"`chat`: cannot read {path}: {cause}") from cause
    return found if isinstance(found, dict) else {}


def _token_text(value: Any) -> str | None:
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def make_chat(
    *,
    file: str | os.PathLike[str],
    template: str | os.PathLike[str] | None = None,
    loss: str = "assistant",
    image_token: str | None = None,
    allow_special: bool = False,
    variables: Mapping[str, Any] | None = None,
    roles: Mapping[str, str] | None = None,
    date: datetime.date | None = None,
) -> Chat:
    """Return a function that turns conversations into token ids and labels.

    Args:
        file: a file of `tokenizers`, or a folder of `transformers`.
        template: a file with a chat template; without it, that of the folder.
        loss: `assistant` for all answers, `last` for the last one, `all` for all tokens.
        image_token: the text of the token that stands for an image.
        allow_special: whether special tokens inside messages become these tokens, rather than text.
        variables: further values that the template reads, such as `enable_thinking`.
        roles: other names of roles in the messages, such as `{"bot": "assistant"}`.
        date: the date that a template writes as today's.

    Raises:
        SpecError: the files cannot be read, the template does not say what the assistant wrote, or its tokens are not
            those of the tokenizer.
        ValueError: there is no such loss.

    Example:
        >>> from wdspec.steps.chat import make_chat
        >>> chat = make_chat(file="Qwen2.5-0.5B", template="chat.jinja")       # doctest: +SKIP
        >>> ids, labels = chat([{"role": "user", "content": "Hi"},
        ...                     {"role": "assistant", "content": "Hello!"}])   # doctest: +SKIP
    """
    if loss not in ("assistant", "last", "all"):
        raise ValueError(f"`loss` is `assistant`, `last` or `all`, not {loss!r}")
    folder = read_folder(os.path.expanduser(file))
    source, name = folder.template, folder.template_name
    if template is not None:
        source, name = _read(os.path.expanduser(template), "template"), Path(template).name
    if source is None:
        raise SpecError(
            f"`chat`: {file} has no chat template; write `template: chat.jinja`, with a file that is one"
        )
    texts = tuple(sorted(folder.tokens.values()))
    encoder = _load_encoder(folder.tokenizer, texts, identify_file(folder.tokenizer))
    image = None
    if image_token is not None and (image := encoder.added_ids.get(image_token)) is None:
        raise SpecError(
            f"`chat`: the tokenizer has no token `{image_token}` for `image_token`; write the text of one of its "
            "added tokens"
        )
    broken = None if allow_special else special_pattern(encoder.special_ids.keys() - {image_token})
    rendered = Template(source, name, {**folder.tokens, **(variables or {})}, date, roles)
    return Chat(encoder, rendered, loss, image, image_token or "", broken)


@lru_cache(maxsize=4)
def _load_encoder(file: str, names: tuple[str, ...], state: tuple[int, ...]) -> Encoder:
    """Return the encoder of a file; `state` changes if the file does."""
    return Encoder(file, names)


def _read(path: str, what: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except FileNotFoundError:
        raise SpecError(f"`chat`: the {what} {path} does not exist; correct its path") from None
    except (OSError, ValueError) as cause:
        raise SpecError(f"`chat`: the {what} {path} cannot be read: {cause}") from cause
