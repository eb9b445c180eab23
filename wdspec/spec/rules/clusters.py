"""AIStore: no secrets in a spec, an address to be found, and ETLs only where their failures can be told."""

from __future__ import annotations

from wdspec.spec.compose.source_list import Draft, key_or_self
from wdspec.spec.language.aistore import AIStore, Etl
from wdspec.spec.language.models import Source, Spec
from wdspec.spec.problems.problems import Problems
from wdspec.spec.tree.nodes import Entry, MapNode, Node, scalars

_SECRETS = frozenset({"token", "authn_token", "auth_token", "password", "secret"})


def without_secrets(holder: MapNode, problems: Problems) -> MapNode:
    """The top level or a source without tokens in `aistore`, each of which is a problem that does not show it."""
    node = holder.get("aistore")
    if not isinstance(node, MapNode):
        return holder
    endpoint = node.get("endpoint")
    for address in scalars(endpoint) if endpoint else ():
        if "@" in str(address.value):
            problems.hide(address)
    for name in sorted(_SECRETS & node.entries.keys()):
        key, value = node.entries[name]
        problems.hide(key)
        problems.hide(value)
        hint = "remove it; set AIS_AUTHN_TOKEN, or name a file that only you can read: `token_file: …`"
        problems.add("E220", key, f"`{name}` would be a secret in a file that is shared", hint)
        node = node.without(name)
    return holder.with_entries({**holder.entries, "aistore": Entry(holder.key("aistore"), node)})


def check_clusters(
    spec: Spec, top: MapNode, drafts: list[Draft], has_endpoint: bool, problems: Problems
) -> None:
    """Notes clusters without an address, and ETLs of shards whose ends cannot be told.

    Args:
        drafts: the sources with shards.
        has_endpoint: whether AIS_ENDPOINT is set.
    """
    _check_endpoint(spec.aistore, None, top.get("aistore"), has_endpoint, problems)
    for draft in drafts:
        source = draft.model
        if source is None:
            continue
        _check_endpoint(source.aistore, spec.aistore, draft.node.get("aistore"), has_endpoint, problems)
        etl = _etl(spec, source)
        if etl is None:
            continue
        if source.tar.end == "lenient":
            at = key_or_self(draft.node, "tar")
            message = f"a stream of the ETL `{etl.name}` that breaks off shows it only by the missing end of the tar"
            problems.add("E314", at, message, "remove `tar: {end: lenient}` from this source")
        if source.format not in ("auto", "tar"):
            at = key_or_self(draft.node, "format")
            message = (
                f"an ETL must give tar shards, but `format` is {source.format}: nothing there shows a cut"
            )
            problems.add("E314", at, message, "let the ETL write tar, or remove `etl`")


def _check_endpoint(
    own: AIStore | None, outer: AIStore | None, node: Node | None, has_endpoint: bool, problems: Problems
) -> None:
    if not isinstance(node, MapNode) or own is None or has_endpoint:
        return
    if not own.endpoint and not (outer and outer.endpoint):
        hint = "add `endpoint: http://host:51080`, or set AIS_ENDPOINT where the spec is used"
        problems.add("W104", node, "nothing says where this AIStore is", hint)


def _etl(spec: Spec, source: Source) -> Etl | None:
    """The ETL that takes effect for a source."""
    for holder in (source, spec):
        if "aistore" in holder.model_fields_set:
            if holder.aistore is None:
                return None
            if "etl" in holder.aistore.model_fields_set:
                return holder.aistore.etl
    return None
