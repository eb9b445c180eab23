"""What `validate` says about companions: the problem, its place and what to write."""

import pytest

import wdspec

MAKE = {"near": {"take": "noise.txt"}}
MUSAN = {"musan": {"shards": "musan.tar"}}


def problems_of(source, top=MUSAN, **keys):
    dataset = [{"name": "web", "shards": "a.tar", **source}, {"name": "books", "shards": "b.tar"}]
    return wdspec.validate({"companions": top, "dataset": dataset, **keys})


@pytest.mark.parametrize(
    ("companions", "code", "message", "hint"),
    [
        ({"noise": "muzan"}, "E372", "there are no companions `muzan`", "did you mean `musan`?"),
        (
            {"noise": "web"},
            "E372",
            "`web` would be its own companion",
            "give its shards to an entry of `companions`",
        ),
        ({"noise": "books"}, "E372", "companions are not in the mix", '{shards: "b.tar"}'),
        (
            {"noise": {"source": "musan", "chance": 1.5}},
            "E204",
            "`chance` must be at most 1",
            "`0.015` for 1.5%",
        ),
        (
            {"noise": {"source": "musan", "chance": -1}},
            "E204",
            "`chance` must be at least 0",
            "`0.5` for 50%",
        ),
        ({"noise": {"source": "musan", "count": 0}}, "E204", "`count` must be at least 1", "how many"),
        (
            {"noise": {"source": "musan", "chanse": 1}},
            "E201",
            "unknown key `chanse`",
            "did you mean `chance`?",
        ),
        ({"noise": {"source": "musan", "shards": "c.tar"}}, "E207", "both `source` and `shards`", "keep one"),
        ({"noise": {"chance": 0.5}}, "E206", "`source` is missing", "add `source"),
        (["musan"], "E202", "expected a map of fields", "companions: {noise:"),
        ({"noise": {"shards": "c.tar", "max_passes": 2}}, "E373", "`max_passes` has no meaning", "remove it"),
        ({"noise": {"shards": "c.tar", "weight": 2}}, "E373", "`weight` has no meaning", "remove it"),
        (
            {"noise": {"shards": "c.tar", "shufle": 2}},
            "E201",
            "unknown key `shufle`",
            "did you mean `shuffle`?",
        ),
        (
            {"noise.wav": "musan"},
            "E215",
            "`noise.wav` cannot be the field of companions",
            "a name such as `noise`",
        ),
    ],
)
def test_a_mistake_in_companions_is_reported_with_what_to_write(companions, code, message, hint):
    found = problems_of({"companions": companions, "make": MAKE})
    [problem] = [each for each in found if each.code == code]
    assert message in problem.message
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("keys", "code", "message"),
    [
        ({"where": "noise.txt.length > 3"}, "E375", "`where` reads the companions `noise`"),
        ({"where": "near.length > 3"}, "E375", "`where` reads the companions `noise`"),
        ({"tags": {"noise": 1}}, "E374", "samples of `web` have another field `noise`"),
        ({"extensions": "txt noise"}, "E374", "samples of `web` have another field `noise`"),
        ({"make": {"near": {"take": "noise"}}}, "E370", "`noise` is a whole companion"),
        ({"make": {}}, "W430", "nothing reads the companions `noise`"),
    ],
)
def test_what_a_source_cannot_do_with_companions_is_reported(keys, code, message):
    found = problems_of({"companions": {"noise": "musan"}, "make": MAKE, **keys})
    assert [message in each.message for each in found if each.code == code] == [True]


def test_companions_cannot_be_delivered():
    for key in ("fields", "to_tuple"):
        found = problems_of({"companions": {"noise": "musan"}, "make": MAKE}, **{key: ["txt", "noise"]})
        [problem] = [each for each in found if each.code == "E376"]
        assert "make: {other: {take: noise.txt}}" in problem.hint


