"""What can be wrong with files that lead to files, with variables, variants and the list of sources."""

from __future__ import annotations

from wdspec.spec.problems.codes import Code, table

COMPOSE_CODES = table(
    Code(
        "E001",
        "a file cannot be read",
        "The file does not exist, is a directory, or may not be read. Paths in a spec are relative to that spec.",
        "extends: nowhere.yaml\ndataset:\n  - shards: a.tar\n",
    ),
    Code(
        "E101",
        "files that need each other",
        "Following `extends` or `spec` from file to file leads back to where it began.",
        "extends: spec.yaml\ndataset:\n  - shards: a.tar\n",
    ),
    Code(
        "E102",
        "a remote spec",
        "Version 1 reads `extends` and `spec` from local files only, so that checking a spec opens no URL.",
        "extends: https://example.org/base.yaml\ndataset:\n  - shards: a.tar\n",
    ),
    Code(
        "E103",
        "no such split, or none chosen",
        "A spec with `splits` is several specs in one: say which with `load(…, split=…)`, `--split` or "
        "`file.yaml#split`.",
    ),
    Code(
        "E104",
        "no such environment",
        "The name given with `--env`, `load(…, env=…)` or WDSPEC_ENV is not among the spec's `environments`.",
    ),
    Code(
        "E105",
        "no such source",
        "`sources:` in an environment changes sources by name, and `mix.schedule` gives shares by name: the "
        "one in `name:`, or the one made from the shards.",
        "dataset:\n  - {name: web, shards: a.tar}\nenvironments:\n  laptop: {sources: {wed: {shuffle: 10}}}\n",
    ),
    Code(
        "E107",
        "a variable is not set",
        "`${name}` is looked for in `--var`, the environment variable `WDS_name`, and `vars:`. `${name:-default}` "
        "always has a value; `$${` stands for a literal `${`.",
        "dataset:\n  - shards: ${bucket_that_is_not_set}/a.tar\n",
    ),
    Code(
        "E108",
        "a variable needs itself",
        "Following the variables in its value leads back to it.",
        "vars: {a: '${b}', b: '${a}'}\ndataset:\n  - shards: ${a}/a.tar\n",
    ),
    Code(
        "E109",
        "a reserved variable",
        "`${CACHE}` would be read from `WDS_CACHE`, which is one of wdspec's own settings.",
        "dataset:\n  - shards: ${CACHE}/a.tar\n",
    ),
    Code(
        "E110",
        "a variable that cannot be read",
        "`${` must be followed by a name and `}`, or by a name, `:-`, a default and `}`.",
        "dataset:\n  - shards: ${bucket/a.tar\n",
    ),
    Code(
        "E111",
        "a variable in a key",
        "Variables stand in values only, so that the shape of a spec can be read off the file.",
        "dataset:\n  - shards: a.tar\n    tags: {'${x}': 1}\n",
    ),
    Code(
        "E112",
        "a list or map inside a text",
        "A variable that holds a list or map can stand for a whole value, not for a part of a text.",
        "vars: {b: [x, y]}\ndataset:\n  - shards: gs://${b}/a.tar\n",
    ),
    Code("E113", "an override that cannot be read", "Overrides are `key=value` or `key.key=value`."),
    Code(
        "E216",
        "a key in a place where it cannot stand",
        "The key exists, but not here: a nested mix takes only `name`, a share, `mix`, `defaults` and `tags`; "
        "`defaults` takes what several sources can share.",
        "dataset:\n  - shuffle: 10\n    dataset:\n      - shards: a.tar\n",
    ),
    Code(
        "E220",
        "a secret in a spec",
        "Specs are shared, logged and kept. AIStore's token comes from AIS_AUTHN_TOKEN, or from the file that "
        "`token_file` or AIS_AUTHN_TOKEN_FILE names; the login of another store from the variables that `storage.env` "
        "names, or the files that `storage.files` names.",
        "aistore: {endpoint: http://ais:51080, token: x}\ndataset:\n  - shards: gs://b/a.tar\n",
    ),
    Code(
        "E304",
        "two sources with one name",
        "The order of a source is keyed by its name, so that adding a source changes no other's.",
        "dataset:\n  - {name: a, shards: a.tar}\n  - {name: a, shards: b.tar}\n",
    ),
    Code(
        "E402",
        "a spec of another tool",
        "The file is written for webdataset, Energon or another tool; `wdspec convert` writes a spec of it.",
        "prefix: http://example.org/\nbuckets: words\ndatasets:\n  - {shards: a.tar, choose: 3}\n",
    ),
    Code(
        "E403",
        "a lock that does not fit",
        "`wdspec validate --locked` looks whether each spec has the file that `wdspec lock` writes, and whether that "
        "is of this spec. No store is asked; `wdspec lock --check` does.",
    ),
    Code(
        "W101",
        "a variable that is not used",
        "Nothing in the file, or in what it extends, has `${name}`; perhaps it is misspelt somewhere.",
        "vars: {bukket: b}\ndataset:\n  - shards: a.tar\n",
    ),
    Code(
        "W103",
        "not everything was checked",
        "The file is large and has very many splits and environments. Those not checked are when they are chosen.",
    ),
    Code(
        "W104",
        "sources that were not measured",
        "The file that `stats` names does not hold the samples and bytes of a source as the spec has it now. What can "
        "do without them does; planning shares by samples or bytes is an error then. `wdspec stats SPEC` writes the "
        "file, and reads only shards that changed since.",
        "stats: nowhere.stats.json\ndataset:\n  - shards: a.tar\n",
    ),
)
