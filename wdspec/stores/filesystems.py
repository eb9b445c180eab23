"""fsspec's file systems: found by scheme, one per process and settings, and their errors as ours.

Many of them keep threads, event loops and sockets, which do not survive a fork: children never use what a parent made
(s3fs, gcsfs and adlfs would hang there).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import logging
import os
import ssl
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from wdspec.base.errors import (
    MissingShardError,
    RefusedShardError,
    ShardError,
    StoreError,
    UnusableStoreError,
    find_lack,
    install_command,
)
from wdspec.base.process import KeyedValues, PerProcess
from wdspec.base.redaction import harmless, redact_answer
from wdspec.stores.retry import PASSING, TransientError
from wdspec.stores.settings import ObjectLogin
from wdspec.urls.urls import ROWS, scheme_of

T = TypeVar("T")

_NO_ACCESS = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "ProfileNotFound",
        "ClientAuthenticationError",
        "CredentialUnavailableError",
        "AuthenticationException",
        "BadHostKeyException",
        "DefaultCredentialsError",
        "RefreshError",
        "GatedRepoError",
        "NoCredentialProviders",
    }
)
_OF_LOGINS = (
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "RequestTimeTooSkewed",
)
"""Codes of S3 about the login itself, with several statuses."""
_MISSING = frozenset({"ResourceNotFoundError", "EntryNotFoundError", "RepositoryNotFoundError"})
_NO_CONTACT = frozenset(
    {
        "EndpointConnectionError",
        "ConnectTimeoutError",
        "ClientConnectorError",
        "ClientConnectorDNSError",
        "ServiceRequestError",
        "ConnectionRefusedError",
        "NoValidConnectionsError",
        "gaierror",
    }
)
_MISTAKES = (TypeError, ValueError, AttributeError, NotImplementedError, LookupError, ImportError)
_VALIDATORS = ("ETag", "etag", "generation", "version_id", "VersionId", "md5Hash", "blob_id")
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "modify", "created")

RENEWAL = 60.0
"""Least age in seconds of a file system that is made again, so that refusals for other reasons cost little."""

HUB_WAIT = 60.0
"""Seconds that a request of the Hugging Face Hub waits for its answer."""

reached: set[str] = set()
"""Schemes whose stores have answered in this process."""

_inherited: list[Any] = []
_OF_OUR_PARSER = "aiohttp.http_exceptions"
"""Errors about a response that is cut or garbled: their `code` 400 does not come from the store."""


@lru_cache(maxsize=1)
def known_schemes() -> Mapping[str, Mapping[str, str]]:
    """The schemes that fsspec knows: the class that reads each, and fsspec's message if it is missing."""
    from fsspec.registry import known_implementations, registry

    registered = {
        str(name): {"class": f"{each.__module__}.{each.__qualname__}"} for name, each in registry.items()
    }
    known = {str(name): dict(each) for name, each in known_implementations.items()}
    return {**registered, **known}


def describe_scheme(scheme: str) -> str:
    """The reader of a scheme that fsspec knows, or what to install for it; imports nothing."""
    reader = known_schemes()[scheme]["class"]
    return find_missing(scheme) or f"{reader.rsplit('.', 1)[-1]} of {reader.split('.')[0]}"


def find_missing(scheme: str) -> str | None:
    """What to install for a scheme, if fsspec knows it and its package is missing; imports nothing but fsspec."""
    reader = known_schemes().get(scheme, {}).get("class")
    if reader is None or importlib.util.find_spec(reader.split(".")[0]) is not None:
        return None
    return _to_install(scheme)


def filesystem_of(location: str, login: ObjectLogin | None = None) -> tuple[Any, str]:
    """The file system that reads a URL, made on first use in this process, and the path of the URL in it.

    One without an event loop belongs to one thread, as in fsspec.

    Raises:
        ShardError: the package for it is not installed, or its settings are wrong.
        StoreError: `login` is not for this scheme, or lacks a secret.
        TransientError: some file systems connect at once, and the connection failed.
    """
    from fsspec import get_filesystem_class

    scheme = scheme_of(location)
    try:
        kind = _plain(get_filesystem_class(scheme))
    except ImportError as error:
        raise UnusableStoreError(f"{_to_install(scheme)} ({error})", location=location) from None
    with explaining(location):
        own = {} if login is None else login.arguments(scheme)
        try:
            options = {**kind._get_kwargs_from_urls(location), **own, "skip_instance_cache": True}
            if kind.async_impl:
                options["use_listings_cache"] = False
            system = _instance(kind, options)
            if scheme == "hf":
                _limit_waits_of_hub()
            return system, kind._strip_protocol(location)
        except ImportError as error:
            raise UnusableStoreError(f"{_to_install(scheme)} ({error})", location=location) from None


