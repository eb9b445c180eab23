"""Rules for harm: code, programs and pickles that may run, secrets, and skips without a limit."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.base.redaction import redact
from wdspec.spec.build import Composition
from wdspec.spec.language.values import PICKLE_DECODERS, SECURE_REFUSES, is_callable_name
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.sources import Draft
from wdspec.spec.tree import ListNode, MapNode, Node, Scalar, locate, scalars
from wdspec.urls.urls import names_command


def decoder_names(leaf: Draft) -> Iterator[tuple[Node, str]]:
    """All decoders that are written in a source, and where."""
    decode = None if leaf.model is None else leaf.model.decode
    written = leaf.node.get("decode")
    if decode is None or written is None:
        return
    steps: list[tuple[int | str, str]] = [*enumerate(decode.names), *decode.fields.items()]
    yield from ((locate(written, (step,)), name) for step, name in steps)


def user_functions(composition: Composition) -> Iterator[tuple[Node, str]]:
    """Where a spec names user functions, and by which key."""
    stage = composition.spec.stage
    keys = ("map", "map_batches", "select", *(["stage"] if stage is None or stage.functions else []))
    for holder in (composition.top, *(leaf.node for leaf in (*composition.leaves, *composition.companions))):
        for key in keys:
            if holder.get(key) is not None:
                yield holder.key(key), f"`{key}`"
    batch = composition.top.get("batch")
    collate = batch.get("collate") if isinstance(batch, MapNode) else None
    for at in () if collate is None else _collating(collate):
        yield at, "the function of `collate`"
    cost = batch.get("cost") if isinstance(batch, MapNode) else None
    if isinstance(cost, Scalar) and isinstance(cost.value, str) and is_callable_name(cost.value):
        yield cost, "the function of `cost`"
    for leaf in (*composition.leaves, *composition.companions):
        for at, name in decoder_names(leaf):
            if ":" in name:
                yield at, f"the decoder `{name}`"


def _collating(collate: Node) -> Iterator[Node]:
    """Where `collate` names functions: the whole value, or those of its fields."""
    ways = [collate]
    if isinstance(collate, MapNode) and "call" not in collate.entries:
        ways = [entry.value for entry in collate.entries.values()]
    for way in ways:
        text = getattr(way.get("call") if isinstance(way, MapNode) else way, "value", None)
        if isinstance(text, str) and ":" in text:
            yield way


@rule(
    "E310",
    "forbidden by WDS_SECURE",
    "With WDS_SECURE=1, a spec cannot run programs (`pipe:`) or user functions (`map`, `map_batches`, `select`, "
    "`stage`, `collate`, decoders), and cannot use `allow`. Any value of the variable has this effect, except empty, "
    "0, false, no and off.",
    keys="secure",
)
def secure_mode_refusals(composition: Composition) -> Findings:
    """User functions, programs and `allow`, wherever they are in the spec."""
    if not composition.variant.secure:
        return
    for holder in (composition.top, *(leaf.node for leaf in (*composition.leaves, *composition.companions))):
        if holder.get("allow") is not None:
            yield _refuse(holder.key("allow"), "`allow`")
        rewrite = holder.get("rewrite")
        for item in rewrite.items if isinstance(rewrite, ListNode) else ():
            yield from _programs(item.get("to") if isinstance(item, MapNode) else None)
    for at, what in user_functions(composition):
        yield _refuse(at, what)
    output = composition.top.get("output")
    for place in (output.get("dir"), output.get("to")) if isinstance(output, MapNode) else (output,):
        yield from _programs(place)
    for leaf in (*composition.leaves, *composition.companions):
        for at, name in decoder_names(leaf):
            if name in SECURE_REFUSES:
                yield _refuse(at, f"the decoder `{name}`")
        shards = leaf.node.get("shards")
        for text in shards.items if isinstance(shards, ListNode) else (shards,):
            yield from _programs(text)


def _programs(node: Node | None) -> Findings:
    text = getattr(node, "value", None)
    if node is not None and isinstance(text, str) and names_command(text):
        yield _refuse(node, "`pipe:`")


def _refuse(at: Node, what: str) -> Finding:
    hint = "unset WDS_SECURE if you trust this spec"
    return Finding(at, f"{what} may run programs or user code, which WDS_SECURE=1 forbids", hint)


@rule(
    "E311",
    "pickle is not allowed",
    "Unpickling can run code that is hidden in the data. It is disabled unless the spec has `allow: [pickle]`.",
    keys="decode",
    bad="dataset:\n  - {shards: a.tar, decode: {meta: pkl}}\n",
    good="allow: [pickle]  # wdspec: ignore=W373\ndataset:\n  - {shards: a.tar, decode: {meta: pkl}}\n",
)
def pickle_consent(composition: Composition) -> Findings:
    """Decoders of pickles in a spec that does not allow them."""
    if "pickle" in composition.spec.allow or "allow" in composition.bad:
        return
    for leaf in (*composition.leaves, *composition.companions):
        for at, name in decoder_names(leaf):
            if name in PICKLE_DECODERS:
                hint = "add `allow: [pickle]` at the top level if you trust the authors of the data"
                yield Finding(at, f"the decoder `{name}` can run code that is hidden in the data", hint)


@rule(
    "W373",
    "pickles are allowed",
    "Unpickling can run code that is hidden in the data. To review such a spec, you must trust everyone who can write "
    "to its shards. `npy`, `npz`, `safetensors`, `json`, `msgpack` and `cbor` can store the same data safely.",
    keys="allow",
    bad="allow: [pickle]\ndataset:\n  - {shards: a.tar, decode: {meta: pkl}}\n",
    good="dataset:\n  - {shards: a.tar, decode: {meta: npz}}\n",
)
def allowed_pickles(composition: Composition) -> Findings:
    """`allow: [pickle]`."""
    if "pickle" in composition.spec.allow:
        hint = "if this is intended, add `# wdspec: ignore=W373`"
        yield Finding(composition.top.entries["allow"].value, "the data of this spec may run code", hint)


@rule(
    "E318",
    "a function in threads",
    "User functions draw reproducible random numbers from torch, numpy and `random`, because no other code uses these "
    "generators while a sample is made. That is impossible in the process of the training loop.",
    keys="kind",
    bad="loader: {workers: 2, kind: threads}\ndataset:\n  - {shards: 'a-{0..9}.tar', map: 'steps:flip'}\n",
    good="loader: {workers: 2}\ndataset:\n  - {shards: 'a-{0..9}.tar', map: 'steps:flip'}\n",
)
def functions_in_threads(composition: Composition) -> Findings:
    """User functions in a spec with reading threads."""
    if composition.spec.loader.kind == "threads":
        for at, what in user_functions(composition):
            yield Finding(at, f"{what} cannot run in reading threads", "remove `kind: threads`")


@rule(
    "W323",
    "a secret in a spec",
    "Specs are shared, logged and archived. Passwords, tokens and signatures belong in the environment, in netrc or "
    "in the login of the store. A variable without a default reads one from the environment.",
    bad="dataset:\n  - shards: https://ann:hunter22@host/a.tar\n",
    good="dataset:\n  - shards: https://host/a.tar\n",
)
def url_secrets(composition: Composition) -> Findings:
    """Texts with a part that would be masked in output."""
    for text in scalars(composition.top):
        if isinstance(text.value, str) and len(text.spans) == 1 and redact(text.value) != text.value:
            hint = "use the environment, netrc or the login of the store"
            yield Finding(text, "this text has a password, token or signature", hint)
    if isinstance(composition.vars, MapNode):
        yield from _secrets_in_variables(composition, composition.vars)


_LEAST_SECRET = 4


def _secrets_in_variables(composition: Composition, vars: MapNode) -> Findings:
    """Values of `vars` that would be masked in a text that uses them."""
    texts = {str(each.value) for each in scalars(composition.top) if len(each.spans) > 1}
    masked = [(text, hidden) for text in texts if (hidden := redact(text)) != text]
    for name, (_, value) in vars.entries.items():
        said = value.value if isinstance(value, Scalar) else None
        if not isinstance(said, str) or len(said) < _LEAST_SECRET:
            continue
        if any(said in text and said not in hidden for text, hidden in masked):
            message = f"the variable `{name[:60]}` has a password, token or signature of a URL"
            hint = f"remove it from `vars`, and set the environment variable `WDS_{name[:60]}`"
            yield Finding(value, message, hint)


MOST = 0.5


@rule(
    "W374",
    "skips without a limit",
    "With `errors: skip`, a source may lose any number of its samples, and training continues with the rest. A budget "
    "ends it when skips are no longer exceptions.",
    keys="errors",
    bad="errors: skip\ndataset:\n  - shards: a.tar\n",
    good="errors: {max_rate: 0.001}\ndataset:\n  - shards: a.tar\n",
)
def unlimited_skips(composition: Composition) -> Findings:
    """Policies that skip without `max_count` and `max_rate`, or half of the samples and more."""
    seen: set[int] = set()
    for leaf, source in composition.models:
        errors = source.errors
        node: Node | None = leaf.node.get("errors") or composition.top.get("errors")
        if node is None or id(node) in seen or not errors.skip:
            continue
        limited = errors.max_count is not None or (errors.max_rate is not None and errors.max_rate < MOST)
        if not limited:
            seen.add(id(node))
            message = "any number of samples may be skipped"
            hint = "write a budget such as `errors: {max_rate: 0.001}`"
            if isinstance(node, MapNode):
                hint = "add a budget such as `max_rate: 0.001`"
            if errors.max_count is None and errors.max_rate is not None:
                said = f"{errors.max_rate:g}"
                message = f"`max_rate: {said}` allows that {errors.max_rate:.0%} of the samples are skipped"
                hint = f"it is a fraction: for {said}%, write `max_rate: {errors.max_rate / 100:g}`"
            yield Finding(node.value_or_self("max_rate"), message, hint)