def test_a_field_that_companions_surely_lack_is_reported():
    top = {"musan": {"shards": "musan.tar", "extensions": "wav json"}}
    source = {"companions": {"noise": "musan"}, "make": {"near": {"take": "noise.wave"}}}
    [problem] = [each for each in problems_of(source, top) if each.code == "E370"]
    assert "companions `noise` have `wav`, `json`" in problem.message
    assert problem.hint == "did you mean `wav`?"


def test_a_default_of_null_is_reported_unless_it_removes_an_inherited_one():
    source = {"companions": {"noise": "musan"}, "make": {"near": {"take": "noise.txt", "default": None}}}
    [problem] = [each for each in problems_of(source) if each.code == "W102"]
    assert problem.message == "`default: null` of `near` has no effect: null leaves a key out"
    assert problem.hint == "write `missing: none` in the source to get None"
    source["make"] = {"near": {"default": None}}
    inherited = {"make": {"near": {"take": "noise.txt", "default": "-"}}}
    both = {"dataset": [{"shards": "a.tar", **source}], "defaults": inherited, "companions": MUSAN}
    assert not wdspec.validate(both)


def test_companions_that_only_another_split_has_are_reported_with_the_split():
    spec = {
        "dataset": [{"name": "web", "shards": "a.tar", "companions": {"noise": "musan"}, "make": MAKE}],
        "splits": {"train": {"companions": MUSAN}, "val": {}},
    }
    messages = [each.message for each in wdspec.validate(spec) if each.code == "E372"]
    assert messages == ["there are no companions `musan` in the split `val`"]


def test_the_same_name_as_a_source_is_reported():
    found = problems_of({"companions": {"noise": "web"}, "make": MAKE}, {"web": {"shards": "c.tar"}})
    assert "E304" in {each.code for each in found}


@pytest.mark.parametrize("top", [[{"shards": "m.tar"}], {"musan": "m.tar"}, {"musan": {"decode": "rgb8"}}])
def test_an_entry_that_is_no_source_is_one_problem(top):
    found = problems_of({"companions": {"noise": "musan"}, "make": MAKE}, top)
    assert [each.code for each in found if each.is_error] in (["E202"], ["E206"])


def test_urls_of_companions_are_checked_as_those_of_sources():
    found = problems_of({"companions": {"noise": {"shards": "s3:/bucket/a.tar"}}, "make": MAKE})
    assert any("s3://" in each.hint for each in found)


def test_costs_of_a_pass_cannot_read_companions():
    source = {"companions": {"noise": "musan"}, "make": MAKE}
    batch = {"cost": "near.length", "max_cost": 9, "window": 9}
    found = problems_of(source, epoch="pass", batch=batch)
    assert "E375" in {each.code for each in found}
    assert "E375" not in {each.code for each in problems_of(source, batch=batch)}


FILL = {"call": "mine:fill", "sets": ["ids"]}


@pytest.mark.parametrize(
    ("cost", "map_", "message", "hint"),
    [
        ("mine:cost", [], "`mine:cost` may read what is made of them", "write `cost` as an expression"),
        (
            "ids.length",
            [FILL],
            "`mine:fill`, which may set `ids`, may read them",
            "(`map: {ids: mine:fill}`)",
        ),
        (
            "txt.length",
            ["mine:fill", {"txt": "mine:low"}],
            "`mine:fill`, which may set `txt`, may read them",
            "{call: mine:fill, sets: […]}",
        ),
        ("txt.length", ["mine:fill"], None, ""),
        ("txt.length", [FILL, {"txt": "mine:low"}], None, ""),
        ("before_map(ids.length)", [FILL], None, ""),
    ],
)
def test_costs_of_a_pass_cannot_depend_on_what_functions_may_make_of_companions(cost, map_, message, hint):
    source = {"companions": {"noise": "musan"}, "make": MAKE, "map": map_}
    batch = {"cost": cost, "max_cost": 9, "window": 9}
    found = [each for each in problems_of(source, epoch="pass", batch=batch) if each.code == "E375"]
    assert [message in each.message and hint in each.hint for each in found] == [True] * (message is not None)
    assert "E375" not in {each.code for each in problems_of(source, batch=batch)}


