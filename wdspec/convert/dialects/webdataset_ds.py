"""webdataset's `.ds.yml` of 2021: sources with loading options, read in turn."""

from __future__ import annotations

from wdspec.convert.dialect import Dialect
from wdspec.convert.dialects.webdataset_shards import location
from wdspec.convert.given import Given, maps_in, number, texts_in
from wdspec.convert.new_spec import NewSpec

_OWN = frozenset(
    {
        "resampled",
        "epoch_shuffle",
        "split_by_worker",
        "split_by_node",
        "cachedir",
        "cachesize",
        "subsample",
        "chunksize",
        "nworkers",
        "probability",
        "shuffle",
        "epoch",
    }
)


def _recognises(given: Given) -> bool:
    sources = maps_in(given.top.get("datasets"))
    return (
        bool(sources)
        and all("shards" in each for each in sources)
        and (any(_OWN & set(each) for each in sources) or "epoch" in given.top)
        and "wdspec" not in given.top
    )


def _convert(given: Given, new: NewSpec) -> None:
    dataset = []
    for each in maps_in(given.top["datasets"]):
        shards = [location(given.top, each, text, new) for text in texts_in(each["shards"])]
        where = str(each.get("name") or "a source")
        source = new.source(
            str(each.get("name") or ""),
            shards,
            weight=1,
            order="resampled" if each.get("resampled") else None,
            shuffle=int(size) if (size := number(each.get("shuffle"))) else None,
        )
        if each.get("cachedir"):
            source["cache"] = {"dir": new.path(str(each["cachedir"]))}
            if (limit := number(each.get("cachesize"))) and limit > 0:
                source["cache"]["size"] = int(limit)
        new.note_keys(
            each,
            {
                "probability": "webdataset stored it and never used it, all sources came in turn; if shares "
                "were meant, "
                "write them in place of the weights",
                "subsample": "which samples are kept is for `select: package.module:function`",
                "epoch": "an epoch is of the whole mixture: `epoch: …` at the top",
                "nworkers": "workers are of the whole: `loader: {workers: …}`",
            },
            where,
        )
        dataset.append(source)
    if epoch := number(given.top.get("epoch")):
        new.spec["epoch"] = {"samples": int(epoch)}
        new.note("`epoch` counted samples of each worker; here they are counted over all ranks together")
    if len(dataset) > 1:
        new.note(
            "webdataset ended with the last source; here sources begin anew, and an epoch has a length of its own"
        )
        new.spec["mix"] = {"draw": "round_robin"}
    new.spec["dataset"] = dataset


DIALECT = Dialect("webdataset-ds", "an older `.ds.yml` of webdataset", _recognises, _convert)
