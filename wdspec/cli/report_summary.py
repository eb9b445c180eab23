"""A draft of the public summary of training content (EU AI Act), from what a run has read.

It claims no more than the records say. What is missing is named in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wdspec.base.amounts import number, percent
from wdspec.cli.report_facts import ReadReport, sources_of

MISSING = "**To be filled in.**"
ORIGINS = {
    "public": ("2.1", "Publicly available datasets"),
    "licensed": ("2.2.1", "Datasets commercially licensed by rightsholders or their representatives"),
    "third_party": ("2.2.2", "Private datasets obtained from other third parties"),
    "crawled": ("2.3", "Data crawled and scraped from online sources"),
    "users": ("2.4", "User data"),
    "synthetic": ("2.5", "Synthetic data"),
    "other": ("2.6", "Other sources of data"),
}
"""`meta: {origin: …}` of a source → the section of the template that it belongs to."""
QUESTIONS = {
    "2.1": "Modality, nature and period of the content; how it was selected. Large datasets are named with a link.",
    "2.2.1": "Whether there are such agreements, and for which modalities.",
    "2.2.2": "Modality and nature of the content; the datasets that are known to the public, with a link.",
    "2.3": "Crawlers and their operators, purposes and behaviour; period of collection; kinds of sites; the most "
    "relevant domain names.",
    "2.4": "Services and products whose user data was used, and modalities.",
    "2.5": "Modality; the models that made the data, if they are general-purpose models on the market, and others.",
    "2.6": "Description of these sources.",
}
"""Section → what it asks for of each source, in our words."""


def _share(report: ReadReport, name: str, kind: str) -> float | None:
    total = sum(each.get(kind, 0) for each in report.sources.values())
    amount = report.sources[name].get(kind)
    return None if not total or amount is None else amount / total


def summary_of(report: ReadReport, record: Mapping[str, Any], model: str | None = None) -> str:
    """Return a draft of the public summary of training content, as Markdown.

    The sections are those of the template of the AI Office (Commission communication C(2025) 8311, for Article 53(1)(d)
    of Regulation (EU) 2024/1689). The text of the template is binding, and asks for more.

    Args:
        report: the sums over the records.
        record: the newest record.
        model: the name of the model.
    """
    entries = sources_of(record)
    lines = [
        "# Public summary of training content: draft",
        "",
        "This draft was made from the records of one training run. It is not complete, and not a statement of "
        "compliance: compare it with the template of the AI Office, and fill in what is marked. Other stages of "
        "training, and data that other tools read, are not in it.",
        "",
        "## 1. General information",
        "",
        "### 1.1 Provider identification",
        "",
        f"- Provider, contact, authorised representative: {MISSING}",
        "",
        "### 1.2 Model identification",
        "",
        f"- Model and versions: {model or MISSING}",
        f"- Models that it is a modification of: {MISSING}",
        f"- Date of placement on the Union market: {MISSING}",
        "",
        "### 1.3 Modalities, overall training data size and other characteristics",
        "",
    ]
    for kind, unit in (("samples", "samples"), ("tokens", "tokens"), ("bytes", "bytes read")):
        known = [each[kind] for each in report.sources.values() if kind in each]
        if known:
            part = (
                ""
                if len(known) == len(report.sources)
                else f" (of {len(known)} of {len(report.sources)} sources)"
            )
            lines.append(f"- Data of this run: {sum(known):,.0f} {unit}{part}")
    lines += [
        f"- Modalities, and the size of each in the ranges of the template: {MISSING}",
        f"- Latest date of acquisition of the data; whether it is still collected: {MISSING}",
        f"- Languages and other characteristics: {MISSING}",
        "",
        "## 2. List of data sources",
        "",
    ]
    placed = {name: str((entry.get("meta") or {}).get("origin", "")) for name, entry in entries.items()}
    for origin, (section, title) in ORIGINS.items():
        if section == "2.2.1":
            lines += ["### 2.2 Private non-publicly available datasets obtained from third parties", ""]
        hashes = "#" * (2 + section.count("."))
        lines += [f"{hashes} {section} {title}", ""]
        names = [name for name in report.sources if placed.get(name) == origin]
        lines += _table(report, entries, names) if names else ["No source of the spec has this origin.", ""]
        lines += [f"{MISSING} {QUESTIONS[section]}", ""]
    if unknown := [name for name in report.sources if placed.get(name) not in ORIGINS]:
        lines += [
            "### Sources without an origin",
            "",
            f"Say where each belongs: `meta: {{origin: …}}` in the spec ({', '.join(ORIGINS)}).",
            "",
            *_table(report, entries, unknown),
        ]
    lines += [
        "## 3. Data processing aspects",
        "",
        "### 3.1 Respect of reservation of rights from the text and data mining exception or limitation",
        "",
        f"{MISSING} Measures taken before and during collection to identify and comply with reservations of rights.",
        "",
        "### 3.2 Removal of illegal content",
        "",
        f"{MISSING} Measures taken to avoid or remove illegal content.",
        "",
        "### 3.3 Other information",
        "",
        *_selections(entries),
        f"- Order of the run: `{report.digest}`; {report.batches:,} steps.",
        *(f"- {said[0].upper()}{said[1:]}." for said in report.lost),
    ]
    if len(report.ranks) < report.of:
        lines.append(
            f"- The records are of {len(report.ranks)} of {report.of} canonical ranks: all numbers are too small."
        )
    return "\n".join(lines) + "\n"


def _table(report: ReadReport, entries: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    rows = []
    has_tokens = all("tokens" in each for each in report.sources.values() if each.get("samples"))
    for name in names:
        entry, amounts = entries.get(name, {}), report.sources[name]
        share = _share(report, name, "tokens" if has_tokens else "samples")
        cells = [
            name,
            entry.get("homepage") or "?",
            entry.get("license") or "?",
            entry.get("revision") or "?",
            "?" if (samples := amounts.get("samples")) is None else number(samples),
            "?" if (tokens := amounts.get("tokens")) is None else number(tokens),
            "?" if share is None else percent(share),
        ]
        rows.append(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |")
    return [
        "| source | page | license | version | samples | tokens | share |",
        "|--|--|--|--|--|--|--|",
        *rows,
        "",
    ]


def _selections(entries: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield what the spec leaves out of each source."""
    for name, entry in entries.items():
        keys = [key for key in ("where", "subset", "keys", "exclude", "select") if entry.get(key)]
        if keys:
            yield f"- `{name}`: the spec leaves out samples ({', '.join(f'`{key}`' for key in keys)})."
