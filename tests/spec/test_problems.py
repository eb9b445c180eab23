"""Every code, where it is reported and how it reads."""

from __future__ import annotations

import gc
import json
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from wdspec.base.errors import SpecError
from wdspec.cli.problems import REPORTS, CheckedSpec
from wdspec.spec.language.expressions import parse_expression
from wdspec.spec.load import check, load
from wdspec.spec.problems import LINE_WIDTH, Problem
from wdspec.spec.rules import all_codes

CODES = all_codes()

A = "dataset:\n  - shards: a.tar\n"

SKIPS = [("E217", 8), ("E217", 14), ("E217", 18), ("E202", 23), ("E202", 28), ("E217", 34)]
SUBSETS = "  - {{name: a, shards: a.tar, subset: {}}}\n  - {{name: b, shards: a.tar, subset: {}}}\n"

BAD: list[tuple[str, list[tuple[str, int, int]]]] = [
    ("extends: nowhere.yaml\n" + A, [("E001", 1, 10)]),
    ("batch: {size: 0}\nepoch: {batches: 10}\nmix: {unit: batch}\n" + A, [("E204", 1, 15)]),
    ("name: a\x07b\n" + A, [("E004", 1, 8)]),
    ("dataset:\n  - shards: @list.txt\n", [("E005", 2, 13)]),
    (A + "---\n" + A, [("E006", 3, 1)]),
    ("", [("E007", 1, 1)]),
    ("name: " + "[" * 80, [("E008", 1, 70)]),
    (A + "seed: !!int 3\n", [("E010", 3, 7)]),
    (A + "    join: [{shards: b.tar, missing: none}]\n", [("E340", 3, 28)]),
    ("dataset:\n  - shards: 'a-{0..9}.tar'\n    join: 'b-{0..8}.tar'\n", [("E341", 3, 11)]),
    (
        A + "    lookup:\n    - {table: a.csv, fields: x}\n    - {table: b.csv, fields: x}\n",
        [("E342", 5, 22)],
    ),
    (A + "    lookup: {table: scores, fields: x}\n", [("E343", 3, 21)]),
    (A + "    lookup: {table: a.csv, fields: x, rename: {z: y}}\n", [("E344", 3, 39)]),
    (A + "    repeat: 2.5\n", [("E345", 3, 5)]),
    ("dataset:\n  - shards: [a.lance, b]\n    format: lance\n", [("E346", 2, 23)]),
    (
        "epoch: {pass: drop, reshuffle: true}\n" + A + "    where: cls > 3\n    missing: skip\n",
        [("E380", 4, 5), ("W410", 5, 5)],
    ),
    (
        "epoch: {pass: drop, reshuffle: true}\n" + A + "    order: sequential\n    shuffle: 0\n",
        [("W411", 4, 5)],
    ),
    ("epoch: {samples: total}\n" + A, [("E381", 1, 18)]),
    ("epoch: {tokens: 1e9}\nbatch: 8\n" + A, [("E362", 4, 5)]),
    ("epoch: pass\n" + A + "    shuffle: 9\n", [("W412", 4, 5)]),
    (A + "    lookup: {table: a.csv, fields: x, on: json.id + 1}\n", [("E203", 3, 43)]),
    (A + "    lookup: scores.csv\n", [("E202", 3, 13)]),
    (A + "    lookup: {table: a.csv}\n", [("E206", 3, 13)]),
    (A + "    extensions: jpg\n    join: [{shards: b.tar, fields: txt}]\n", [("W390", 4, 28)]),
    (A + "    join: [{shards: a.tar}]\n", [("W391", 3, 21)]),
    ("defaults: {join: b.tar}\n" + A, [("E216", 1, 12)]),
    ("seed: 1\nseed: 2\n" + A, [("E011", 2, 1)]),
    (A + "    tags: {1: x, [a]: y}\n", [("E012", 3, 12), ("E012", 3, 18)]),
    (A + "    <<: {scale: 1}\n", [("E013", 3, 5)]),
    ("dataset:\n  - shards: *tar\n", [("E014", 2, 13)]),
    ("- shards: a.tar\n", [("E015", 1, 1)]),
    ("extends: spec.yaml\n" + A, [("E101", 1, 10)]),
    ("dataset:\n  - spec: spec.yaml\n", [("E101", 2, 11)]),
    ("extends: [s3://b/x.yaml]\ndataset:\n  - spec: http://x/y.yaml\n", [("E102", 1, 11), ("E102", 3, 11)]),
    ("dataset:\n  - spec: split.yaml\n", [("E103", 2, 11)]),
    ("dataset:\n  - spec: split.yaml#tets\n", [("E103", 2, 11)]),
    (A + "environments:\n  e: {sources: {b: {shuffle: 1}}}\n", [("E105", 4, 17)]),
    ("dataset:\n  - shards: 'x/${no}/a.tar'\n", [("E107", 2, 13)]),
    ("vars: {a: '${b}', b: '${a}'}\nname: ${a}\n" + A, [("E108", 1, 22)]),
    ("dataset:\n  - shards: ${SECURE}/a.tar\n", [("E109", 2, 13)]),
    ("dataset:\n  - shards: a/${b/a.tar\n", [("E110", 2, 15)]),
    ("vars: {CACHE: x}\n" + A, [("E109", 1, 8), ("W101", 1, 8)]),
    ("dataset:\n  - urls: a.tar\n  - {shard: b.tar}\n", [("E201", 2, 5), ("E201", 3, 6)]),
    (A + "    tags: {'${x}': 1}\n", [("E111", 3, 12)]),
    ("vars: {b: [x]}\ndataset:\n  - shards: gs://${b}/a.tar\n", [("E112", 3, 13)]),
    (A + "    extension: jpg\n", [("E201", 3, 5)]),
    ("datasets:\n  - shards: a.tar\n", [("E201", 1, 1)]),
    (A + "    batch: 4\nshuffle: 10\n", [("E201", 3, 5), ("E201", 4, 1)]),
    (A + "mix: {drow: even}\nloader: {worker: 2}\n", [("E201", 3, 7), ("E201", 4, 10)]),
    ("defaults: {shufle: 1}\n" + A, [("E201", 1, 12)]),
    ("seed: seventeen\nname: [a]\n" + A, [("E202", 1, 7), ("E202", 2, 7)]),
    ("loader: {pin_memory: yes}\nname: 17\n" + A, [("E202", 1, 22), ("E202", 2, 7)]),
    (
        "mix: 3\nloader: []\nrewrite: {from: a, to: b}\n" + A,
        [("E202", 1, 6), ("E202", 2, 9), ("E202", 3, 10)],
    ),
    (A + "    order: shufled\n", [("E203", 3, 12)]),
    ("allow: [pickel]\nerrors: ignore\nepoch: passs\n" + A, [("E203", 1, 9), ("E203", 2, 9), ("E203", 3, 8)]),
    (
        A + "    shuffle: -1\n    scaleprob: 1.5\n    weight: -2\n",
        [("E204", 3, 14), ("E204", 4, 16), ("E204", 5, 13)],
    ),
    ("batch: 0\nlimit: 0\nseed: -1\n" + A, [("E204", 1, 8), ("E204", 2, 8), ("E204", 3, 7)]),
    (A + "    weight: .nan\n    scale: [1, .inf]\n", [("E205", 3, 13), ("E205", 4, 12)]),
    ("dataset:\n  - name: a\n  - shards:\n", [("E206", 2, 5), ("E206", 3, 5)]),
    ("name: x\n", [("E206", 1, 1)]),
    (
        "batch: {}\nepoch: {}\n" + A + "rewrite: [{from: a}]\n",
        [("E206", 1, 8), ("E206", 2, 8), ("E206", 5, 11)],
    ),
    ("mix: {by: samples}\n" + A, [("E206", 3, 5)]),
    ("batch: {size: 4, global_size: 8}\n" + A, [("E207", 1, 18)]),
    ("batch: 4\nepoch: {samples: 40, batches: 8}\n" + A, [("E207", 2, 22)]),
    (A + "    dataset: []\n", [("E207", 3, 5)]),
    (A + "    weight: 1\n    probability: 1\n", [("E207", 3, 5)]),
    (A + "splits: {a: {seed: 1}}\n", [("E207", 3, 1)]),
    (A + "errors: {skip: false, max_rate: 0.1}\n", [("E207", 3, 23)]),
    ("map: [a.b:c, mylib.augment]\n" + A + "    select: f\n", [("E208", 1, 14), ("E208", 4, 13)]),
    (A + "    decode: {image: rbg8, x: gif9}\n", [("E209", 3, 21), ("E209", 3, 30)]),
    (A + "    scale: [2.0, 0.5]\n", [("E210", 3, 12)]),
    (A + "    scale: 0\n", [("E210", 3, 12)]),
    (A + "    scale: [1, 2, 3]\n", [("E210", 3, 12)]),
    ("loader: {timeout: soon}\n" + A, [("E211", 1, 19)]),
    ("loader: {timeout: 1.0e+300}\nerrors: {retry: 20000d}\n" + A, [("E204", 1, 19), ("E204", 2, 17)]),
    (A + "    key: {regex: '(.*)'}\n", [("E212", 3, 18)]),
    (A + "rewrite: [{from: 'a(', to: b}, {from: a, to: '\\2'}]\n", [("E212", 3, 18), ("E212", 3, 46)]),
    ("dataset:\n  - shards: a-{0009..0000}.tar\n", [("E213", 2, 15)]),
    ("dataset:\n  - shards: ['x.tar', \"b::a-{0..1.tar\"]\n", [("E213", 2, 29)]),
    ("vars: {b: gs://bucket}\ndataset:\n  - shards: ${b}/a-{9..0}.tar\n", [("E213", 3, 20)]),
    ("dataset:\n  - shards: 'a.tar::'\n", [("E213", 2, 21)]),
    (
        "dataset:\n  - shards: []\n  - shards: ''\n    name: ' '\n",
        [("E214", 2, 13), ("E214", 3, 13), ("E214", 4, 11)],
    ),
    ("dataset: []\n", [("E214", 1, 10)]),
    (A + "    extensions: .jpg txt\n    rename: {a: 'b;'}\n", [("E215", 3, 17), ("E215", 4, 17)]),
    ("dataset:\n  - shuffle: 10\n    dataset:\n      - shards: a.tar\n", [("E216", 2, 5)]),
    (
        "dataset:\n  - tags: {a: 1}\n    rename: {a: b}\n    dataset:\n      - shards: a.tar\n",
        [("E216", 3, 5)],
    ),
    ("dataset:\n  - mix: {draw: even, by: equal}\n    dataset:\n      - shards: a.tar\n", [("E216", 2, 11)]),
    ("defaults: {name: x}\n" + A + "    mix: {by: equal}\n", [("E216", 1, 12), ("E216", 4, 5)]),
    (A + "    tags: {__key__: x}\n", [("E216", 3, 12)]),
    (A + "environments: {a: {splits: {}}}\n", [("E216", 3, 20)]),
    ("wdspec: 2\n" + A, [("E218", 1, 9)]),
    ("dataset:\n  - {shards: a.tar, weight: 1}\n  - {shards: b.tar, probability: 1}\n", [("E301", 3, 21)]),
    ("dataset:\n  - {shards: a.tar}\n  - {shards: b.tar, weight: 1}\n", [("E301", 3, 21)]),
    (
        "dataset:\n  - {shards: a.tar, probability: 0.6}\n  - {shards: b.tar, probability: 0.3}\n",
        [("E302", 2, 34)],
    ),
    ("dataset:\n  - {shards: a.tar, weight: 0}\n  - {shards: b.tar, weight: 0.0}\n", [("E303", 2, 29)]),
    ("dataset:\n  - {shards: a.tar, upsample: 0}\n", [("E303", 2, 3)]),
    ("dataset:\n  - {name: a, shards: a.tar}\n  - {name: a, shards: b.tar}\n", [("E304", 3, 12)]),
    (
        "batch: 4\ndataset:\n  - {shards: a.tar, extensions: jpg}\n  - {shards: b.tar, extensions: nrm.jpg}\n",
        [("E305", 4, 21)],
    ),
    ("batch: {global_size: 512}\nepoch: 100\n" + A, [("E306", 2, 8)]),
    ("epoch: {batches: 10}\n" + A, [("E306", 1, 9)]),
    ("batch: {global_size: 100}\nelastic: {ranks: 16}\n" + A, [("E307", 1, 22)]),
    ("dataset:\n  - {shards: a.tar, extensions: png, rename: {image: jpg}}\n", [("E308", 2, 54)]),
    ("fields: image text\nto_tuple: [jpg, image]\n" + A, [("E308", 2, 12)]),
    ("fields: [jpg, txt]\n" + A + "    extensions: jpg\n", [("E308", 1, 15)]),
    ("dataset:\n  - {shards: a.tar, scale: 0.5, decode: raw}\n", [("E309", 2, 41)]),
    (A + "    decode: {meta: pkl}\n", [("E311", 3, 20)]),
    (A + "    interleave: 0\n", [("E204", 3, 17)]),
    (
        "epoch: pass\nmix: {draw: random}\n" + A + "    weight: 1\n    order: resampled\n",
        [("E312", 2, 1), ("E312", 5, 5), ("E312", 6, 12)],
    ),
    (
        "epoch: {pass: drop}\ndefaults: {upsample: 2}\ndataset:\n  - mix: {by: equal}\n    dataset:\n"
        "      - shards: a.tar\n      - shards: b.tar\n",
        [("E312", 2, 12), ("E312", 4, 5)],
    ),
    ("epoch: pass\nto_tuple: [jpg, txt]\n" + A, [("E312", 2, 11)]),
    ("epoch: {pass: drop}\nto_tuple: [jpg, txt]\n" + A + "    select: m:f\n", [("E312", 2, 11)]),
    ("epoch: pass\nskip: 3\n" + A, [("E312", 2, 1)]),
    (
        "skip: [5..3, -1, 3-5, 1.5, true, 7..]\n" + A,
        [(code, 1, at) for code, at in SKIPS],
    ),
    ("skip: []\n" + A, [("E214", 1, 7)]),
    ("skip: [0..10, 20, {from: 3, to: 5}]\n" + A, [("E202", 1, 19)]),
    (
        "loader: {kind: threads}\nmap: m:f\nbatch: {size: 2, collate: {txt: m:f}}\n"
        + A
        + "    select: m:f\n    decode: {txt: m:f}\n",
        [("E318", 2, 1), ("E318", 3, 33), ("E318", 6, 5), ("E318", 7, 19)],
    ),
    (
        "batch: {cost: 'a +', max_cost: 9, limits: {'b(': 3}, balance: x**2}\ncosts: {p: q, q: p}\n" + A,
        [("E330", 1, 16), ("E330", 1, 46), ("E330", 1, 63), ("E330", 2, 12), ("E330", 2, 18)],
    ),
    (
        "batch: {cost: jpg.pixels, max_cost: 9}\nepoch: 8\nlimit: 9\nstage: m:f\nmix: {unit: batch}\n" + A,
        [("E331", 2, 8), ("E331", 3, 8), ("E331", 4, 8), ("E331", 5, 13)],
    ),
    ("batch: {cost: txt.lenght, max_cost: 9}\n" + A, [("E316", 1, 15)]),
    ("batch: {cost: 'jpg.pixels + default(jpg.widht, 1)', max_cost: 9}\n" + A, [("E316", 1, 15)]),
    (A + "    rename: {n: cls}\nbatch: {cost: n.length, max_cost: 9}\n", [("E316", 4, 15)]),
    (
        "batch: {cost: 1, overlong: split}\n" + A,
        [("E206", 1, 9), ("E207", 1, 28)],
    ),
    ("skip: [20..30, 1..4, 4..9, 25]\n" + A, [("E317", 1, 22), ("E317", 1, 28)]),
    ("epoch: 10\nto_tuple: [jpg, __mask__]\n" + A, [("E308", 2, 17)]),
    ("epoch: {pass: drop, samples: 3}\n" + A, [("E207", 1, 21)]),
    ("epoch: {pass: whole}\n" + A, [("E203", 1, 15)]),
    ("cache: 's3://b/x'\n" + A, [("E202", 1, 8)]),
    ("cache: {size: 5GB}\n" + A, [("E206", 1, 8)]),
    ("cache: {dir: x, size: lots}\n" + A, [("E211", 1, 23)]),
    ("aistore: {endpoint: 'ftp://x', use_for: [gs, http]}\n" + A, [("E219", 1, 21), ("E219", 1, 41)]),
    ("aistore: {endpoint: h, etl: short, namespace: b}\n" + A, [("E219", 1, 29), ("E219", 1, 47)]),
    ("aistore: {endpoint: 'http://me:pw@h'}\n" + A, [("E219", 1, 21)]),
    ("aistore: {endpoint: h, token: abc}\n" + A, [("E220", 1, 24)]),
    (A + "    aistore: {endpoint: h, etl: etl-224}\n    tar: {end: lenient}\n", [("E314", 4, 5)]),
    ("aistore: {use_for: gs}\n" + A, [("W104", 1, 10)]),
    ("dataset:\n  - shards: htps://host/a.tar\n", [("W105", 2, 13)]),
    ("batch: 017\n" + A, [("W106", 1, 8)]),
    ("dataset:\n  - shards: [a.tar, 's3:/bucket/a-{0..3}.tar']\n", [("W105", 2, 21)]),
    ("errors: {retry: soon, timeout: -1}\n" + A, [("E211", 1, 17), ("E204", 1, 32)]),
    (A + "    decode: tenbin\n", [("E209", 3, 13)]),
    (A + "    extensions: jpg\n    decode: {jgp: rgb8}\n", [("E315", 4, 19)]),
    (A + "map: {txt: {call: m:f, field: a}}\n", [("E201", 3, 6)]),
    (A + "batch: {size: 2, ragged: {a: list}}\n", [("E203", 3, 26)]),
    (A + "batch: {group_by: cls, max_size: 2}\n", [("E207", 3, 24)]),
    (A + "    extensions: txt cls\n    map: {txt: m:f, clss: m:f}\n", [("E316", 4, 21)]),
    (A + "    extensions: txt cls\nmap: {tx: m:f}\n", [("E316", 4, 7)]),
    (A + "    extensions: txt cls\nbatch: {size: 2, collate: {txtt: pad}}\n", [("E316", 4, 28)]),
    (A + "    extensions: txt cls\nbatch: {size: 2, collate: {txtt: list, cls: list}}\n", [("E316", 4, 28)]),
    (
        A + "    map: m:f\nto_tuple: txt\nbatch: {size: 2, collate: {cls: pad, __key__: list}}\n",
        [("E316", 5, 28)],
    ),
    (A + "    decode: {image: rgb8+upwright}\n", [("E209", 3, 21)]),
    (A + "    decode: {meta: json+upright}\n", [("E209", 3, 20)]),
    ("mix: {unit: batch}\n" + A, [("E206", 1, 7)]),
    ("mix: {schedule: []}\n" + A, [("E214", 1, 7)]),
    (
        "mix: {draw: round_robin, schedule: [{at: 0, shares: {a: 1}}]}\n" + A,
        [("E207", 1, 26)],
    ),
    (
        "mix: {schedule: [{at: 0, shares: {a: 1}}], by: equal}\n" + A + "    weight: 1\n",
        [("W102", 1, 44), ("E207", 4, 5)],
    ),
    (
        "mix: {schedule: [{at: 0, shares: {A: 1, b: 0}}, {at: 9, shares: {a: 0}}]}\n" + A,
        [("E105", 1, 35), ("E105", 1, 41), ("E303", 1, 65), ("W102", 3, 5)],
    ),
    (
        "mix:\n  schedule: [{at: 0, shares: {x: 1}}]\ndataset:\n  - {name: in, dataset: [{name: x, shards: a.tar}]}\n",
        [("E105", 2, 31), ("W102", 4, 5)],
    ),
    ("mix: {schedule: [{at: 0, shares: {a: 1}, ramp: linear}]}\n" + A, [("E313", 1, 48)]),
    (
        "mix: {schedule: [{at: 5, shares: {a: 1}}, {at: 5, shares: {a: 1}}, {at: 1, shares: {a: 1}}]}\n" + A,
        [("E313", 1, 23), ("E313", 1, 48), ("E313", 1, 73)],
    ),
    (
        "mix: {schedule: [{at: -1, shares: {a: -1, b: x}}, {shares: {}}, {at: 3}]}\n" + A,
        [("E204", 1, 23), ("E204", 1, 39), ("E202", 1, 46), ("E206", 1, 51), ("E206", 1, 65)],
    ),
    ("prefix: x\ndatasets:\n  - {shards: a.tar, choose: 3}\n", [("E402", 2, 1)]),
    ("__module__: megatron.energon\nsplits: {}\n", [("E402", 1, 1)]),
    ("datasets:\n  - {shards: [a.tar], nworkers: 3}\n", [("E402", 1, 1)]),
    ("vars: {bukket: b}\n" + A, [("W101", 1, 8)]),
    (
        "dataset:\n  - {name: a, shards: 'x-{000..009}.tar'}\n  - {name: b, shards: 'x-{005..020}.tar'}\n",
        [("W301", 3, 23)],
    ),
    ("dataset:\n" + SUBSETS.format("[0%, 50%]", "[40%, 100%]"), [("W301", 3, 23)]),
    ("dataset:\n" + SUBSETS.format("50%", "{part: [50%, 100%], seed: 1}"), [("W301", 3, 23)]),
    (
        "dataset:\n"
        + SUBSETS.format("[0%, 50%]", "[50%, 100%]")
        + "  - {name: c, shards: a.tar, subset: 1%}\n",
        [("W301", 4, 23)],
    ),
    ("dataset:\n" + SUBSETS.format("0.5", "[0.5, 1]") + "  - {name: c, shards: a.tar}\n", [("W301", 4, 23)]),
    (A + "    subset: 10\n", [("E210", 3, 13)]),
    (A + "    max_passes: 2\n", [("E322", 3, 5)]),
    (A + "    on_exhausted: drop\n", [("E206", 3, 5)]),
    ("epoch: pass\n" + A + "    max_passes: 2\n    samples: 9\n", [("E207", 4, 5)]),
    (
        "batch: {cost: txt.length, max_cost: 9}\n"
        + A
        + "    max_passes: 2\n    samples: 9\n    on_exhausted: stop\n",
        [("E207", 6, 19)],
    ),
    (
        "batch: {cost: jpg.width, max_cost: 9}\nstage: a:b\n" + A,
        [("E331", 2, 8)],
    ),
    (A + "    subset: [90%, 10%]\n", [("E210", 3, 13)]),
    (A + "    subset: {of: a.b}\n", [("E206", 3, 13)]),
    (A + "    subset: {of: a + b, part: 3%}\n", [("E330", 3, 18)]),
    (A + "    where: 'json.a >'\n", [("E330", 3, 13)]),
    (A + "    where: 1 < 2\n", [("E330", 3, 12)]),
    (A + "    where: json.a / 0 > 1\n", [("E330", 3, 12)]),
    ("dataset: [", [("E005", 1, 11)]),
    ("dataset:\n  -\u00a0shards: a.tar\n", [("E202", 2, 3)]),
    ("batch: {size: 4, global_size: 8}\n" + A, [("E207", 1, 18)]),
    (
        A + "    extensions: jpg;png\n    where: png.a > 1 and jpg.widht > 2\n",
        [("E316", 4, 12), ("E316", 4, 12)],
    ),
    (A + "    extensions: jpg json\n    where: josn.a > 1\n", [("W392", 4, 12)]),
    (A + "    keys: []\n", [("E214", 3, 11)]),
    (A + "    keys_of: json.uid\n", [("E206", 3, 5)]),
    (A + "    exclude: [a]\n    keys_of: json.uid + 1\n", [("E330", 4, 14)]),
    (
        "splits:\n  train: {dataset: [{shards: 'a-{000..090}.tar'}]}\n"
        "  more: {dataset: [{shards: 'a-{090..099}.tar'}]}\n",
        [("W302", 3, 29)],
    ),
    ("dataset:\n  - shards: ['a-{000..009}.tar', a-003.tar]\n", [("W303", 2, 34)]),
    ("dataset:\n  - shards: 'a-{000-123}.tar'\n", [("W311", 2, 16)]),
    ("dataset:\n  - shards: a-%06d.tar\n", [("W312", 2, 15)]),
    ("dataset:\n  - shards: a.tar, b.tar\n", [("W313", 2, 18)]),
    ("dataset:\n  - shards: 'data\\train\\a.tar'\n", [("W314", 2, 18)]),
    ("dataset:\n  - shards: 'a-{00..123}.tar'\n", [("W315", 2, 16)]),
    ("dataset:\n  - shards: 'train-{000..009}.csv'\n", [("W316", 2, 30)]),
    ("dataset:\n  - shards: gs://bucket/train\n", [("W317", 2, 13)]),
    ("dataset:\n  - shards: /home/ann/data/a.tar\n", [("W321", 2, 13)]),
    ("dataset:\n  - shards: /tmp/a.tar\n", [("W322", 2, 13)]),
    ("dataset:\n  - shards: https://ann:hunter22@host/a.tar\n", [("W323", 2, 13)]),
    ("rewrite:\n  - {from: s3://, to: /mnt/}\ndataset:\n  - shards: gs://b/a.tar\n", [("W331", 2, 12)]),
    (
        "rewrite:\n  - {from: gs://, to: /mnt/}\n  - {from: gs://b/, to: /fast/}\ndataset:\n  - shards: gs://b/a.tar\n",
        [("W332", 3, 12)],
    ),
    (
        "rewrite:\n  - {from: 'gs://', to: 'pipe:gsutil cat '}\ndataset:\n  - shards: gs://b/a.tar\n",
        [("W333", 2, 25)],
    ),
    (
        "epoch: 1000\ndataset:\n  - {name: a, shards: a.tar, weight: 10000}\n  - {name: b, shards: b.tar, weight: 1}\n",
        [("W341", 4, 30)],
    ),
    (
        "epoch: 100_000\ndataset:\n  - {name: a, shards: a.tar, weight: 1, samples: 50}\n"
        "  - {name: b, shards: b.tar, weight: 1}\n",
        [("W342", 3, 50)],
    ),
    ("vars: {set: train}\ndataset:\n  - shards: 'data/${set}-{000..009}.tar'\n", [("W343", 3, 13)]),
    ("dataset:\n  - {shards: a.tar, weight: 0.3}\n", [("W344", 2, 21)]),
    ("dataset:\n  - {name: Cats, shards: a.tar}\n  - {name: cats, shards: b.tar}\n", [("W345", 3, 12)]),
    ("batch: 64\nepoch: 10_000\ndataset:\n  - shards: a.tar\n", [("W351", 2, 8)]),
    ("batch: 8\nepoch: 16\ndataset:\n  - shards: 'a-{000..099}.tar'\n", [("W352", 2, 8)]),
    ("batch: {global_size: 512}\ndataset:\n  - shards: a.tar\n", [("W353", 1, 9)]),
    ("batch: 256\ndataset:\n  - {shards: a.tar, shuffle: 100}\n", [("W354", 3, 30)]),
    ("skip: 8..23\nbatch: 4\nelastic: {ranks: 2}\nepoch: 64\n" + A, [("W355", 1, 7)]),
    ("skip: [0..4, 5..9]\nbatch: 4\nepoch: {batches: 10}\n" + A, [("W355", 1, 7)]),
    ("elastic: {ranks: 8, workers: 4}\ndataset:\n  - shards: 'a-{00..15}.tar'\n", [("W361", 3, 5)]),
    ("dataset:\n  - {shards: 'a-{00..15}.tar.gz', interleave: 8}\n", [("W362", 2, 14)]),
    ("cache: {dir: cache, size: 500}\ndataset:\n  - shards: 's3://b/a-{000..099}.tar'\n", [("W363", 1, 27)]),
    ("batch: 8\ndataset:\n  - {shards: a.tar, extensions: jpg cls, decode: pil}\n", [("W371", 3, 50)]),
    ("dataset:\n  - {shards: a.bin}\n", [("E335", 2, 14)]),
    ("dataset:\n  - {shards: a.ds, tokens: {length: 8}}\n", [("E336", 2, 28)]),
    ("dataset:\n  - {shards: a.bin, tokens: {length: 8, eos: 0}}\n", [("E337", 2, 29)]),
    ("dataset:\n  - {shards: a.tar, tokens: {length: 8}}\n", [("W385", 2, 21)]),
    ("dataset:\n  - {shards: 'a-{0..3}.jsonl.gz', key: last_dot}\n", [("W385", 2, 35)]),
    ("dataset:\n  - {shards: a, format: mds, tar: {end: lenient}}\n", [("W385", 2, 30)]),
    ("dataset:\n  - {shards: a.tar, scaleprob: 0.3}\n", [("W372", 2, 21)]),
    ("allow: [pickle]\ndataset:\n  - {shards: a.tar, decode: {meta: pkl}}\n", [("W373", 1, 8)]),
    ("errors: skip\ndataset:\n  - shards: a.tar\n", [("W374", 1, 9)]),
    ("fields: jpg jpg\ndataset:\n  - shards: a.tar\n", [("W375", 1, 9)]),
    ("to_tuple: jpg cls\ndataset:\n  - {shards: a.tar, extensions: jpg cls json}\n", [("W376", 3, 33)]),
    ("dataset:\n  - shards: a-$i.tar\n", [("W318", 2, 15)]),
    ("dataset:\n  - shards: '@a.tar'\n", [("W319", 2, 13)]),
    (
        "rewrite:\n  - {from: 's3://(.*)', to: 'gs://$1'}\ndataset:\n  - shards: s3://b/a.tar\n",
        [("W334", 2, 29)],
    ),
    ("dataset:\n  - {shards: a.tar, scale: [1, 224]}\n", [("W377", 2, 28)]),
    ("aistore: {endpoint: http://h}\ndataset:\n  - shards: s3://b/a.tar\n", [("W107", 1, 10)]),
    (A.rstrip() + "  # wdspec: ignore=E201\n", [("W002", 2, 37)]),
    (A.rstrip() + "  # wdspec: ignore=W101\n", [("W003", 2, 37)]),
    ("mix: {by: equal}\n" + A + "    weight: 1\n", [("W102", 1, 7)]),
    ("loader: {workers: 2, kind: threads, persistent: false}\n" + A, [("W102", 1, 37)]),
    ("dataset:\n  - shards: img/own-.*\\.tar\n", [("W320", 2, 23)]),
    (
        "map: {jpg: 'torchvision.transforms.v2:Resize'}\n" + A + "    decode: rgb8\n",
        [("W379", 1, 7)],
    ),
    ("dataset:\n  - {shards: a.tar, shuffle: 1_000_000_000}\n", [("W356", 2, 30)]),
    ("dataset:\n  - {shards: a.tar, rename: {b: txt}, tags: {a: 1, b: 1}}\n", [("W380", 2, 52)]),
    (
        "elastic: {ranks: 1, workers: 4}\nloader: {workers: 3}\ndataset:\n  - shards: 'a-{0..7}.tar'\n",
        [("W364", 2, 19)],
    ),
    (
        "batch: 4\n" + A + "    extensions: jpg\n    decode: rgb8\n  - shards: b.tar\n    extensions: jpg\n"
        "    decode: torchrgb8\n",
        [("E320", 8, 13)],
    ),
    (A + "    extensions: txt\n    expect: {fields: {text: str}}\n", [("E316", 4, 23)]),
    (A + "    extensions: cls txt\n    rename: {cls: txt}\n", [("E321", 4, 19)]),
    ("map: [{cal: 'm:f'}]\n" + A, [("W378", 1, 8)]),
    ("batch: {size: 4, collate: {txt: pad}}\n" + A + "    extensions: txt\n", [("E319", 1, 33)]),
    *(
        (
            f"map: {calls}\nbatch: {batch}\n{A}    extensions: jpg txt\n    rename: {{ids: txt}}\n{more}",
            expected,
        )
        for calls, batch, more, expected in (
            ("{ids: 'm:f'}", "{cost: ids.length / 3, max_cost: 9}", "", [("W357", 2, 15)]),
            ("{ids: 'm:f'}", "{cost: ceil(0.3 * ids.length), max_cost: 9}", "", [("W357", 2, 15)]),
            ("{ids: 'm:f'}", "{size: 2, group_by: (ids.length + 3) / 4}", "", [("W357", 2, 28)]),
            ("{ids: 'm:f'}", "{pack: {fields: ids, length: 9}}", "    decode: rgb8\n", [("E357", 2, 9)]),
            ("{ids: 'm:f'}", "{cost: ids.length, max_cost: 9}", "    scale: 0.5\n", [("E357", 2, 15)]),
            ("{jpg: 'm:f'}", "{cost: 9 + jpg.width, max_cost: 99}", "", [("E357", 2, 15)]),
            ("{jpg: 'm:f'}", "{size: 2, group_by: jpg.aspect}", "    decode: rgb8\n", [("E357", 2, 28)]),
            (
                "{call: 'm:f', sets: jpg}",
                "{cost: '1', max_cost: 9, limits: {jpg.width: 9}}",
                "",
                [("E357", 2, 42)],
            ),
            ("{ids: 'm:f'}\nfields: jpg", "{cost: ids.length, max_cost: 9}", "", [("E316", 3, 15)]),
            ("'m:f'", "{pack: {fields: tokens, length: 9}}", "", [("E316", 2, 15)]),
            ("'m:f'", "{cost: tokens.length, max_cost: 9}", "", [("E316", 2, 15)]),
            ("{call: 'm:f', sets: tokens}", "{cost: token.length, max_cost: 9}", "", [("E316", 2, 15)]),
            ("{ids: 'm:f'}\nstage: m:f", "{cost: before_map(ids.length), max_cost: 9}", "", [("E331", 2, 8)]),
            (
                "{ids: 'm:f'}\nstage: m:f",
                "{cost: ids.length, max_cost: 9}",
                "    decode: rgb8\n",
                [("E357", 3, 15)],
            ),
        )
    ),
    ("map: {ids: {call: m:f, sets: ids}}\n" + A, [("E203", 1, 6)]),
    ("map: {call: m:f, sets: []}\n" + A, [("E214", 1, 24)]),
    ("batch: {size: 64, group_by: cls, group_wait: 50}\n" + A, [("E355", 1, 46)]),
    ("batch: {size: 20_000, group_by: cls}\n" + A, [("E355", 1, 8)]),
    ("batch: {pack: {fields: npy, length: 9, cu_seqlens: npy}}\n" + A, [("E356", 1, 52)]),
    ("batch: {pack: {fields: npy, length: 9, cu_seqlens: n, max_seqlen: n}}\n" + A, [("E356", 1, 67)]),
    ("batch: {pack: {fields: npy, length: 9, segment_ids: __cost__}}\n" + A, [("E356", 1, 53)]),
    ("batch: {pack: {fields: [npy, npy], length: 9}}\n" + A, [("E356", 1, 24)]),
    ("batch: {pack: {fields: npy, length: 9, pad_to_multiple_of: 16}}\n" + A, [("E207", 1, 9)]),
    ("batch: {pack: {fields: npy, length: 9, pad: {txt: 1}}}\n" + A, [("E206", 1, 46)]),
    (
        A + "    extensions: jpg cls\n    decode: {jpg: rgb8+resize=32x32+device=cuda}\n",
        [("E360", 4, 13)],
    ),
    (
        "batch: 8\nmap: package.module:function\n"
        + A
        + "    extensions: jpg cls\n    decode: {jpg: rgb8+resize=32x32+device=cuda}\n",
        [("E361", 6, 13)],
    ),
    (
        "batch: {cost: txt.length, max_cost: 9}\n"
        "mix: {schedule: [{at: 0, shares: {a: 1}}, {at: {batches: 9}, shares: {a: 2}}]}\n" + A,
        [("E331", 2, 48)],
    ),
    ("batch: {cost: txt.length, max_tokens: 9}\n" + A + "    extensions: txt\n", [("E386", 1, 39)]),
    ("batch: {size: 8, group_by: json.text.length}\n" + A, [("W416", 1, 28)]),
    ("batch: {size: 8, collate: {npy: {pad: {mask: cls}}}}\nfields: npy cls\n" + A, [("E356", 1, 46)]),
    ("batch: {size: 8, collate: {a: {pad: {mask: m}}, b: {pad: {mask: m}}}}\n" + A, [("E356", 1, 65)]),
    (
        A
        + "    extensions: flac json\n    decode: audio\n    make:\n"
        + "      sound: {segment: flac, offset: json.offset}\n",
        [("E391", 6, 14)],
    ),
    (
        A + "    extensions: flac json\n    where: flac.seconds < 20\n"
        "    make:\n      sound: {segment: flac, offset: json.offset}\n",
        [("W419", 4, 12)],
    ),
    (
        "batch: {cost: flac.seconds, max_cost: 20, collate: {sound: list}}\nfields: sound\n"
        + A
        + "    extensions: "
        "flac json\n    make:\n      sound: {segment: flac, duration: json.duration}\n",
        [("W419", 1, 15)],
    ),
]
ELSEWHERE = {
    "E002": "test_hostile_specs",
    **dict.fromkeys(
        ("E370", "E371", "E395", "W366", "W367", "W368", "W440", "W442", "W455", "W456"), "test_making"
    ),
    "W458": "test_unmoved",
    "W470": "test_other_intents",
    **dict.fromkeys(("W443", "W444"), "test_words"),
    **dict.fromkeys(("W446", "W447", "W448", "W449", "W480"), "test_hints_for_images"),
    "W457": "test_class_numbers",
    "W481": "test_class_numbers",
    "W459": "test_class_names",
    "W490": "test_lint_rules",
    "W491": "test_class_numbers",
    "W497": "test_class_numbers",
    "W492": "test_lint_rules",
    "W460": "jobs/test_measured_lengths",
    "E385": "test_tokenizer_files",
    "W461": "test_tokenizer_files",
    "W495": "test_hints_for_images",
    **dict.fromkeys(("E392", "W453"), "test_requirements"),
    **dict.fromkeys(("E393", "E394", "E396", "W452", "W454"), "policies/"),
    **{code: "policies/" for code in CODES if code.startswith("P")},
    **dict.fromkeys(("E377", "E378", "E390"), "steps/test_step_jobs"),
    **dict.fromkeys(("E404", "W450", "W451"), "test_source_lists"),
    "E003": "test_hostile_specs",
    "E009": "test_hostile_specs",
    "E016": "test_hostile_specs",
    "E104": "test_loading",
    "E403": "test_locks",
    **dict.fromkeys(("E365", "E366", "E367", "E387", "W496"), "test_fetching"),
    **dict.fromkeys(("E372", "E373", "E374", "E375", "E376", "W430", "W431"), "test_companions"),
    "E113": "test_loading",
    "E310": "test_loading",
    "W001": "test_hostile_specs",
    "W441": "cli/test_data_checks",
    **{f"W50{number}": "cli/test_data_checks" for number in range(1, 9)},
    **{code: "checking/" for code in CODES if code.startswith("D")},
    "W393": "jobs/test_what_is_left",
    "W394": "shards/test_unknown_keys",
    "W398": "cli/test_explain_command",
    "W511": "cli/test_simulate_command",
    "W512": "cli/test_simulate_command",
    "W513": "cli/test_explain_command",
    "W514": "cli/test_data_checks",
    "W515": "cli/test_data_checks",
    **{f"W{number}": "advice/test_values" for number in range(525, 531)},
    "W532": "advice/test_advice",
    "W340": "advice/test_remedies",
    "W516": "advice/test_advice",
    "W531": "advice/test_tries",
    **{f"W52{number}": "advice/test_remedies" for number in (0, 1, 2, 3, 4)},
    "W103": "test_hostile_specs",
    "W108": "jobs/test_stats_command",
    "W109": "jobs/test_stats_command",
    "W110": "cli/test_validate_command",
    "W111": "test_units",
    "W417": "test_left_in",
    "W418": "test_left_in",
    "W395": "test_rewrites_of_several_shards",
    "W396": "test_units",
    "W397": "test_units",
    "W399": "test_units",
    **{f"W40{number}": "test_other_intents" for number in range(10)},
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "split.yaml").write_text("splits: {test: {dataset: [{shards: t.tar}]}}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"), BAD, ids=lambda value: value[0][0] if isinstance(value, list) else None
)
def test_each_mistake_is_reported_at_its_place(
    here: Path, text: str, expected: list[tuple[str, int, int]]
) -> None:
    (here / "spec.yaml").write_text(text)
    named = {code for code, _, _ in expected}
    found = [
        problem for problem in check("spec.yaml")[1] if problem.code[:2] != "W3" or problem.code in named
    ]
    assert [(problem.code, problem.line, problem.column) for problem in found] == expected


