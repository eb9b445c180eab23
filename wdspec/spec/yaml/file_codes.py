"""What can be wrong with the text of a file, before any key is looked at."""

from __future__ import annotations

from wdspec.spec.problems.codes import Code, table

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
