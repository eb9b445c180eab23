"""What a code is: one kind of problem, with why it is one, and specs that have it and do not.

What can be wrong with the text of a file, before any key is looked at.

What can be wrong with files that lead to files, with variables, variants and the list of sources.

What can be wrong with a key or its value; rules that look at several keys report some of these too.
"""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """One kind of problem. E0: the file; E1: files and variables; E2: keys and values; E3: meaning; W: doubtful,
    W3 in what it means. Of data, D1: shards that cannot be read whole; D2: samples that cannot be used; D3: doubtful.
    """

    code: str
    """`E302`: the letter says how grave it is."""
    title: str
    """One sentence without its full stop."""
    explanation: str
    """Why it is a problem and what to do."""
    bad: str = ""
    """A spec that has the problem; empty where a file alone cannot show it."""
    good: str = ""
    """The same without the problem."""

    @property
    def is_error(self) -> bool:
        """Whether a spec that has it cannot be used, or part of its data cannot."""
        return is_error(self.code)


def is_error(code: str) -> bool:
    """Whether what has this code is an error; else it is a warning."""
    return code.startswith(("E", "D1", "D2"))


def table(*codes: Code) -> dict[str, Code]:
    """Codes by name."""
    return {code.code: code for code in codes}


FILE_CODES = table(
    Code(
        "E002",
        "the file is too large",
        "A spec describes data and is never long. Large files are refused before they are read. Long lists of "
        "shards are written with braces, `data-{000000..123456}.tar`, or put into a text file, `'@shards.txt'`.",
    ),
    Code(
        "E003", "the file is not UTF-8", "YAML is text in UTF-8. Editors offer it under `save with encoding`."
    ),
    Code(
        "E004",
        "a control character",
        "YAML files hold printable text, tabs and line ends. Such characters come from copying out of terminals.",
        "name: a\x07b\ndataset:\n  - shards: a.tar\n",
    ),
    Code(
        "E005",
        "the file is not YAML",
        "Most often a text needs quotes (it holds `: `, begins with `@`, `*`, `[` or `{`, or stands in `{…}` and holds "
        "braces or commas), or the indentation is off, or made of tabs.",
        "dataset:\n  - shards: @list.txt\n",
    ),
    Code(
        "E006",
        "several documents in one file",
        "A line `---` begins another document, and a spec is one. Variants of a spec are `splits` or `environments`.",
        "dataset:\n  - shards: a.tar\n---\ndataset:\n  - shards: b.tar\n",
    ),
    Code("E007", "the file is empty", "A spec has at least a `dataset` with one source.", "# nothing yet\n"),
    Code(
        "E008",
        "nested too deep",
        "Lists and maps are nested beyond any use, which is a mistake or an attack.",
        "name: " + "[" * 80 + "]" * 80 + "\n",
    ),
    Code(
        "E009",
        "too many values",
        "Counting what aliases and defaults repeat, the spec holds more values than can be meant. Use braces or an "
        "`@file` for long lists of shards.",
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(
            f"{n}: &{n} [{', '.join([f'*{p}'] * 10)}]\n" for p, n in zip("abcde", "bcdef", strict=True)
        ),
    ),
    Code(
        "E010",
        "a YAML tag",
        "Tags such as `!!python/object` make YAML create objects. A spec holds only maps, lists, text, numbers, "
        "true, false and null.",
        "name: !!str x\ndataset:\n  - shards: a.tar\n",
    ),
    Code(
        "E011",
        "a key stands twice in a map",
        "YAML forbids it, and one of the values would silently be lost.",
        "seed: 1\nseed: 2\ndataset:\n  - shards: a.tar\n",
    ),
    Code(
        "E012",
        "a key is not text",
        "Keys are names. A number, `true` or `null` as a name, say of a split, is put in quotes.",
        "dataset:\n  - shards: a.tar\n    tags: {1: x}\n",
    ),
    Code(
        "E013",
        "a merge key",
        "`<<` is an extension that YAML 1.2 does not have. What sources share stands in `defaults`, what files "
        "share in a file they `extend`.",
        "dataset:\n  - {shards: a.tar, <<: {scale: 1}}\n",
    ),
    Code(
        "E014",
        "an alias without its anchor",
        "`*name` repeats the value marked `&name` above it. A text that begins with `*` needs quotes.",
        "dataset:\n  - shards: *tar\n",
    ),
    Code(
        "E015",
        "the file is no map",
        "At the top of a spec stand keys: `dataset:` and others. A list of sources belongs under `dataset:`.",
        "- shards: a.tar\n",
    ),
    Code(
        "E016",
        "too many problems",
        "Only the first thousand are listed. Most often a large file is no spec at all.",
        "dataset:\n" + "  - {x: y}\n" * 1_100,
    ),
    Code("W001", "a byte order mark", "It is ignored. Other tools may not be so kind."),
    Code(
        "W002",
        "a comment that cannot be followed",
        "`# wdspec: ignore=W301` hides a warning of its line, or of the next one; `# wdspec: ignore-file=W301` hides "
        "those of the file. Errors cannot be ignored: a spec that has one cannot be used.",
        "dataset:\n  - shards: a.tar  # wdspec: ignore=E201\n",
        "dataset:\n  - shards: a.tar\n",
    ),
    Code(
        "W003",
        "a comment that ignores nothing",
        "What it was written for is gone, or stands in another line.",
        "dataset:\n  - shards: a.tar  # wdspec: ignore=W101\n",
        "dataset:\n  - shards: a.tar\n",
    ),
)


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