def _plain(kind: Any) -> Any:
    """gcsfs without its newest part, unless gcsfs's own variable asks for it.

    That part first requests the type of each bucket over gRPC, which does not survive a fork, and which emulators do
    not answer (a wait of a minute).
    """
    if kind.__name__ == "ExtendedGcsFileSystem" and "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT" not in os.environ:
        return importlib.import_module("gcsfs.core").GCSFileSystem
    return kind


def _instance(kind: Any, options: dict[str, Any]) -> Any:
    thread = None if kind.async_impl else threading.get_ident()
    key = (kind, thread, tuple(sorted((name, repr(value)) for name, value in options.items())))
    system = _systems.value.get(key, lambda: _without_retries(kind(**options)))
    vars(system).setdefault("_wdspec_made", (key, time.monotonic()))
    return system


def _without_retries(system: Any) -> Any:
    """Leave retries to `errors.retry`, which says what fails.

    Azure's library waits 15 s before the first one. That of GCS waits 31 s in total before its fifth, and then writes
    a traceback, unless a logger has a handler; one is left to it, since writing depends on it.
    """
    bare = getattr(getattr(type(system), "_request", None), "__wrapped__", None)
    if bare is not None and type(system).__module__.startswith("gcsfs"):
        retry = importlib.import_module("gcsfs.retry")
        retry.logger.addHandler(logging.NullHandler())
        system._request = types.MethodType(retry.retry_request(retries=2)(bare), system)
    policy = getattr(getattr(getattr(system, "service_client", None), "_config", None), "retry_policy", None)
    if policy is not None:
        policy.total_retries = 0
    return system


def _limit_waits_of_hub() -> None:
    """Let no request of huggingface_hub wait forever, which it does by itself: a lost connection would stop a run.

    The limit is that of botocore and gcsfs. The library makes a new client after some errors, so this is done before
    each use. Before version 1, its client was one of requests, which has no such hooks.
    """
    hooks = getattr(importlib.import_module("huggingface_hub").get_session(), "event_hooks", None)
    if hooks is not None and _limit_wait not in hooks["request"]:
        hooks["request"].append(_limit_wait)


def _limit_wait(request: Any) -> None:
    limits = request.extensions["timeout"]
    request.extensions["timeout"] = {
        each: HUB_WAIT if limit is None else limit for each, limit in limits.items()
    }


def renew(location: str, login: ObjectLogin | None) -> bool:
    """After a refusal, let the next use make the file system again, with the credentials that it finds then.

    Returns whether it does: not for one that is new, which has just read them.
    """
    key, made = vars(filesystem_of(location, login)[0])["_wdspec_made"]
    if time.monotonic() - made < RENEWAL:
        return False
    _systems.value.drop(key)
    return True


def _leave_alone(inherited: KeyedValues[Any, Any]) -> None:
    """In a forked child, neither use nor collect what the parent made.

    Its finalizers would wait for an event loop that does not run here, and remove the parent's connections from the
    parent's selector, which both share.
    """
    _inherited.append(inherited)
    if "fsspec.asyn" in sys.modules:
        sys.modules["fsspec.asyn"].reset_lock()


_systems: PerProcess[KeyedValues[Any, Any]] = PerProcess(KeyedValues, _leave_alone)


def validator_of(info: Mapping[str, Any]) -> str | None:
    """A value that changes when an object does, from what a store says about it; None without one."""
    for name in (*_VALIDATORS, *_TIMES):
        if info.get(name):
            return f"{name} {info[name]}"
    return None


