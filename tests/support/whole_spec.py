"""A spec with nearly every key, and a change of each."""

from typing import Any

import yaml

FULL = """
wdspec: 1
name: pages
seed: 17
vars: {bucket: gs://tess, n: 64}
defaults: {decode: rgb, shuffle: 1000, extensions: jpg;png txt, rename: {image: jpg, text: txt}}
dataset:
  - name: archive
    shards: ${bucket}/ia1-{000000..000033}.tar
    probability: 0.6
    scale: [0.5, 2.0]
    scaleprob: 0.3
    tags: {kind: 1}
    key: {regex: '(.*)[.](.*)'}
    errors: {max_count: 3}
  - name: synthetic
    probability: 0.4
    mix: {by: equal, temperature: 2}
    dataset:
      - {shards: "${bucket}/gsub-{000000..000167}.tar", weight: 3}
      - {shards: ["${bucket}/bin-{a,b}.tar", 'c.tar::d.tar'], weight: 1, rewrite: [{from: a, to: b}]}
mix: {draw: even}
map: [{call: "mylib.augment:train", args: {p: 0.5}}]
fields: [image, text]
to_tuple: image text
batch: {global_size: "${n}"}
epoch: {samples: 1_000_000}
rewrite: [{from: "gs://", to: "./shared/data/"}]
errors: {max_rate: 0.001}
loader: {workers: 8, prefetch: 4, pin_memory: true, timeout: 5m}
allow: [pickle]
limit: 10000
skip: [1200..1260, 5]
environments:
  laptop: {rewrite: [{from: "gs://", to: "./data/"}], epoch: 2048, sources: {archive: {shuffle: 10}}}
"""
DOCUMENT: dict[str, Any] = yaml.safe_load(FULL.replace("1_000_000", "1000000"))


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(node, dict):
        for key, value in node.items():
            found += places(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            found += places(value, (*path, index))
    return found


def copied(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: copied(value) for key, value in node.items()}
    return [copied(item) for item in node] if isinstance(node, list) else node
