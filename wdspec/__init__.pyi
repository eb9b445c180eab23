"""The public names and the modules that define them: for type checkers, and for `__init__.py`, which imports them.

They are grouped by what a user does with them.
"""

# Train
from wdspec.api import compile as compile
from wdspec.api import loader as loader
from wdspec.integrations.tracking import log_run as log_run
from wdspec.read.padding import Padded as Padded
from wdspec.read.randomness import sample_rng as sample_rng
from wdspec.run.loader import Loader as Loader
from wdspec.run.ranks import gather_state as gather_state
from wdspec.run.ranks import loss_scale as loss_scale
from wdspec.run.state import merge_states as merge_states
from wdspec.stores.table import opener as opener
from wdspec.stores.table import store as store
from wdspec.webdataset.spec_pipeline import SpecPipeline as SpecPipeline

# isort: split
# Inspect and check a spec
from wdspec.api import plan as plan
from wdspec.planning.plan import Plan as Plan
from wdspec.spec.load import load as load
from wdspec.spec.load import validate as validate
from wdspec.spec.spec import Spec as Spec

# isort: split
# Errors
from wdspec.base.errors import DecodingError as DecodingError
from wdspec.base.errors import FieldError as FieldError
from wdspec.base.errors import MissingShardError as MissingShardError
from wdspec.base.errors import ShardError as ShardError
from wdspec.base.errors import SpecError as SpecError
from wdspec.base.errors import StoreError as StoreError
from wdspec.base.errors import UrlError as UrlError
from wdspec.base.errors import UsageError as UsageError
from wdspec.base.errors import WdspecError as WdspecError

# isort: split
# Write shards
from wdspec.fields.codecs.image_encoder import ImageEncoder as ImageEncoder
from wdspec.write.parquet_writer import ParquetWriter as ParquetWriter
from wdspec.write.record_writer import RecordWriter as RecordWriter
from wdspec.write.shard_writer import ShardWriter as ShardWriter
from wdspec.write.tar_writer import TarWriter as TarWriter

# isort: split
# What webdataset has under the same names
from wdspec.webdataset import handlers as _handlers
from wdspec.webdataset.autodecode import Decoder as Decoder
from wdspec.webdataset.autodecode import torch_audio as torch_audio
from wdspec.webdataset.autodecode import torch_video as torch_video
from wdspec.webdataset.batching import batched as batched
from wdspec.webdataset.batching import default_collation_fn as default_collation_fn
from wdspec.webdataset.batching import listed as listed
from wdspec.webdataset.batching import unbatched as unbatched
from wdspec.webdataset.batching import unlisted as unlisted
from wdspec.webdataset.compat import Processor as Processor
from wdspec.webdataset.compat import ResizedDataset as ResizedDataset
from wdspec.webdataset.compat import ShardList as ShardList
from wdspec.webdataset.compat import WebDataset as WebDataset
from wdspec.webdataset.compat import WebLoader as WebLoader
from wdspec.webdataset.decoding import decode as decode
from wdspec.webdataset.decoding import handle_extension as handle_extension
from wdspec.webdataset.filters import Cached as Cached
from wdspec.webdataset.filters import info as info
from wdspec.webdataset.filters import log_keys as log_keys
from wdspec.webdataset.filters import slice as slice
from wdspec.webdataset.gopen import gopen as gopen
from wdspec.webdataset.handlers import ignore_and_continue as ignore_and_continue
from wdspec.webdataset.handlers import ignore_and_stop as ignore_and_stop
from wdspec.webdataset.handlers import reraise_exception as reraise_exception
from wdspec.webdataset.handlers import warn_and_continue as warn_and_continue
from wdspec.webdataset.handlers import warn_and_stop as warn_and_stop
from wdspec.webdataset.mapping import associate as associate
from wdspec.webdataset.mapping import extract_keys as extract_keys
from wdspec.webdataset.mapping import map as map
from wdspec.webdataset.mapping import map_dict as map_dict
from wdspec.webdataset.mapping import map_tuple as map_tuple
from wdspec.webdataset.mapping import rename as rename
from wdspec.webdataset.mapping import rename_keys as rename_keys
from wdspec.webdataset.mapping import select as select
from wdspec.webdataset.mapping import to_tuple as to_tuple
from wdspec.webdataset.mapping import xdecode as xdecode
from wdspec.webdataset.mix import RandomMix as RandomMix
from wdspec.webdataset.mix import RoundRobin as RoundRobin
from wdspec.webdataset.pipeline import DataPipeline as DataPipeline
from wdspec.webdataset.sample_cache import DBCache as DBCache
from wdspec.webdataset.shardlists import MultiShardSample as MultiShardSample
from wdspec.webdataset.shardlists import ResampledShards as ResampledShards
from wdspec.webdataset.shardlists import SimpleShardList as SimpleShardList
from wdspec.webdataset.shardlists import expand_urls as expand_urls
from wdspec.webdataset.shardlists import non_empty as non_empty
from wdspec.webdataset.shuffling import detshuffle as detshuffle
from wdspec.webdataset.shuffling import resampled as resampled
from wdspec.webdataset.shuffling import rsample as rsample
from wdspec.webdataset.shuffling import shuffle as shuffle
from wdspec.webdataset.splitting import single_node_only as single_node_only
from wdspec.webdataset.splitting import split_by_node as split_by_node
from wdspec.webdataset.splitting import split_by_worker as split_by_worker
from wdspec.webdataset.stage import PipelineStage as PipelineStage
from wdspec.webdataset.stage import pipelinefilter as pipelinefilter
from wdspec.webdataset.tariterators import cbors_to_samples as cbors_to_samples
from wdspec.webdataset.tariterators import group_by_keys as group_by_keys
from wdspec.webdataset.tariterators import tar_file_expander as tar_file_expander
from wdspec.webdataset.tariterators import tarfile_to_samples as tarfile_to_samples
from wdspec.webdataset.tariterators import url_opener as url_opener
from wdspec.webdataset.utils import repeatedly as repeatedly

handlers = _handlers
__all__: list[str]

__version__: str
