"""Layers without effect are warnings, also when a spec is loaded: hidden defaults, bases and lists of sources."""

import warnings

import pytest

import wdspec


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def warnings_of(spec, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wdspec.load(spec, **options)
    problems = wdspec.validate(spec, **options)
    assert sorted(str(each.message) for each in caught) == sorted(map(str, problems))
    return problems


ENVIRONMENT = (
    "dataset:\n  - {name: a, shards: a.tar%s}\n  - {name: b, shards: b.tar%s}\nenvironments:\n  small:\n%s\n"
)


@pytest.mark.parametrize(
    ("own", "overlay", "is_hidden"),
    [
        ((", shuffle: 5", ", shuffle: 6"), "    defaults: {shuffle: 7}", True),
        ((", shuffle: 5", ""), "    defaults: {shuffle: 7}", False),
        ((", shuffle: 7", ", shuffle: 7"), "    defaults: {shuffle: 7}", False),
        ((", where: cls > 1", ", where: cls > 2"), "    defaults: {where: cls > 0}", False),  # all apply
        ((", decode: {jpg: l8}", ", decode: {jpg: l8}"), "    defaults: {decode: {png: l8}}", False),
        (
            (", shuffle: 5", ", shuffle: 6"),
            "    defaults: {shuffle: 7}\n    sources: {a: {shuffle: 7}}",
            False,
        ),
    ],
)
def test_a_default_of_an_environment_that_every_source_has_itself_is_hidden(folder, own, overlay, is_hidden):
    (folder / "s.yaml").write_text(ENVIRONMENT % (*own, overlay))
    found = warnings_of("s.yaml", env="small")
    assert [each.code for each in found] == ["W102"] * is_hidden
    if is_hidden:
        assert "every source has its own `shuffle`, such as 5 in `a`" in found[0].message
        assert found[0].hint == "write `sources: {a: {shuffle: 7}}` in the environment"
        assert (found[0].line, found[0].column) == (6, 16)


def test_defaults_that_sources_replace_without_an_environment_are_usual(folder):
    (folder / "s.yaml").write_text("defaults: {shuffle: 7}\ndataset: [{shards: a.tar, shuffle: 5}]\n")
    assert warnings_of("s.yaml") == []


BASE = (
    "dataset: [{name: web, shards: a.tar, weight: 2}, {name: books, shards: b.tar, weight: 1}]\nbatch: 64\n"
)


@pytest.mark.parametrize(
    ("small", "extends", "is_idle"),
    [
        ("batch: 4\n", "[small.yaml, base.yaml]", True),
        ("batch: 4\n", "[base.yaml, small.yaml]", False),
        ("batch: 4\nseed: 1\n", "[small.yaml, base.yaml]", False),
        ("batch: 64\n", "[small.yaml, base.yaml]", False),
        ("wdspec: 1\nbatch: 4\n", "[small.yaml, base.yaml]", True),
    ],
)
def test_a_base_whose_values_later_ones_replace_has_no_effect(folder, small, extends, is_idle):
    (folder / "small.yaml").write_text(small)
    (folder / "base.yaml").write_text(BASE)
    (folder / "s.yaml").write_text(f"extends: {extends}\n")
    found = warnings_of("s.yaml")
    assert [each.code for each in found] == ["W102"] * is_idle
    if is_idle:
        assert "`small.yaml` has no effect" in found[0].message
        assert "such as `batch: 4` by 64" in found[0].message
        assert found[0].hint.startswith("write `extends: [base.yaml, small.yaml]`")


@pytest.mark.parametrize(("share", "is_doubted"), [(", weight: 2", True), ("", False)])
def test_a_weight_shows_that_a_list_was_to_be_added_to_that_of_the_base(folder, share, is_doubted):
    (folder / "base.yaml").write_text(BASE)
    (folder / "s.yaml").write_text(f"extends: base.yaml\ndataset: [{{name: code, shards: c.tar{share}}}]\n")
    found = warnings_of("s.yaml")
    assert [each.code for each in found] == ["W344"] * is_doubted
    if is_doubted:
        assert "replaces the sources of base.yaml, which are `web`, `books`" in found[0].message
        assert "list the sources of base.yaml here as well" in found[0].hint
