"""``WDS_SECURE``: whether programs and the code that a spec or a caller names are forbidden."""

from __future__ import annotations

import os
from collections.abc import Mapping

_OFF = frozenset({"", "0", "false", "no", "off"})


def secure_mode(environ: Mapping[str, str] | None = None) -> bool:
    """Whether ``WDS_SECURE`` forbids programs (`pipe:`), user code and pickle.

    Any value forbids, but empty, 0, false, no and off in upper or lower case: who misspells it is kept safe. It is read
    where a spec is loaded, where the environment is read (`storage.environment`), and where a decoder is made outside
    of a spec; from there the answer is handed on as a value, so that all workers and ranks agree.

    Args:
        environ: ``os.environ`` by default.
    """
    environ = os.environ if environ is None else environ
    return environ.get("WDS_SECURE", "").strip().lower() not in _OFF
