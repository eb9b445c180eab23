"""Chat templates: messages → text, and which parts of it the assistant wrote.

Templates are rendered as transformers does (`apply_chat_template`): in Jinja's sandbox, with the same options, filters
and functions. There are three differences, so that a sample is the same on each day, and a text cannot end its turn:

- `strftime_now` writes a date that the spec names, never today's.
- Special tokens inside the texts of messages are broken by a mark, `BREAK`, so that they are not taken for those of the
  template. Marks are halves of surrogate pairs, which no text of a tokenizer has.
- In parts of a content, keys that are null are left out as in messages: Parquet gives all parts the same keys.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from wdspec.base.errors import FieldError, SpecError
from wdspec.spec.language.decoders import library

BREAK = "\udc00"
"""Inside a special token that a message has as text."""
_START, _END = "\udc01", "\udc02"
"""Around what `{% generation %}` contains."""
_NONE = re.compile("[\ud800-\udfff\U0010fffe\U0010ffff]")
"""Code points that are no characters, some of which are marks here."""
_REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of the reasoning in a message. Templates read the first one, or the second."""
_ROLES = {"human": "user", "gpt": "assistant"}
"""Names of roles in messages of the form `{from: human, value: …}`."""
_WORDS = ("first question", "first answer", "second question", "second answer")
"""The texts of the conversation with which templates are tried."""

Message = dict[str, Any]
Span = tuple[int, int]
"""The first character, and the one after the last."""


class Text(NamedTuple):
    """A conversation as text."""

    text: str
    spans: list[Span]
    """What is inside `{% generation %}`."""


class Template:
    """A chat template.

    Args:
        source: its text.
        name: of its file, for messages.
        variables: further values that it reads, such as ``bos_token`` or ``enable_thinking``.
        date: the date that `strftime_now` writes.
        roles: other names of roles in messages, and what they mean.

    Attributes:
        has_generation: whether it says by `{% generation %}` what the assistant wrote.
        reads: the names that it reads from outside.

    Raises:
        SpecError: it is no template, it reads a special token that is not known, or it cannot render a conversation.
    """

    def __init__(
        self,
        source: str,
        name: str,
        variables: Mapping[str, Any],
        date: datetime.date | None = None,
        roles: Mapping[str, str] | None = None,
    ) -> None:
        jinja = library("jinja2", "`chat`")
        self.name, self.source, self._variables = name, source, dict(variables)
        self._roles = roles or {}
        environment = _environment()
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(source, {"strftime_now": self._strftime(date)})
        except jinja.TemplateError as cause:
            line = f", line {cause.lineno}" if isinstance(cause, jinja.TemplateSyntaxError) else ""
            raise SpecError(f"{name}{line} is no chat template: {cause}") from cause
        self.has_generation = any(
            node.name == "mark_generation" for node in tree.find_all(jinja.nodes.ExtensionAttribute)
        )
        self.reads: set[str] = library("jinja2.meta", "`chat`").find_undeclared_variables(tree)
        unknown = sorted(
            each for each in self.reads if each.endswith("_token") and each not in self._variables
        )
        if unknown:
            raise SpecError(
                f"{name} writes `{unknown[0]}`, and nothing says which token that is; `file: FOLDER`, with a folder of "
                f'`transformers`, reads it from there; otherwise write `variables: {{{unknown[0]}: "<s>"}}`'
            )
        self.probe, self._takes_text, self._takes_parts = self._try_out()

    def render(self, messages: Sequence[Message], tools: Any = None, prompt: bool = False) -> Text:
        """Return the text of messages.

        Args:
            messages: those of `read_messages`.
            tools: JSON schemas of the functions that the assistant may call.
            prompt: whether to add what asks for an answer.

        Raises:
            FieldError: the template does not accept them.
        """
        values = {**self._variables, "messages": [*messages], "tools": tools, "documents": None}
        try:
            found: str = self._template.render(add_generation_prompt=prompt, **values)
        except SpecError:
            raise
        except Exception as cause:  # templates are code
            what = str(cause) or type(cause).__name__
            raise FieldError(f"the template {self.name} does not accept the messages: {what}") from cause
        if not self.has_generation:
            return Text(found, [])
        pieces = re.split(f"([{_START}{_END}])", found)
        spans: list[Span] = []
        at, start = 0, 0
        for piece in pieces:
            if piece == _START:
                start = at
            elif piece == _END:
                spans.append((start, at))
            else:
                at += len(piece)
        return Text("".join(pieces[::2]), spans)

    def read_messages(
        self, value: Any, special: re.Pattern[str] | None, what: str = "messages"
    ) -> list[Message]:
        """Return messages as the template takes them.

        Args:
            value: the list of messages: mappings with `role` and `content`, or `from` and `value`.
            special: finds the texts of special tokens, which become plain text.
            what: this is, for messages.

        Raises:
            FieldError: it is no such list.
        """
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if not isinstance(value, (list, tuple)):
            kind = "text" if isinstance(value, str) else f"of type {type(value).__name__}"
            remedy = (
                'such as `[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]`, or name the '
                "field of the question as `prompt` if this is an answer"
            )
            if "prompt" in what:
                remedy = (
                    'such as `[{"role": "user", "content": "Hi"}]`. If the conversation contains the prompt, write '
                    "`loss: last` without `prompt`"
                )
            raise FieldError(
                f"`chat` needs a list of {what}, each with `role` and `content`, and this is {kind}; write messages "
                f"into the data, {remedy}"
            )
        plain = [_plain(message, special) for message in value]
        return [self._read(message, f"{at + 1} of {len(plain)}") for at, message in enumerate(plain)]

    def read_tools(self, tools: Any, special: re.Pattern[str] | None) -> list[Any]:
        """Return JSON schemas of functions as the template takes them."""
        return [_plain(tool, special) for tool in tools]

    def _read(self, written: Any, place: str) -> Message:
        message: Message = written
        if not isinstance(message, dict):
            raise FieldError(
                f"message {place} is no mapping with `role` and `content`, but {str(message)[:60]!r}"
            )
        if "role" not in message and isinstance(message.get("from"), str) and "value" in message:
            message = {"role": _ROLES.get(message["from"], message["from"]), "content": message["value"]}
        message = {key: value for key, value in message.items() if value is not None}
        if not isinstance(message.get("role"), str):
            raise FieldError(f"message {place} has no `role`; its keys are {', '.join(message) or 'none'}")
        message["role"] = self._roles.get(message["role"], message["role"])
        if not message.keys() - {"role", "name"}:
            raise FieldError(f"message {place}, of role `{message['role']}`, has no `content`")
        if message.get("tool_calls") and "tool_calls" not in self.source:
            raise FieldError(
                f"message {place} has `tool_calls`, which the template {self.name} leaves out; take a template that "
                "writes them"
            )
        reasoning = next((message[key] for key in _REASONING if key in message), None)
        if reasoning is not None:
            message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
        if "content" in message:
            message["content"] = self._content(message["content"], place)
        return message

    def _content(self, content: Any, place: str) -> Any:
        """Return text or parts, whichever the template takes."""
        if isinstance(content, list):
            parts = [_without_null(part) if isinstance(part, dict) else part for part in content]
            if self._takes_parts:
                return parts
            texts = [
                part if isinstance(part, str) else part["text"]
                for part in parts
                if isinstance(part, str) or (isinstance(part, dict) and "text" in part)
            ]
            if len(texts) < len(parts):
                raise FieldError(
                    f"message {place} has parts that are no text, which the template {self.name} cannot write; take a "
                    "template for images"
                )
            return "".join(texts)
        if isinstance(content, str) and not self._takes_text:
            return [{"type": "text", "text": content}]
        if not isinstance(content, (str, dict)):
            raise FieldError(f"the `content` of message {place} is {content!r}, and no text")
        return content

    def _try_out(self) -> tuple[list[Message], bool, bool]:
        """Return a conversation that the template accepts, and whether contents may be text, and parts."""
        failure: Exception | None = None
        for count, system in ((4, False), (4, True), (2, False), (2, True)):
            roles = [("user", "assistant")[at % 2] for at in range(count)]
            first = [{"role": "system", "content": "instruction"}] if system else []
            texts: list[Message] = [
                *first, *({"role": role, "content": word} for role, word in zip(roles, _WORDS, strict=False))
            ]  # fmt: skip
            parts: list[Message] = [
                {**each, "content": [{"type": "text", "text": each["content"]}]} for each in texts
            ]
            found: list[str | None] = []
            for messages in (texts, parts):
                try:
                    text = self.render(messages).text
                except FieldError as cause:
                    failure = failure or cause
                    text = ""
                found.append(text if all(word in text for word in _WORDS[:count]) else None)
            if found[0] is not None:
                return texts, True, found[0] == found[1]
            if found[1] is not None:
                return parts, False, True
        why = f": {failure}" if failure else "; it leaves out messages of the roles `user` and `assistant`"
        raise SpecError(
            f"{self.name} cannot write a conversation of a user and an assistant{why}"
        ) from failure

    def _strftime(self, date: datetime.date | None) -> Callable[[str], str]:
        def strftime_now(form: str) -> str:
            if date is None:
                raise SpecError(
                    f"{self.name} writes today's date, so that samples would differ from day to day; write the date "
                    "that they have: `date: 2026-01-31`"
                )
            return date.strftime(form)

        return strftime_now


