"""`wdspec doctor`: information about this machine that helps to find out why something does not work."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from importlib import metadata
from itertools import groupby
from typing import NamedTuple

import click

from wdspec.base.errors import NO_SHARED_MEMORY, UsageError, WdspecError
from wdspec.base.process import cores
from wdspec.base.progress import with_progress
from wdspec.base.redaction import redacted_urls
from wdspec.cli.output import Block, Row, Table, Warning, pluralize, show_report, size
from wdspec.cli.spec_options import SpecChoice, choosing_options, form_option
from wdspec.run.libraries import version_of
from wdspec.shards.listing import shards_of
from wdspec.spec.spec import Spec
from wdspec.storage.environment import VARIABLES, Environment, misspelled_variables, show_variable
from wdspec.storage.storage import Storage
from wdspec.urls.urls import AIS_PROVIDERS, scheme_of

_REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+).*?(?:extra == ['\"](\w+)['\"])?\s*$")
_FOR_DEVELOPERS = frozenset({"test", "fuzz", "frameworks", "docs"})
LITTLE_SHARED_MEMORY = 1 << 30
LITTLE_SPACE = 100 << 20
FEW_FILES = 4096


@click.command()
@click.argument("file", metavar="[SPEC]", required=False)
@choosing_options()
@form_option
def doctor(file: str | None, choose: Callable[[str], SpecChoice], form: str) -> int:
    """Show versions, optional libraries, limits of this machine, and relevant environment variables.

    With a SPEC, the first shard of each source is opened as in training, to check that its store responds; this runs
    the commands of `pipe:` URLs. If its workers are Ray actors, their cluster is asked for its nodes. The output
    contains no secrets, so you can post it in a bug report.

    Exit code: 1 if a variable is invalid, or a store or the Ray cluster does not respond.
    """
    reached: list[Reached] = []
    of_machine = list(limits())
    has_cluster = True
    if file is not None:
        spec = choose(file).load()
        reached = list(with_progress(reach(spec), "opening a shard of each source"))
        if spec.loader.kind == "ray":
            has_cluster, cluster = look_at_cluster(spec.loader.workers)
            of_machine.append(cluster)
    schemes = {scheme_of(each.url) for each in reached}
    variables = list(set_variables(schemes=schemes if reached else AIS_PROVIDERS.keys()))
    report = Health(programs(), list(list_libraries()), of_machine, variables, reached)
    show_report(report, form)
    is_wrong = any(each.is_wrong for each in variables) or any(each.error for each in reached)
    return int(is_wrong or not has_cluster)


@dataclass(frozen=True)
class Health:
    """Facts about the machine."""

    programs: dict[str, str]
    libraries: list[Installed]
    limits: list[Limit]
    variables: list[Variable]
    sources: list[Reached]

    def blocks(self) -> Iterator[Block]:
        yield Table((), [*self.programs.items(), *((each.name, each.value) for each in self.limits)])
        yield Table(("extra", "libraries"), list(_extras(self.libraries)))
        if self.variables:
            yield Table(
                ("variable", "value", "what it does"),
                [(each.name, each.value, each.meaning) for each in self.variables],
            )
        else:
            yield "no relevant variable is set"
        if self.sources:
            yield Table(
                ("source", "shards>", "first one", "read from", "answer>"),
                [
                    (
                        each.source,
                        f"{each.shards:,}",
                        each.url,
                        each.location,
                        "none" if each.error else f"{1000 * each.seconds:,.0f} ms",
                    )
                    for each in self.sources
                ],
            )
        yield from (Warning(f"{each.name}: {each.advice}") for each in self.limits if each.advice)
        yield from (Warning(f"{each.name}: {each.advice}") for each in self.variables if each.advice)
        wrong = [each for each in self.sources if each.error]
        for source in wrong:
            yield Warning(f"{source.source}: {source.error}")
        if wrong:
            yield f"{pluralize(len(wrong), 'source')} of {len(self.sources)} cannot be read"


def _extras(libraries: list[Installed]) -> Iterator[Row]:
    """Rows such as `fast`, `isal 1.7.2, orjson not installed`."""
    ordered = sorted(libraries, key=lambda each: each.extra)
    for extra, group in groupby(ordered, key=lambda each: each.extra):
        shown = ", ".join(f"{each.library} {each.version or 'not installed'}" for each in group)
        yield (extra or "always", shown)


class Installed(NamedTuple):
    """A library that wdspec can use."""

    extra: str
    """The extra of wdspec that installs it; "" for required libraries."""
    library: str
    version: str | None
    """None if not installed."""


class Limit(NamedTuple):
    """A limit of the machine, with advice if it is low."""

    name: str
    value: str
    advice: str = ""


def list_libraries() -> Iterator[Installed]:
    """The libraries in wdspec's metadata, required ones first."""
    seen = set()
    for text in metadata.requires("wdspec") or ():
        found = _REQUIREMENT.match(text)
        assert found is not None
        library, extra = found[1], found[2] or ""
        if extra in _FOR_DEVELOPERS or library == "wdspec" or (library, extra) in seen:
            continue
        seen.add((library, extra))
        yield Installed(extra, library, version_of(library))