def test_every_code_has_a_test() -> None:
    tested = {code for _, expected in BAD for code, _, _ in expected} | set(ELSEWHERE)
    assert tested == set(CODES)


@pytest.mark.parametrize("code", [code for code, about in CODES.items() if about.bad])
def test_the_example_of_each_code_has_that_problem(here: Path, code: str) -> None:
    (here / "spec.yaml").write_text(CODES[code].bad)
    assert code in [problem.code for problem in check("spec.yaml")[1]]


GOLDEN = {
    "dataset:\n  - shards: a.tar\n    extension: nrm.jpg\n": """\
spec.yaml:3:5: E201 unknown key `extension` in a source
  3 |     extension: nrm.jpg
    |     ^^^^^^^^^
    = did you mean `extensions`?""",
    "dataset:\n  - {name: a, shards: a.tar, probability: 0.6}\n  - {name: b, shards: b.tar, probability: 0.3}\n": """\
spec.yaml:2:43: E302 the probabilities of this list sum to 0.9, not to 1
  2 |   - {name: a, shards: a.tar, probability: 0.6}
    |                                           ^^^
    = normalized, they are a: 0.666666667, b: 0.333333333; or write `weight` instead of `probability`""",
    "dataset:\n  - shards: gs://b/x-{000010..000001}.tar\n": """\
spec.yaml:2:22: E213 empty brace range: 10 > 1; did you mean {000001..000010}?
  2 |   - shards: gs://b/x-{000010..000001}.tar
    |                      ^""",
    "dataset:\n  - {shards: a-{0..3}.tar}\n": """\
spec.yaml:2:16: E005 this map `{…}` is not closed or a comma is missing
  2 |   - {shards: a-{0..3}.tar}
    |                ^
    = inside `{…}` and `[…]`, put text with `{`, `}`, `[`, `]` or `,` in quotes: "a-{000..123}.tar\"""",
}


