"""What can be wrong with a key or its value; rules that look at several keys report some of these too."""

from __future__ import annotations

from wdspec.spec.problems.codes import Code, table

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
