"""Why a request or a body failed: whether it may pass, and what to say."""

from __future__ import annotations

import re
import ssl
from typing import TypeVar

from urllib3 import exceptions

from wdspec.errors import ShardError
from wdspec.streams.retrying import RetryPolicy, TransientError

_REMEDY = "if it was made by an authority of your own, name that authority's file in SSL_CERT_FILE"
_REMEDIES = {
    9: "it will be valid later: is the clock of this machine right?",
    10: "whoever runs the server has to renew it, if the clock of this machine is right",
    62: "name the host as the certificate does",
    64: "name the host as the certificate does, not its address",
}
"""By the number that OpenSSL gives to what is wrong with a certificate."""
_E = TypeVar("_E", bound=BaseException)
_OBJECT = re.compile(r"<[\w.]+ object at 0x[0-9a-f]+>:? ?|\w+\(host='[^']*', port=[^)]*\): ?")


def classified(error: Exception, host: str, retry_policy: RetryPolicy, answers: bool = True) -> Exception:
    """Our error for one of urllib3's.

    Args:
        error: what a request or a `read` raised.
        host: that was asked, for the message.
        retry_policy: its time-outs go into messages.
        answers: whether this host has ever answered this process.

    Returns:
        A TransientError; a ShardError for what does not pass by itself.
    """
    certificate = _cause(error, ssl.SSLCertVerificationError)
    if certificate is not None:
        said = certificate.verify_message or str(certificate)
        remedy = _REMEDIES.get(certificate.verify_code, _REMEDY)
        return ShardError(f"the certificate of {host} is not trusted: {said}; {remedy}")
    secure = _cause(error, ssl.SSLError)
    if secure is not None and secure.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"):
        return ShardError(f"{host} does not speak TLS; is it `http:` instead of `https:`?")
    if _cause(error, exceptions.NameResolutionError) is not None:
        return TransientError(
            f"there is no host {host} ({_words(error)}); correct its name, or see whether this machine has a network "
            "and whether a proxy is needed (HTTP_PROXY, HTTPS_PROXY)",
            brief=not answers,
        )
    if isinstance(error, exceptions.ProxyError):
        return TransientError(
            f"the proxy for {host} failed: {_words(error.original_error)}", brief=not answers
        )
    if _cause(error, exceptions.ConnectTimeoutError) is not None and not isinstance(
        error, exceptions.NewConnectionError
    ):
        return TransientError(
            f"no connection to {host} in {retry_policy.connect_timeout:g} s", brief=not answers
        )
    if _cause(error, ConnectionRefusedError) is not None:
        return TransientError(f"{host} refuses the connection: is a server running there?", brief=not answers)
    if isinstance(error, exceptions.NewConnectionError):
        return TransientError(f"no connection to {host}: {_words(error)}", brief=not answers)
    if isinstance(error, exceptions.ReadTimeoutError):
        return TransientError(f"{host} gave nothing for {retry_policy.read_timeout:g} s")
    if isinstance(error, exceptions.LocationValueError):
        return ShardError(f"this is no URL that can be asked for: {_words(error)}")
    cut = _cause(error, exceptions.IncompleteRead)
    if cut is not None and cut.expected is not None:
        return TransientError(
            f"the connection to {host} broke after {cut.partial:,} bytes of an answer; {cut.expected:,} are missing"
        )
    return TransientError(f"the connection to {host} broke: {_words(error)}")


def _cause(error: BaseException | None, kind: type[_E]) -> _E | None:
    """The first error of a kind on the way to what caused this one."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, kind):
            return error
        seen.add(id(error))
        inner = next((each for each in error.args if isinstance(each, BaseException)), None)
        error = inner or error.__cause__ or error.__context__
    return None


def _words(error: object) -> str:
    """What an error says, without the names of Python's objects."""
    return _OBJECT.sub("", str(error)).strip() or type(error).__name__