@pytest.mark.parametrize(("text", "golden"), GOLDEN.items(), ids=["key", "sum", "range", "flow"])
def test_messages_are_exactly_these(here: Path, text: str, golden: str) -> None:
    (here / "spec.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load("spec.yaml")
    assert str(caught.value) == golden


def test_all_problems_are_reported_at_once_in_file_order(here: Path) -> None:
    text = (
        "seed: x\ndataset:\n  - shards: a-{3..1}.tar\n    scal: 1\n  - {shards: b.tar, weight: -1}\nlimt: 3\n"
    )
    (here / "spec.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load("spec.yaml")
    lines = [problem.line for problem in caught.value.problems]
    assert lines == sorted(lines) == [1, 3, 4, 5, 5, 6]


def test_a_spec_error_survives_pickling(here: Path) -> None:
    (here / "spec.yaml").write_text("seed: x\ndataset: [{shards: a.tar}]\n")
    with pytest.raises(SpecError) as caught:
        load("spec.yaml")
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.problems == caught.value.problems


def test_a_problem_in_a_default_is_reported_once(here: Path) -> None:
    sources = "".join(f"  - shards: s{i}.tar\n" for i in range(20))
    (here / "spec.yaml").write_text(f"defaults: {{shuffle: many}}\ndataset:\n{sources}")
    assert [(p.code, p.line, p.column) for p in check("spec.yaml")[1]] == [("E202", 1, 21)]


def test_carets_are_aligned_after_tabs_and_wide_characters() -> None:
    problem = Problem("E201", "m", "", "f", 3, 5, 3, "\tあ: abc")
    assert str(problem).splitlines()[1:] == ["  3 |  あ: abc", "    |      ^^^"]


def test_long_lines_are_truncated_around_the_caret() -> None:
    line = "x" * 5_000 + "HERE" + "y" * 5_000
    _, excerpt, carets = str(Problem("E201", "m", "", "f", 3, 5_001, 4, line)).splitlines()
    assert len(excerpt) < LINE_WIDTH + 12
    at = carets.index("^")
    assert excerpt[at : at + 4] == "HERE"


def test_control_characters_never_reach_the_terminal() -> None:
    assert "\x1b" not in str(Problem("E004", "m", "", "f", 1, 1, 1, "\x1b[31mred"))


def test_json_and_github_output_contain_place_and_hint() -> None:
    problem = Problem("E201", "a: b, 100%\nc", "do x", "d,r/a:b.yaml", 3, 5, 4, "line")
    checked = [CheckedSpec(problem.file, [problem])]
    (listed,) = json.loads("\n".join(REPORTS["json"](checked)))
    assert listed == {
        "severity": "error",
        "code": "E201",
        "message": "a: b, 100%\nc",
        "hint": "do x",
        "file": "d,r/a:b.yaml",
        "line": 3,
        "column": 5,
        "length": 4,
    }
    place = "::error file=d%2Cr/a%3Ab.yaml,line=3,col=5,endColumn=9,title=E201::"
    assert next(REPORTS["github"](checked)) == place + "a: b, 100%25%0Ac%0Ado x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (A + "extends: {a: b}\n", "`extends` takes the path of a file, but this is a map"),
        (A + "extends: [[base.yaml]]\n", "`extends` takes the path of a file, but this is a list"),
        ("dataset: {shards: a.tar}\n", "`dataset` takes a list of sources, but this is a map"),
        ("dataset:\n  - [a.tar]\n", "a source is a map of keys, but this is a list"),
        ("- shards: a.tar\n", "expected a map at the top, but this is a list"),
    ],
)
def test_messages_name_the_type_of_the_value(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    assert message in [problem.message for problem in check(path)[1]]


@pytest.mark.parametrize(
    "text",
    [
        A + "    extensions: txt cls\nmap: [m:f, {tx: m:f}]\nbatch: {size: 2, collate: {txtt: pad}}\n",
        A + "    map: {tx: m:f}\nbatch: {size: 2, collate: {txtt: list}}\n",
        A
        + "    extensions: txt cls\n    tags: {lang: en}\nbatch: {size: 2, collate: {lang: list, __key__: list}}\n",
        A + "    extensions: txt cls\nmap: {txt: m:f}\nfields: a;b\nbatch: {size: 2, collate: {a: pad}}\n",
        A + "batch: {cost: txt.length, max_cost: 9}\n",
        A + "    decode: {cls: json}\nbatch: {cost: cls.weight, max_cost: 9}\n",
        A + "    tags: {cls: {weight: 3}}\nbatch: {cost: cls.weight, max_cost: 9}\n",
    ],
)
def test_optional_fields_are_not_a_mistake(here: Path, text: str) -> None:
    (here / "spec.yaml").write_text(text)
    assert "E316" not in {problem.code for problem in check("spec.yaml")[1]}


@pytest.mark.parametrize(
    ("train", "val"),
    [
        ("subset: [0%, 95%]", "subset: [95%, 100%]"),
        ("exclude: '@val.txt'", "keys: '@val.txt'"),
        ("where: json.fold != 3", "where: json.fold == 3"),
        ("subset: {of: json.user, part: 50%}", "subset: {of: json.user, part: [0.5, 1]}"),
    ],
)
def test_two_sources_or_splits_can_use_different_samples_of_one_shard(
    here: Path, train: str, val: str
) -> None:
    sources = (
        f"[{{name: a, shards: 'x-{{0..9}}.tar', {train}}}, {{name: b, shards: 'x-{{0..9}}.tar', {val}}}]"
    )
    (here / "spec.yaml").write_text(f"dataset: {sources}\n")
    assert check("spec.yaml")[1] == []
    one, other = sources[1:-1].split(", {name: b")
    (here / "spec.yaml").write_text(
        f"splits:\n  train: {{dataset: [{one}]}}\n  val: {{epoch: pass, dataset: [{{name: b{other}]}}\n"
    )
    assert check("spec.yaml")[1] == []


@pytest.mark.parametrize(
    ("written", "meant"), [("1200-1260", "1200..1260"), ("20-12", "12..20"), ("20..12", "12..20")]
)
def test_the_range_in_a_hint_is_valid(written: str, meant: str) -> None:
    document = {"skip": written, "dataset": [{"shards": "a.tar"}]}
    (problem,) = check(document)[1]
    assert problem.hint == f"write `{meant}`"
    assert check({**document, "skip": meant})[1] == []


def test_persistent_is_not_reported_as_unused() -> None:
    document = {"loader": {"workers": 1, "persistent": False}, "dataset": [{"shards": "a-{0..9}.tar"}]}
    assert check(document)[1] == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("cls = 3", "`==` for `=`"),
        ("json.a == 3 && json.b == 4", "`and` for `&&`"),
        ("json.a <> 3 OR json.b == 4", "`!=` for `<>`, `or` for `OR`"),
        ("!json.a || json.b", "`not` for `!`, `or` for `||`"),
    ],
)
def test_operators_of_other_languages_are_named(written: str, meant: str) -> None:
    (problem,) = check({"dataset": [{"shards": "a.tar", "where": written}]})[1]
    assert (problem.code, problem.hint) == ("E330", f"write {meant}")