def _without_null(value: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: each for key, each in value.items() if each is not None}


def _plain(value: Any, special: re.Pattern[str] | None) -> Any:
    """Return a value as JSON has it; special tokens in its texts are broken by a mark.

    Templates are code of others: they do not see objects that have methods.
    """
    if isinstance(value, str):
        if not value.isascii() and (found := _NONE.search(value)):
            raise FieldError(
                f"a text has {found[0]!r}, which is no character: {value[:40]!r}; repair the data"
            )
        if special is None:
            return str(value)
        return special.sub(lambda found: found[0][0] + BREAK + found[0][1:], value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(each, special) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, special) for each in value]
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "OSUbif" and value.ndim < 2:
        return _plain(value.tolist(), special)
    return f"<{type(value).__name__}>"


@cache
def _environment() -> Any:
    """Return Jinja's environment for chat templates, as in `transformers.utils.chat_template_utils`."""
    jinja = library("jinja2", "`chat`")
    sandbox = library("jinja2.sandbox", "`chat`")
    extensions = library("jinja2.ext", "`chat`")

    class Generation(extensions.Extension):  # type: ignore[misc, name-defined]
        """`{% generation %}`: marks what it contains."""

        tags = frozenset({"generation"})

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja.nodes.CallBlock(self.call_method("mark_generation"), [], [], body).set_lineno(line)

        def mark_generation(self, caller: Callable[[], str]) -> str:
            return f"{_START}{caller()}{_END}"

    def raise_exception(message: str) -> None:
        raise jinja.TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None,
               sort_keys: bool = False) -> str:  # fmt: skip
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, extensions.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    return environment


def special_pattern(tokens: Iterable[str]) -> re.Pattern[str]:
    """Return what finds any of these texts, longer ones first."""
    texts = sorted(filter(None, tokens), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, texts)) or "(?!)")
