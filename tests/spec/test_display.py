"""How specs show themselves: in a line, and as a table in notebooks."""

from __future__ import annotations

from pathlib import Path

import wdspec
from wdspec.base.amounts import LARGEST
from wdspec.spec.load import load

SPEC = {
    "name": "pages",
    "batch": 8,
    "epoch": 100_000,
    "dataset": [
        {"shards": "s3://b/a-{000..999}.tar", "weight": 2, "decode": {"jpg": "rgb8"}},
        {
            "shards": "https://h/<b>.tar?X-Amz-Signature=0123456789abcdef",
            "name": "b",
            "weight": 1,
        },
    ],
}


def test_the_repr_of_a_spec_is_one_line() -> None:
    spec = load(SPEC)
    shown = "<Spec pages: sources a of s3://b/a-{000..999}.tar and b of https://h/<b>.tar"
    assert repr(spec).startswith(shown)
    assert repr(spec).endswith(", batch 8, epoch 100,000>")
    assert str(spec) == repr(spec)
    assert repr(spec.sources[0]) == "<Source a: weight 2, decode {jpg: rgb8}, shards s3://b/a-{000..999}.tar>"
    assert "0123456789abcdef" not in repr(spec) + spec._repr_html_()


def test_a_notebook_shows_a_table_of_the_sources() -> None:
    html = load(SPEC)._repr_html_()
    assert html.startswith("<b>pages</b>: batch <code>8</code>, epoch <code>100,000</code><table>")
    assert "<td>a</td><td>s3://b/a-{000..999}.tar</td><td>weight 2</td><td>{jpg: rgb8}</td>" in html
    assert "https://h/&lt;b&gt;.tar" in html


def test_many_sources_are_counted() -> None:
    shown = repr(load({"dataset": [{"shards": f"{name}.tar"} for name in "abcdef"]}))
    assert shown == "<Spec: sources a of a.tar and b of b.tar and c of c.tar and 3 more>"


def test_a_notebook_shows_plans_pipelines_and_loaders(tmp_path: Path) -> None:
    (tmp_path / "a-0.tar").write_bytes(bytes(1024))
    spec = {"dataset": [{"name": "<a>", "shards": f"{tmp_path}/a-0.tar"}], "batch": 8, "epoch": 64}
    shown = "ranks <code>1</code>, workers <code>1</code>, global batch <code>8</code>, epoch <code>64 samples</code>"
    for thing, title in (
        (wdspec.plan(spec, ranks=1, workers=1), "plan"),
        (wdspec.compile(spec, rank=0, world_size=1), "SpecPipeline"),
        (wdspec.loader(spec, num_workers=1, rank=0, world_size=1), "Loader"),
    ):
        html = thing._repr_html_()
        assert html.startswith(f"<b>{title}</b>: ")
        assert shown in html
        assert "<td>&lt;a&gt;</td><td>1</td><td>100.00%</td><td>1,000</td><td>8</td>" in html


def test_a_notebook_shows_the_largest_of_many_sources() -> None:
    sources = [{"name": f"s{n:03d}", "shards": f"/x/{n}.tar", "weight": n + 1} for n in range(100)]
    html = load({"dataset": sources})._repr_html_()
    assert html.count("<tr>") == 1 + LARGEST + 1
    assert "s099" in html
    assert "s000" not in html
    assert "<td>… and 80 more</td>" in html
