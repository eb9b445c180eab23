"""`wdspec.Decoder`: for samples, without torch; and for datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wdspec.fluent.sample_decoder import SampleDecoder


class Decoder(SampleDecoder):
    __doc__ = f"""{SampleDecoder.__doc__}
    Called on a dataset instead of a sample it gives the pipeline that decodes it.
    """

    def __call__(self, sample: Any) -> Any:
        """The sample, decoded into a new dict; or, for a dataset, the pipeline that decodes each of its samples."""
        if isinstance(sample, Mapping):
            return super().__call__(sample)
        from wdspec.fluent.datapipeline import DataPipeline
        from wdspec.fluent.stages.mapping import map

        return DataPipeline(sample, map(super().__call__))