def test_companions_in_defaults_are_those_of_every_source_and_null_removes_them():
    spec = wdspec.load(
        {
            "companions": MUSAN,
            "defaults": {"companions": {"noise": "musan"}, "make": MAKE},
            "dataset": [
                {"name": "web", "shards": "a.tar"},
                {"name": "books", "shards": "b.tar", "companions": {"noise": None}, "make": {"near": None}},
            ],
        }
    )
    assert [sorted(source.companions) for source in spec.sources] == [["noise"], []]


@pytest.mark.parametrize(
    ("origin", "shards", "warns"),
    [
        ("nose.wav", "a.tar", True),
        ("musan.wav", "a.tar", True),
        ("noise.wav", "a.tar", False),
        ("other", "a.tar", False),
        ("json.noise", "a.tar", False),
        ("pair.wav", "a.parquet", False),
    ],
)
def test_a_step_that_mixes_with_companions_that_there_are_not_is_reported(origin, shards, warns):
    make = {"audio": {"add_noise": "wav", "noise": origin, "snr": 5}, "near": {"take": "noise.txt"}}
    source = {"shards": shards, "decode": {"wav": "audio"}, "companions": {"noise": "musan"}, "make": make}
    assert ("W431" in [each.code for each in problems_of(source)]) is warns


def test_companions_of_a_wrong_step_are_not_said_to_be_read_by_nothing():
    make = {"audio": {"add_noise": "wav", "noise": "noise.wav", "snr": [5, 20]}}
    assert [each.code for each in problems_of({"companions": {"noise": "musan"}, "make": make})] == ["E202"]


def test_the_shards_that_a_remedy_gives_to_companions_are_all_and_no_problem_afterwards():
    dataset = [
        {"name": "web", "shards": ["a.tar", "c-{0..1}.tar"], "companions": {"noise": "web"}, "make": MAKE}
    ]
    (problem,) = wdspec.validate({"dataset": dataset})
    assert problem.hint.endswith('`companions: {pool: {shards: ["a.tar", "c-{0..1}.tar"]}}`')
    dataset[0]["companions"] = {"noise": "pool"}
    assert (
        wdspec.validate({"companions": {"pool": {"shards": dataset[0]["shards"]}}, "dataset": dataset}) == []
    )


def test_splits_share_companions_but_none_learns_from_the_samples_of_another():
    def codes(train, val):
        sources = [
            {
                "name": "web",
                "shards": f"{split}.tar",
                "companions": {"noise": {"shards": shards}},
                "make": MAKE,
            }
            for split, shards in (("a", train), ("b", val))
        ]
        splits = {name: {"dataset": [source]} for name, source in zip(("train", "val"), sources, strict=True)}
        splits["val"]["epoch"] = "pass"
        return [(each.code, each.message) for each in wdspec.validate({"splits": splits})]

    assert codes("musan.tar", "musan.tar") == []
    assert codes("b.tar", "musan.tar") == [("W302", '"b.tar" is also a shard of the split `val`')]
    assert codes("musan.tar", "a.tar") == [("W302", '"a.tar" is also a shard of the split `train`')]


def test_an_epoch_of_tokens_needs_the_mean_cost_of_the_sources_of_the_mix_alone():
    dataset = [
        {"name": "web", "shards": "a.tar", "mean_cost": 9, "companions": {"noise": "musan"}, "make": MAKE}
    ]
    spec = {"companions": MUSAN, "dataset": dataset, "epoch": {"tokens": 1e6}}
    spec["batch"] = {"cost": "ids.length", "max_tokens": 64, "collate": {"ids": "pad"}}
    assert [each for each in wdspec.validate(spec) if each.is_error] == []
    del dataset[0]["mean_cost"]
    assert [each.code for each in wdspec.validate(spec) if each.is_error] == ["E362"]