def programs() -> dict[str, str]:
    """Versions of wdspec, Python and the system."""
    return {
        "wdspec": version_of("wdspec") or "?",
        "Python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
    }


def limits() -> Iterator[Limit]:
    """Processors, memory, shared memory, the temporary folder and open files."""
    yield Limit("processors", str(cores()))
    if hasattr(os, "sysconf"):
        yield Limit("memory", size(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    if os.path.isdir("/dev/shm"):
        free = shutil.disk_usage("/dev/shm").free
        advice = f"workers pass batches through it; {NO_SHARED_MEMORY}" if free < LITTLE_SHARED_MEMORY else ""
        yield Limit("/dev/shm, free", size(free), advice)
    yield _temporary_folder()
    try:
        import resource
    except ImportError:
        return
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    few = files != resource.RLIM_INFINITY and files < FEW_FILES
    advice = (
        "many sources that interleave many shards may need more; raise it with `ulimit -n`" if few else ""
    )
    yield Limit("open files", "no limit" if files == resource.RLIM_INFINITY else f"{files:,}", advice)


def look_at_cluster(workers: int) -> tuple[bool, Limit]:
    """Return whether the Ray cluster of `loader: {kind: ray}` answers, and its nodes; starts none."""
    try:
        from wdspec.run.actors import describe_cluster, join_cluster

        join_cluster(starts=False)
    except UsageError as error:
        return False, Limit("Ray cluster", "none", error.message)
    value, free = describe_cluster()
    advice = ""
    if free < workers:
        advice = (
            f"each rank needs {workers} free CPUs (`loader: {{workers: {workers}}}`), and {free:g} are free"
        )
    return True, Limit("Ray cluster", value, advice)


def _temporary_folder() -> Limit:
    """The space in the folder for temporary files; Python has tried to write there."""
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError:
        advice = (
            "no folder can be written; mount one, such as an `emptyDir` of Kubernetes, and name it in TMPDIR"
        )
        return Limit("temporary folder", "none", advice)
    free = shutil.disk_usage(folder).free
    advice = "tables of `lookup` and lists of keys are stored there; name a larger one in TMPDIR"
    return Limit(f"temporary folder, free ({folder})", size(free), advice if free < LITTLE_SPACE else "")


class Reached(NamedTuple):
    """The result of opening a source."""

    source: str
    shards: int
    url: str
    location: str
    """Where its bytes come from, after rewriting."""
    seconds: float
    """Time to the first byte."""
    error: str | None = None


def reach(spec: Spec) -> Iterator[Reached]:
    """Open the first shard of each source as in training, but without the cache; runs the commands of `pipe:`."""
    for source in spec.sources:
        found, url, location, error = 0, "", "", None
        began = time.perf_counter()
        try:
            storage = Storage.of(Environment.read(), spec, source)
            shards = shards_of(source, storage)
            found, first = len(shards), shards[0]
            url, resolution = first.text, storage.resolve(first)
            location = resolution.location
            began = time.perf_counter()
            with storage.open_location(location) as file:
                file.read(1)
        except WdspecError as failure:
            error = str(failure)
        seconds = time.perf_counter() - began
        yield Reached(source.name, found, redacted_urls(url), redacted_urls(location), seconds, error)


class Variable(NamedTuple):
    """An environment variable that is set."""

    name: str
    value: str
    """Without secrets."""
    meaning: str
    advice: str = ""
    is_wrong: bool = False
    """Whether its value is invalid."""


def set_variables(
    environ: Mapping[str, str] | None = None, schemes: Set[str] = AIS_PROVIDERS.keys()
) -> Iterator[Variable]:
    """The variables that are set, in the order of `VARIABLES`; then similar names, and invalid values.

    Args:
        environ: the environment.
        schemes: those of the shards to read.
    """
    environ = os.environ if environ is None else environ
    for name, meaning in VARIABLES.items():
        for spelling in dict.fromkeys((name, name.lower() if name.endswith("_PROXY") else name)):
            if spelling in environ:
                value = show_variable(name, environ[spelling])
                yield Variable(spelling, value, meaning, _advice(name, environ, schemes))
    for name, near in misspelled_variables(environ).items():
        yield Variable(name, "(set)", "is not used", f"did you mean {near}?")
    try:
        Environment.read(environ)
    except WdspecError as error:
        text = error.message
        # The longest: WDS_CACHE_SIZE starts with WDS_CACHE.
        name = max((name for name in VARIABLES if text.startswith(name)), key=len, default="variables")
        yield Variable(name, "(wrong)", "is invalid", text.removeprefix(f"{name}: "), True)


def _advice(name: str, environ: Mapping[str, str], schemes: Set[str]) -> str:
    if name == "GOPEN_REWRITE" and "WDS_REWRITE" in environ:
        return "it has no effect, since WDS_REWRITE is set"
    clouds = AIS_PROVIDERS.keys() & schemes - {"ais"}
    if name == "AIS_ENDPOINT" and clouds and not environ.get("USE_AIS_FOR", "").strip():
        return "only `ais://` uses it; name other schemes in USE_AIS_FOR"
    if name == "USE_AIS_FOR" and not environ.get("AIS_ENDPOINT", "").strip():
        return "AIS_ENDPOINT is not set, so specs must name the cluster"
    return ""