VALUE_CODES = table(
    Code(
        "E201",
        "an unknown key",
        "Keys are never ignored: a misspelt one would silently have no effect.",
        "dataset:\n  - shards: a.tar\n    extension: jpg\n",
    ),
    Code(
        "E202",
        "a value of the wrong kind",
        "The key takes another kind of value: text, a number, true or false, a list, a map.",
        "seed: seventeen\ndataset:\n  - shards: a.tar\n",
    ),
    Code(
        "E203",
        "not one of the choices",
        "The key takes one of a few words.",
        "dataset:\n  - shards: a.tar\n    order: shufled\n",
    ),
    Code(
        "E204",
        "a number out of range",
        "The number is too small or too large for this key.",
        "dataset:\n  - shards: a.tar\n    shuffle: -1\n",
    ),
    Code(
        "E205",
        "a number that is not finite",
        "Infinity and not-a-number have no meaning here.",
        "dataset:\n  - shards: a.tar\n    weight: .nan\n",
    ),
    Code(
        "E206",
        "something is missing",
        "A key that must be there is not, or is empty.",
        "dataset:\n  - name: a\n",
    ),
    Code(
        "E207",
        "keys that exclude each other",
        "Two keys say the same thing in different ways.",
        "batch: {size: 4, global_size: 8}\ndataset:\n  - shards: a.tar\n",
    ),
    Code(
        "E208",
        "not the name of a function",
        "Functions are named `package.module:function`; they are imported only where data is read.",
        "map: mylib.augment\ndataset:\n  - shards: a.tar\n",
    ),
    Code(
        "E209",
        "an unknown decoder",
        "Decoders are named by what they give (`rgb8`, `torchrgb`, `pil`), by the extension they read (`json`, `cls`), "
        "`raw`, or as a function of bytes, `package.module:function`.",
        "dataset:\n  - shards: a.tar\n    decode: rbg8\n",
    ),
    Code(
        "E210",
        "a wrong range of scale",
        "`scale` is a factor above 0, or a range [lo, hi] of such factors with lo not above hi.",
        "dataset:\n  - shards: a.tar\n    scale: [2.0, 0.5]\n",
    ),
    Code(
        "E211",
        "a size or duration that cannot be read",
        "Sizes are bytes or text such as `500GB` (10⁹) and `64GiB` (2³⁰); durations are seconds or text such as `30s`.",
        "loader: {timeout: soon}\ndataset:\n  - shards: a.tar\n",
    ),
    Code(
        "E212",
        "a wrong regex",
        "The regex, or the text that replaces its match, is none that Python's `re` reads; or it has not the groups "
        "it needs.",
        "dataset:\n  - shards: a.tar\n    key: {regex: '(.*)'}\n",
    ),
    Code(
        "E214",
        "an empty text or list",
        "The key was given a value with nothing in it.",
        "dataset:\n  - shards: []\n",
    ),
    Code(
        "E215",
        "a field that cannot be",
        "Fields are suffixes of file names without the leading dot: spaces separate fields, `;` alternatives.",
        "dataset:\n  - shards: a.tar\n    extensions: .jpg txt\n",
    ),
    Code(
        "E217",
        "no range of steps",
        "Steps are counted from 0 over all epochs, as `wdspec batch` counts them; a range has both its ends: "
        "`1200..1260` is 61 steps.",
        "skip: 1260..1200\ndataset:\n  - shards: a.tar\n",
    ),
    Code(
        "E219",
        "a setting that AIStore cannot have",
        "The address of a gateway is an http or https URL without a user or password; AIStore serves buckets of `gs`, "
        "`s3`, `az`, `oc` and its own `ais`; the name of an ETL has 6 to 32 characters out of a-z, 0-9 and `-`.",
        "aistore: {endpoint: http://ais:51080, use_for: [https]}\ndataset:\n  - shards: gs://b/a.tar\n",
    ),
)