def translate_error(error: BaseException, location: str) -> Exception:
    """Return our error for an error of a file system: transient, missing or final, with a remedy."""
    scheme, name = scheme_of(location), type(error).__name__
    said = f"{name}: {redact_answer(_first_line(error), location)}"
    status = _status(error)
    if (lack := find_lack(error)) is not None:
        return UnusableStoreError(f"the store cannot be read ({said}); {lack}", location=location)
    if _is_untrusted(error):
        return UnusableStoreError(
            f"the certificate of the store is not trusted ({said}); if your own authority issued it, name that "
            "authority's file (AWS_CA_BUNDLE for S3, REQUESTS_CA_BUNDLE or SSL_CERT_FILE elsewhere)",
            location=location,
        )
    if isinstance(error, FileNotFoundError) or name in _MISSING or status in (404, 410):
        return MissingShardError(
            f"no such object; correct the URL, or rewrite it with WDS_REWRITE or, in a spec, `rewrite:` ({said})",
            location=location,
        )
    is_login = status == 401 or name in _NO_ACCESS or any(each in str(error) for each in _OF_LOGINS)
    if is_login or isinstance(error, PermissionError) or status == 403:
        todo = _advice(scheme) or "ask its owner, or give credentials"
        kind = UnusableStoreError if is_login else RefusedShardError
        return kind(f"the store denies access ({said}); {todo}", location=location)
    if isinstance(error, IsADirectoryError):
        return ShardError(
            "a directory, not an object; end its name with `/` to read the shards in it", location=location
        )
    if status is not None and 400 <= status < 500 and status not in PASSING:
        return ShardError(f"the store does not understand the request ({said})", location=location)
    if isinstance(error, _MISTAKES) and status is None:
        hint = f"; {advice}" if (advice := _advice(scheme)) else ""
        return ShardError(f"it cannot be opened ({said}){hint}", location=location)
    if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
        return TransientError(f"no answer in time ({said})")
    return TransientError(said, brief=name in _NO_CONTACT and scheme not in reached)


@contextlib.contextmanager
def explaining(location: str) -> Iterator[None]:
    """Raise errors of a file system as ours."""
    try:
        yield
    except GeneratorExit:  # at exit, the names below may already be None
        raise
    except (ShardError, StoreError, TransientError):
        raise
    except Exception as error:  # whatever a file system raises
        raise translate_error(error, location) from harmless(error)


def ask(location: str, login: ObjectLogin | None, question: Callable[[Any, str], T]) -> T:
    """The answer of a file system to a question about a URL, without retries. Raises ShardError for any failure."""
    try:
        with explaining(location):
            system, path = filesystem_of(location, login)
            with alone(system):
                return question(system, path)
    except TransientError as error:
        raise ShardError(str(error), location=location) from error.__cause__


def _is_untrusted(error: BaseException | None) -> bool:
    """Whether an untrusted certificate caused an error, so that retrying does not help."""
    for _ in range(20):
        if error is None:
            return False
        if isinstance(error, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _status(error: BaseException) -> int | None:
    """The HTTP status that an error is about, wherever a library keeps it."""
    for each in (error, error.__cause__):
        if type(each).__module__ == _OF_OUR_PARSER:
            continue
        response = getattr(each, "response", None)
        if isinstance(response, Mapping):
            response = response.get("ResponseMetadata", {})
            if isinstance(response, Mapping) and isinstance(response.get("HTTPStatusCode"), int):
                return int(response["HTTPStatusCode"])
        for holder in (each, response):
            for name in ("status", "status_code", "code"):
                value = getattr(holder, name, None)
                if isinstance(value, int) and 100 <= value < 600:
                    return value
    return None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else "no message"


def _advice(scheme: str) -> str | None:
    """What to do if the store of a scheme refuses."""
    return ROWS[scheme].advice if scheme in ROWS else None


def _to_install(scheme: str) -> str:
    package = ROWS[scheme].install if scheme in ROWS else None
    if package is None:
        advice = known_schemes()[scheme].get("err", "install the package that reads it")
        return f"nothing installed reads {scheme}://: {advice}"
    return f"nothing installed reads {scheme}://: {install_command(package)}"


def alone(system: Any) -> contextlib.AbstractContextManager[Any]:
    """Let one thread at a time use a file system without an event loop.

    Those have one connection, and paramiko and ftplib mix up the answers to two threads: one would wait forever.
    """
    if system.async_impl:
        return contextlib.nullcontext()
    lock: contextlib.AbstractContextManager[Any] = vars(system).setdefault("_wdspec_alone", threading.RLock())
    return lock
