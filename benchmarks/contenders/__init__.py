"""The contenders of `python -m benchmarks`: name → how it reads each row that it supports."""

from benchmarks.contenders.converted import CONVERTED
from benchmarks.contenders.energon import ENERGON
from benchmarks.contenders.lhotse_shar import LHOTSE
from benchmarks.contenders.limits import LIMITS
from benchmarks.contenders.others import OTHERS
from benchmarks.contenders.ours import OURS
from benchmarks.contenders.theirs import THEIRS

CONTENDERS = {**OURS, **THEIRS, **OTHERS, **ENERGON, **CONVERTED, **LHOTSE, **LIMITS}
