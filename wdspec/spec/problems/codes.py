"""Every code a problem may carry: what it means, why it is a problem, and a spec that shows it."""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """One kind of problem."""

    title: str
    """One sentence without its full stop."""
    explanation: str
    """Why it is a problem and what to do."""
    example: str = ""
    """A spec that has the problem; empty where a file alone cannot show it."""


CODES: dict[str, Code] = {
    "E001": Code(
        "a file cannot be read",
        "The file does not exist, is a directory, or may not be read. Paths in a spec are relative to that spec.",
        "extends: nowhere.yaml\ndataset:\n  - shards: a.tar\n",
    ),
    "E002": Code(
        "the file is too large",
        "A spec describes data and is never long. Large files are refused before they are read. Long lists of "
        "shards are written with braces, `data-{000000..123456}.tar`, or put into a text file, `'@shards.txt'`.",
    ),
    "E003": Code(
        "the file is not UTF-8", "YAML is text in UTF-8. Editors offer it under `save with encoding`."
    ),
    "E004": Code(
        "a control character",
        "YAML files hold printable text, tabs and line ends. Such characters come from copying out of terminals.",
        "name: a\x07b\ndataset:\n  - shards: a.tar\n",
    ),
    "E005": Code(
        "the file is not YAML",
        "Most often a text needs quotes (it holds `: `, begins with `@`, `*`, `[` or `{`, or stands in `{…}` and holds "
        "braces or commas), or the indentation is off, or made of tabs.",
        "dataset:\n  - shards: @list.txt\n",
    ),
    "E006": Code(
        "several documents in one file",
        "A line `---` begins another document, and a spec is one. Variants of a spec are `splits` or `environments`.",
        "dataset:\n  - shards: a.tar\n---\ndataset:\n  - shards: b.tar\n",
    ),
    "E007": Code("the file is empty", "A spec has at least a `dataset` with one source.", "# nothing yet\n"),
    "E008": Code(
        "nested too deep",
        "Lists and maps are nested beyond any use, which is a mistake or an attack.",
        "name: " + "[" * 80 + "]" * 80 + "\n",
    ),
    "E009": Code(
        "too many values",
        "Counting what aliases and defaults repeat, the spec holds more values than can be meant. Use braces or an "
        "`@file` for long lists of shards.",
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(
            f"{n}: &{n} [{', '.join([f'*{p}'] * 10)}]\n" for p, n in zip("abcde", "bcdef", strict=True)
        ),
    ),
    "E010": Code(
        "a YAML tag",
        "Tags such as `!!python/object` make YAML create objects. A spec holds only maps, lists, text, numbers, "
        "true, false and null.",
        "name: !!str x\ndataset:\n  - shards: a.tar\n",
    ),
    "E011": Code(
        "a key stands twice in a map",
        "YAML forbids it, and one of the values would silently be lost.",
        "seed: 1\nseed: 2\ndataset:\n  - shards: a.tar\n",
    ),
    "E012": Code(
        "a key is not text",
        "Keys are names. A number, `true` or `null` as a name, say of a split, is put in quotes.",
        "dataset:\n  - shards: a.tar\n    tags: {1: x}\n",
    ),
    "E013": Code(
        "a merge key",
        "`<<` is an extension that YAML 1.2 does not have. What sources share stands in `defaults`, what files "
        "share in a file they `extend`.",
        "dataset:\n  - {shards: a.tar, <<: {scale: 1}}\n",
    ),
    "E014": Code(
        "an alias without its anchor",
        "`*name` repeats the value marked `&name` above it. A text that begins with `*` needs quotes.",
        "dataset:\n  - shards: *tar\n",
    ),
    "E015": Code(
        "the file is no map",
        "At the top of a spec stand keys: `dataset:` and others. A list of sources belongs under `dataset:`.",
        "- shards: a.tar\n",
    ),
    "E016": Code(
        "too many problems",
        "Only the first thousand are listed. Most often a large file is no spec at all.",
        "dataset:\n" + "  - {x: y}\n" * 1_100,
    ),
    "E101": Code(
        "files that need each other",
        "Following `extends` or `spec` from file to file leads back to where it began.",
        "extends: spec.yaml\ndataset:\n  - shards: a.tar\n",
    ),
    "E102": Code(
        "a remote spec",
        "Version 1 reads `extends` and `spec` from local files only, so that checking a spec opens no URL.",
        "extends: https://example.org/base.yaml\ndataset:\n  - shards: a.tar\n",
    ),
    "E103": Code(
        "no such split, or none chosen",
        "A spec with `splits` is several specs in one: say which with `load(…, split=…)`, `--split` or "
        "`file.yaml#split`.",
    ),
    "E104": Code(
        "no such environment",
        "The name given with `--env`, `load(…, env=…)` or WDSPEC_ENV is not among the spec's `environments`.",
    ),
    "E105": Code(
        "no such source",
        "`sources:` in an environment changes sources by name, and `mix.schedule` gives shares by name: the "
        "one in `name:`, or the one made from the shards.",
        "dataset:\n  - {name: web, shards: a.tar}\nenvironments:\n  laptop: {sources: {wed: {shuffle: 10}}}\n",
    ),
    "E107": Code(
        "a variable is not set",
        "`${name}` is looked for in `--var`, the environment variable `WDS_name`, and `vars:`. `${name:-default}` "
        "always has a value; `$${` stands for a literal `${`.",
        "dataset:\n  - shards: ${bucket_that_is_not_set}/a.tar\n",
    ),
    "E108": Code(
        "a variable needs itself",
        "Following the variables in its value leads back to it.",
        "vars: {a: '${b}', b: '${a}'}\ndataset:\n  - shards: ${a}/a.tar\n",
    ),
    "E109": Code(
        "a reserved variable",
        "`${CACHE}` would be read from `WDS_CACHE`, which is one of wdspec's own settings.",
        "dataset:\n  - shards: ${CACHE}/a.tar\n",
    ),
    "E110": Code(
        "a variable that cannot be read",
        "`${` must be followed by a name and `}`, or by a name, `:-`, a default and `}`.",
        "dataset:\n  - shards: ${bucket/a.tar\n",
    ),
    "E111": Code(
        "a variable in a key",
        "Variables stand in values only, so that the shape of a spec can be read off the file.",
        "dataset:\n  - shards: a.tar\n    tags: {'${x}': 1}\n",
    ),
    "E112": Code(
        "a list or map inside a text",
        "A variable that holds a list or map can stand for a whole value, not for a part of a text.",
        "vars: {b: [x, y]}\ndataset:\n  - shards: gs://${b}/a.tar\n",
    ),
    "E113": Code("an override that cannot be read", "Overrides are `key=value` or `key.key=value`."),
    "E201": Code(
        "an unknown key",
        "Keys are never ignored: a misspelt one would silently have no effect.",
        "dataset:\n  - shards: a.tar\n    extension: jpg\n",
    ),
    "E202": Code(
        "a value of the wrong kind",
        "The key takes another kind of value: text, a number, true or false, a list, a map.",
        "seed: seventeen\ndataset:\n  - shards: a.tar\n",
    ),
    "E203": Code(
        "not one of the choices",
        "The key takes one of a few words.",
        "dataset:\n  - shards: a.tar\n    order: shufled\n",
    ),
    "E204": Code(
        "a number out of range",
        "The number is too small or too large for this key.",
        "dataset:\n  - shards: a.tar\n    shuffle: -1\n",
    ),
    "E205": Code(
        "a number that is not finite",
        "Infinity and not-a-number have no meaning here.",
        "dataset:\n  - shards: a.tar\n    weight: .nan\n",
    ),
    "E206": Code(
        "something is missing",
        "A key that must be there is not, or is empty.",
        "dataset:\n  - name: a\n",
    ),
    "E207": Code(
        "keys that exclude each other",
        "Two keys say the same thing in different ways.",
        "batch: {size: 4, global_size: 8}\ndataset:\n  - shards: a.tar\n",
    ),
    "E208": Code(
        "not the name of a function",
        "Functions are named `package.module:function`; they are imported only where data is read.",
        "map: mylib.augment\ndataset:\n  - shards: a.tar\n",
    ),
    "E209": Code(
        "an unknown decoder",
        "Decoders are named by what they give (`rgb8`, `torchrgb`, `pil`), by the extension they read (`json`, `cls`), "
        "`raw`, or as a function of bytes, `package.module:function`.",
        "dataset:\n  - shards: a.tar\n    decode: rbg8\n",
    ),
    "E210": Code(
        "a wrong range of scale",
        "`scale` is a factor above 0, or a range [lo, hi] of such factors with lo not above hi.",
        "dataset:\n  - shards: a.tar\n    scale: [2.0, 0.5]\n",
    ),
    "E211": Code(
        "a size or duration that cannot be read",
        "Sizes are bytes or text such as `500GB` (10⁹) and `64GiB` (2³⁰); durations are seconds or text such as `30s`.",
        "loader: {timeout: soon}\ndataset:\n  - shards: a.tar\n",
    ),
    "E212": Code(
        "a wrong regex",
        "The regex, or the text that replaces its match, is none that Python's `re` reads; or it has not the groups "
        "it needs.",
        "dataset:\n  - shards: a.tar\n    key: {regex: '(.*)'}\n",
    ),
    "E213": Code(
        "wrong braces or `::` in shards",
        "Braces hold a range that counts up, `{000..123}`, or alternatives, `{a,b}`; `::` separates shard lists.",
        "dataset:\n  - shards: a-{0009..0000}.tar\n",
    ),
    "E214": Code(
        "an empty text or list",
        "The key was given a value with nothing in it.",
        "dataset:\n  - shards: []\n",
    ),
    "E215": Code(
        "a field that cannot be",
        "Fields are suffixes of file names without the leading dot: spaces separate fields, `;` alternatives.",
        "dataset:\n  - shards: a.tar\n    extensions: .jpg txt\n",
    ),
    "E216": Code(
        "a key in a place where it cannot stand",
        "The key exists, but not here: a nested mix takes only `name`, a share, `mix`, `defaults` and `tags`; "
        "`defaults` takes what several sources can share.",
        "dataset:\n  - shuffle: 10\n    dataset:\n      - shards: a.tar\n",
    ),
    "E218": Code(
        "an unknown version",
        "This release reads version 1 of the format.",
        "wdspec: 2\ndataset:\n  - shards: a.tar\n",
    ),
    "E219": Code(
        "a setting that AIStore cannot have",
        "The address of a gateway is an http or https URL without a user or password; AIStore serves buckets of `gs`, "
        "`s3`, `az`, `oc` and its own `ais`; the name of an ETL has 6 to 32 characters out of a-z, 0-9 and `-`.",
        "aistore: {endpoint: http://ais:51080, use_for: [https]}\ndataset:\n  - shards: gs://b/a.tar\n",
    ),
    "E220": Code(
        "a secret in a spec",
        "Specs are shared, logged and kept. A token comes from AIS_AUTHN_TOKEN, or from the file that `token_file` or "
        "AIS_AUTHN_TOKEN_FILE names.",
        "aistore: {endpoint: http://ais:51080, token: x}\ndataset:\n  - shards: gs://b/a.tar\n",
    ),
    "E301": Code(
        "shares of different kinds",
        "In one list every source states its share in the same way, or none does; else they cannot be compared.",
        "dataset:\n  - {shards: a.tar, weight: 1}\n  - {shards: b.tar, probability: 0.5}\n",
    ),
    "E302": Code(
        "probabilities that do not sum to 1",
        "`probability` is absolute within its list. `weight` is relative and needs no sum.",
        "dataset:\n  - {shards: a.tar, probability: 0.6}\n  - {shards: b.tar, probability: 0.3}\n",
    ),
    "E303": Code(
        "shares that are all zero",
        "A share of 0 switches a source off; with all of them off there is nothing to read.",
        "dataset:\n  - {shards: a.tar, weight: 0}\n",
    ),
    "E304": Code(
        "two sources with one name",
        "The order of a source is keyed by its name, so that adding a source changes no other's.",
        "dataset:\n  - {name: a, shards: a.tar}\n  - {name: a, shards: b.tar}\n",
    ),
    "E305": Code(
        "a batch of unlike samples",
        "A batch stacks field by field, so all samples need the same fields. Without `batch` they may differ.",
        "batch: 4\ndataset:\n  - {shards: a.tar, extensions: jpg}\n  - {shards: b.tar, extensions: nrm.jpg}\n",
    ),
    "E306": Code(
        "an epoch shorter than a batch",
        "An epoch is a whole number of global batches, and at least one.",
        "batch: {global_size: 512}\nepoch: 100\ndataset:\n  - shards: a.tar\n",
    ),
    "E307": Code(
        "a batch that ranks cannot share",
        "`global_size` is dealt out equally, so `elastic.ranks` must divide it.",
        "batch: {global_size: 100}\nelastic: {ranks: 16}\ndataset:\n  - shards: a.tar\n",
    ),
    "E308": Code(
        "a field that is never there",
        "`extensions` leaves out what `rename`, `fields` or `to_tuple` asks for, so every sample would be an error.",
        "dataset:\n  - {shards: a.tar, extensions: png, rename: {image: jpg}}\n",
    ),
    "E309": Code(
        "scale without decoding",
        "Images that stay bytes cannot be rescaled.",
        "dataset:\n  - {shards: a.tar, scale: 0.5, decode: raw}\n",
    ),
    "E310": Code(
        "forbidden by WDS_SECURE",
        "With WDS_SECURE=1 no spec may run a program (`pipe:`) or user code (`map`, `select`, decoders), or `allow` "
        "more.",
    ),
    "E311": Code(
        "pickle is not allowed",
        "Unpickling can run code hidden in the data. It is off unless the spec says `allow: [pickle]`.",
        "dataset:\n  - {shards: a.tar, decode: {meta: pkl}}\n",
    ),
    "E312": Code(
        "against a pass",
        "`epoch: pass` gives every sample once, source after source: shares, `mix` and drawing with replacement have "
        "no place in it. What fills up the last batch is marked in `__mask__`, which a tuple must not leave out.",
        "epoch: pass\ndataset:\n  - {shards: a.tar, weight: 1}\n",
    ),
    "E313": Code(
        "a schedule out of order",
        "The steps of `mix.schedule` follow each other, and the first begins at sample 0.",
        "mix: {schedule: [{at: 500, shares: {a: 1}}]}\ndataset:\n  - {name: a, shards: a.tar}\n",
    ),
    "E314": Code(
        "an ETL whose cuts cannot be told",
        "When an ETL of AIStore dies in the middle of a shard, its answer ends as if it were whole, with an error text "
        "at the end. Only the end marker of a tar shows that, so it must be there, and be demanded.",
        "aistore: {endpoint: http://ais:51080, use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n"
        "    tar: {end: lenient}\n    aistore: {etl: resize-224}\n",
    ),
    "E315": Code(
        "a key of decode that no field matches",
        "The keys of `decode` are names of fields, or suffixes of files, whole or from a dot on. With `extensions` "
        "given all fields are known, and a key that matches none of them does nothing: most often it is misspelt.",
        "dataset:\n  - {shards: a.tar, extensions: jpg txt, decode: {jgp: rgb8}}\n",
    ),
    "E402": Code(
        "a spec of another tool",
        "The file is written for webdataset or Energon. wdspec does not read it yet.",
        "prefix: http://example.org/\nbuckets: words\ndatasets:\n  - {shards: a.tar, choose: 3}\n",
    ),
    "W001": Code("a byte order mark", "It is ignored. Other tools may not be so kind."),
    "W101": Code(
        "a variable that is not used",
        "Nothing in the file, or in what it extends, has `${name}`; perhaps it is misspelt somewhere.",
        "vars: {bukket: b}\ndataset:\n  - shards: a.tar\n",
    ),
    "W102": Code(
        "a key without effect",
        "The key does nothing beside another one.",
        "mix: {by: equal}\ndataset:\n  - {shards: a.tar, weight: 1}\n",
    ),
    "W103": Code(
        "not everything was checked",
        "The file is large and has very many splits and environments. Those not checked are when they are chosen.",
    ),
    "W104": Code(
        "an AIStore without an address",
        "The spec leaves it to AIS_ENDPOINT, which is not set here; reading the data where it is not is an error.",
        "aistore: {use_for: gs}\ndataset:\n  - shards: gs://b/a.tar\n",
    ),
    "W105": Code(
        "a URL that looks misspelt",
        "Its scheme is nearly one that is known, or one slash follows it where two belong. An opener or a rewrite rule "
        "of yours may know it all the same.",
        "dataset:\n  - shards: htps://host/a.tar\n",
    ),
}
"""All codes in order. E0: the file; E1: files and variables; E2: keys and values; E3: meaning; E4: not yet."""
