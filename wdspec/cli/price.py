"""`wdspec price`: what reading costs, by a list of prices of stores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import click

from wdspec.advice.explanation import explain_spec
from wdspec.advice.traffic import LOCAL, Traffic, find_traffic
from wdspec.base.errors import UsageError, did_you_mean
from wdspec.cli.output import Block, Row, Table, Warning, pluralize, show_report, size
from wdspec.cli.spec_options import SpecChoice, choosing, topology_options
from wdspec.spec.files import read_from_disk, reason_of
from wdspec.spec.problems import Problems, describe, error_for
from wdspec.spec.tree import MapNode, Node, Origin, Scalar, plain
from wdspec.spec.validation import refuse_key
from wdspec.spec.yaml import MAX_BYTES, decode_text, parse

_UNITS = {
    "bytes": {
        "B": 1,
        "kB": 10**3,
        "MB": 10**6,
        "GB": 10**9,
        "TB": 10**12,
        "MiB": 2**20,
        "GiB": 2**30,
        "TiB": 2**40,
    },
    "requests": {"request": 1, "1000": 10**3, "10000": 10**4, "1000000": 10**6},
}
"""Of which amounts a price may be, by the key that it is for."""
_PRICE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:/|per\s)\s*([0-9_,]*[0-9A-Za-z]+)")


@click.command()
@choosing
@topology_options
@click.option(
    "--prices", "path", metavar="FILE", required=True, help="A YAML file with the prices of stores."
)
@click.option("--epochs", type=click.IntRange(min=1), default=1, show_default=True, help="Epochs of a run.")
def price(
    choice: SpecChoice, form: str, ranks: int | None, workers: int | None, path: str, epochs: int
) -> int:
    """Show what reading the shards of a spec costs, per epoch and per run: bytes that leave a store, and requests.

    The sizes of shards come from the file of `wdspec stats` that the spec names, or from its lock (`wdspec lock`).
    The price list names stores by the start of their URLs; the longest one that matches counts:

    \b
      currency: USD
      stores:
        "s3://": {bytes: 0.09 per GB, requests: 0.0004 per 1000}
        "s3://near-bucket": {requests: 0.0004 per 1000}

    \b
    Example:
      wdspec price train.yaml --prices prices.yaml --epochs 3

    Exit code: 1 if it is unknown what is read of a source, or how many requests a store with a price for them gets.
    """
    prices = _read_prices(path)
    explanation = explain_spec(choice.load(), ranks, workers, 0, probe=False)
    traffic = find_traffic(explanation)
    if traffic is None:
        raise UsageError(
            "the sizes of the shards are not known; run `wdspec lock SPEC`, or `wdspec stats SPEC -o stats.json` and "
            "write `stats: stats.json`"
        )
    if epochs > 1 and traffic.per != "epoch":
        raise click.UsageError("the spec is endless (no `epoch`), so --epochs has no meaning")
    report = PriceReport(traffic, prices, epochs)
    show_report(report, form)
    return int(bool(traffic.unknown or report.uncounted))


class StorePrice(NamedTuple):
    """The prices of a store."""

    byte: Decimal = Decimal(0)
    request: Decimal = Decimal(0)


class Prices(NamedTuple):
    """A list of prices."""

    currency: str
    stores: Mapping[str, StorePrice]

    def of(self, store: str) -> StorePrice | None:
        """The price of a store: that of the longest start of its URL."""
        starts = [each for each in self.stores if store.startswith(each)]
        return self.stores[max(starts, key=len)] if starts else None


@dataclass(frozen=True)
class PriceReport:
    """What reading costs."""

    traffic: Traffic
    prices: Prices
    epochs: int

    @property
    def uncounted(self) -> list[str]:
        """Stores with a price of requests, whose number is unknown."""
        return [
            name
            for name, each in self.traffic.stores.items()
            if each.requests() is None and (found := self.prices.of(name)) is not None and found.request
        ]

    def cost(self, store: str, epochs: float) -> Decimal | None:
        """What a run of some epochs costs in a store; None without a price."""
        found, traffic = self.prices.of(store), self.traffic.stores[store]
        if store == LOCAL:
            return Decimal(0)
        if found is None:
            return None
        requests = Decimal(traffic.requests(epochs) or 0)
        return Decimal(traffic.fetched_bytes(epochs)) * found.byte + requests * found.request

    def blocks(self) -> Iterator[Block]:
        traffic, currency = self.traffic, self.prices.currency
        runs = [(f"first {traffic.per}", 1)]
        runs += [(f"{self.epochs} epochs", self.epochs)] if self.epochs > 1 else []
        rows: list[Row] = []
        for title, epochs in runs:
            for name, each in traffic.stores.items():
                requests, cost = each.requests(epochs), self.cost(name, epochs)
                rows.append(
                    (
                        title,
                        name,
                        size(each.fetched_bytes(epochs)),
                        "?" if requests is None else f"{round(requests):,}",
                        "no price" if cost is None else f"{cost:,.4f}",
                    )
                )
            total = sum((self.cost(name, epochs) or Decimal(0)) for name in traffic.stores)
            rows.append((title, "all", size(traffic.fetched_bytes(epochs)), "", f"{total:,.4f}"))
        yield Table(("of", "store", "bytes>", "requests>", f"{currency}>"), rows)
        if cached := traffic.cached_part(self.epochs):
            yield f"{cached:.1%} of the bytes of {pluralize(self.epochs, 'epoch')} are read from the cache"
        unpriced = [name for name in traffic.stores if self.cost(name, 1) is None]
        if unpriced:
            yield Warning(f"the price list has no price of {', '.join(unpriced)}")
        if self.uncounted:
            yield Warning(
                f"the number of requests to {', '.join(self.uncounted)} is unknown, and counts as 0"
            )
        if traffic.unknown:
            yield Warning(
                f"what is read of {traffic.unknown_in_words} is unknown, and counts as 0{traffic.remedy}"
            )

    def as_json(self) -> dict[str, Any]:
        def describe_run(epochs: int) -> dict[str, Any]:
            stores = self.traffic.stores.items()
            costs = {name: self.cost(name, epochs) for name, _ in stores}
            return {
                "epochs": epochs,
                "cost": float(sum((each or Decimal(0)) for each in costs.values())),
                "cached": round(self.traffic.cached_part(epochs), 6),
                "stores": [
                    {
                        "store": name,
                        "bytes": round(each.fetched_bytes(epochs)),
                        "requests": None if (count := each.requests(epochs)) is None else round(count),
                        "cost": None if (cost := costs[name]) is None else float(cost),
                    }
                    for name, each in stores
                ],
            }

        runs = [describe_run(epochs) for epochs in dict.fromkeys((1, self.epochs))]
        return {
            "currency": self.prices.currency,
            "sizes": self.traffic.by,
            "per": self.traffic.per,
            "runs": runs,
            "unknown": self.traffic.unknown,
        }


def _read_prices(path: str) -> Prices:
    """Read a list of prices. Raises SpecError with every problem and its place."""
    try:
        data = read_from_disk(path, False, MAX_BYTES)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {reason_of(error)}") from None
    problems = Problems()
    text = decode_text(data, path, problems, kind="price list")
    tree = None if text is None else parse(text, Origin(path, "", text), problems)
    prices = _prices_of(tree, problems) if tree is not None else None
    errors = problems.sorted()
    if errors or prices is None:
        raise error_for(errors)
    return prices


def _prices_of(tree: Node, problems: Problems) -> Prices | None:
    form = 'write `currency: USD` and `stores: {"s3://": {bytes: 0.09 per GB, requests: 0.0004 per 1000}}`'
    if not isinstance(tree, MapNode):
        problems.add("E202", tree, f"a price list is a map, but this is {describe(plain(tree))}", form)
        return None
    _refuse_others(tree, ("currency", "stores"), problems)
    stores, found = tree.get("stores"), dict[str, StorePrice]()
    if not isinstance(stores, MapNode) or not stores.entries:
        problems.add("E206", tree.value_or_self("stores"), "the price list has no `stores`", form)
        return None
    for name, entry in stores.entries.items():
        if not isinstance(entry.value, MapNode):
            problems.add("E202", entry.value, f"expected a map with the prices of `{name}`", form)
            continue
        _refuse_others(entry.value, tuple(_UNITS), problems)
        amounts = {key: _read_price(entry.value, key, problems) for key in _UNITS}
        found[name] = StorePrice(amounts["bytes"], amounts["requests"])
    currency = tree.get("currency")
    return Prices(str(currency.value) if isinstance(currency, Scalar) else "", found)


def _refuse_others(node: MapNode, known: tuple[str, ...], problems: Problems) -> None:
    for name, entry in node.entries.items():
        if name not in known:
            hint = did_you_mean(name, known) or f"the keys here are {', '.join(known)}"
            refuse_key(name, entry, "in a price list", hint, problems)


def _read_price(node: MapNode, key: str, problems: Problems) -> Decimal:
    """The price of one byte or one request; 0 without the key."""
    value, units = node.get(key), _UNITS[key]
    if value is None:
        return Decimal(0)
    match = _PRICE.fullmatch(str(value.value).strip()) if isinstance(value, Scalar) else None
    unit = "" if match is None else match[2].replace(",", "").replace("_", "")
    if match is None or unit not in units:
        example = "0.09 per GB" if key == "bytes" else "0.0004 per 1000"
        seen = describe(plain(value)) if match is None else f"`{match[2]}`, which is no unit here"
        hint = f"write for example `{example}`; the units are {', '.join(units)}"
        problems.add("E202", value, f"`{key}` takes a price per unit, but this is {seen}", hint)
        return Decimal(0)
    return Decimal(match[1]) / units[unit]