def test_an_operator_in_a_text_is_no_operator_of_another_language() -> None:
    (problem,) = check({"dataset": [{"shards": "a.tar", "where": "json.a in ['=', \"&&\"] json"}]})[1]
    assert "go in quotes" in problem.hint


@pytest.mark.parametrize("merged", ["*a", "[*a, {shuffle: 3}]", "{shards: b.tar}"])
def test_what_a_merge_key_would_add_is_not_reported_as_missing(here: Path, merged: str) -> None:
    text = f"dataset:\n  - &a {{shards: a.tar, name: a}}\n  - {{<<: {merged}, name: b, shuffle: 2}}\n"
    (here / "spec.yaml").write_text(text)
    assert [problem.code for problem in check("spec.yaml")[1] if problem.is_error] == ["E013"]


def test_a_list_whose_items_are_all_wrong_is_not_reported_as_empty(here: Path) -> None:
    (here / "spec.yaml").write_text("dataset: &a\n  - *a\n")
    assert [problem.code for problem in check("spec.yaml")[1]] == ["E014"]


class _Cycle:
    """Garbage whose collection lets other threads run."""

    def __init__(self) -> None:
        self.cycle = self

    def __del__(self) -> None:
        for _ in range(200):
            pass


def test_an_expression_can_be_read_in_threads() -> None:
    """Until Python 3.13, `ast` counts its depth for all threads together, so it may fail in threads that parse."""
    text = "json.score >= 0.4 and (json.b + 3 * (json.c - 2)) in [1, 2]"
    expected = parse_expression(text)
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    try:
        with ThreadPoolExecutor(4) as threads:
            found = set(threads.map(lambda _: (_Cycle(), parse_expression(text))[1], range(2000)))
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)
    assert found == {expected}


@pytest.mark.parametrize(
    ("calls", "batch", "more"),
    [
        ("{ids: 'm:f'}", "{cost: ids.length, max_cost: 9}", ""),
        ("{ids: 'm:f'}", "{cost: 'ids.length + jpg.width', max_cost: 9}", ""),
        ("{ids: 'm:f'}", "{cost: 'before_map(ids.length) / 3', max_cost: 9}", "    decode: rgb8\n"),
        ("{ids: 'm:f'}", "{cost: ceil(ids.length / 8) * 8, max_cost: 9}", ""),
        ("{ids: 'm:f'}", "{cost: 'ids.anything[3].length', max_cost: 9}", ""),
        ("{ids: 'm:f'}", "{cost: jpg.width / 28, max_cost: 9}", "    decode: rgb8\n"),
        ("{ids: 'm:f'}", "{cost: '1', max_cost: 9, pack: {fields: ids, length: 9}}", "    decode: rgb8\n"),
        ("{jpg: 'm:f'}", "{cost: before_map(jpg.width), max_cost: 9}", "    decode: rgb8\n"),
        ("{ids: 'm:f'}\nfields: ids", "{cost: ids.length, max_cost: 9}", "    decode: rgb8\n"),
        ("{call: 'm:f', sets: [tokens, labels]}", "{pack: {fields: [tokens, labels], length: 9}}", ""),
        ("'m:f'", "{cost: '1', max_cost: 9, pack: {fields: tokens}}", ""),
        ("[{call: 'm:f', sets: n}, {n: 'm:g'}]", "{cost: n, max_cost: 9}", ""),
    ],
)
def test_measures_after_map_are_no_mistake(here: Path, calls: str, batch: str, more: str) -> None:
    text = f"map: {calls}\nbatch: {batch}\n{A}    extensions: jpg txt\n    rename: {{ids: txt}}\n{more}"
    (here / "spec.yaml").write_text(text)
    codes = {problem.code for problem in check("spec.yaml")[1]}
    assert not codes & {"E316", "E357", "W357", "E206", "E330"}


def test_a_named_expression_is_followed_to_its_product(here: Path) -> None:
    text = "costs: {tokens: ids.length / 3}\nmap: {ids: 'm:f'}\nbatch: {cost: tokens + 1, max_cost: 9}\n"
    (here / "spec.yaml").write_text(text + A + "    rename: {ids: txt}\n")
    [problem] = [problem for problem in check("spec.yaml")[1] if problem.code == "W357"]
    assert problem.line == 3
    assert "`before_map(ids.length) / 3`" in problem.hint


def test_a_problem_of_one_environment_names_it():
    sources = [
        {"name": "a", "shards": "a.tar", "weight": "${w}"},
        {"name": "b", "shards": "b.tar", "weight": "${v}"},
    ]
    spec = {"vars": {"w": 1, "v": -1}, "environments": {"lab": {"vars": {"w": -3}}}, "dataset": sources}
    assert {each.message for each in check(spec)[1]} == {
        "`weight` must be at least 0, but this is -3 (in the environment `lab`)",
        "`weight` must be at least 0, but this is -1",
    }
    [problem] = [each for each in check(spec, env="lab")[1] if "-3" in each.message]
    assert problem.message == "`weight` must be at least 0, but this is -3"
