"""The public names, each with its home: for type checkers, and for `__init__.py`, which imports them on first use."""

from wdspec.compiler import compile as compile
from wdspec.compiler import loader as loader
from wdspec.compiler import plan as plan
from wdspec.errors import FieldError as FieldError
from wdspec.errors import MissingShardError as MissingShardError
from wdspec.errors import ShardError as ShardError
from wdspec.errors import SpecError as SpecError
from wdspec.errors import StoreError as StoreError
from wdspec.errors import UrlError as UrlError
from wdspec.errors import UsageError as UsageError
from wdspec.errors import WdspecError as WdspecError
from wdspec.fields.codecs.images.image_encoder import ImageEncoder as ImageEncoder
from wdspec.fluent import error_handlers
from wdspec.fluent.datapipeline import DataPipeline as DataPipeline
from wdspec.fluent.datapipeline import Processor as Processor
from wdspec.fluent.datapipeline import RandomMix as RandomMix
from wdspec.fluent.datapipeline import ResizedDataset as ResizedDataset
from wdspec.fluent.datapipeline import RoundRobin as RoundRobin
from wdspec.fluent.datapipeline import ShardList as ShardList
from wdspec.fluent.datapipeline import WebLoader as WebLoader
from wdspec.fluent.decoder import Decoder as Decoder
from wdspec.fluent.error_handlers import ignore_and_continue as ignore_and_continue
from wdspec.fluent.error_handlers import ignore_and_stop as ignore_and_stop
from wdspec.fluent.error_handlers import reraise_exception as reraise_exception
from wdspec.fluent.error_handlers import warn_and_continue as warn_and_continue
from wdspec.fluent.error_handlers import warn_and_stop as warn_and_stop
from wdspec.fluent.field_handlers import handle_extension as handle_extension
from wdspec.fluent.field_handlers import imagehandler as imagehandler
from wdspec.fluent.field_handlers import torch_audio as torch_audio
from wdspec.fluent.field_handlers import torch_video as torch_video
from wdspec.fluent.spec_pipeline import SpecPipeline as SpecPipeline
from wdspec.fluent.stages.batching import batched as batched
from wdspec.fluent.stages.batching import default_collation_fn as default_collation_fn
from wdspec.fluent.stages.batching import listed as listed
from wdspec.fluent.stages.batching import unbatched as unbatched
from wdspec.fluent.stages.batching import unlisted as unlisted
from wdspec.fluent.stages.dbcache import DBCache as DBCache
from wdspec.fluent.stages.decode_stage import decode as decode
from wdspec.fluent.stages.field_patterns import extract_keys as extract_keys
from wdspec.fluent.stages.field_patterns import xdecode as xdecode
from wdspec.fluent.stages.inspecting import info as info
from wdspec.fluent.stages.inspecting import log_keys as log_keys
from wdspec.fluent.stages.inspecting import non_empty as non_empty
from wdspec.fluent.stages.inspecting import slice as slice
from wdspec.fluent.stages.mapping import associate as associate
from wdspec.fluent.stages.mapping import map as map
from wdspec.fluent.stages.mapping import map_dict as map_dict
from wdspec.fluent.stages.mapping import map_tuple as map_tuple
from wdspec.fluent.stages.mapping import select as select
from wdspec.fluent.stages.record_shards import cbors_to_samples as cbors_to_samples
from wdspec.fluent.stages.record_shards import jsonl_to_samples as jsonl_to_samples
from wdspec.fluent.stages.record_shards import msgpacks_to_samples as msgpacks_to_samples
from wdspec.fluent.stages.renaming import rename as rename
from wdspec.fluent.stages.renaming import rename_keys as rename_keys
from wdspec.fluent.stages.renaming import to_tuple as to_tuple
from wdspec.fluent.stages.shard_lists import ResampledShards as ResampledShards
from wdspec.fluent.stages.shard_lists import SimpleShardList as SimpleShardList
from wdspec.fluent.stages.shard_mix import MultiShardSample as MultiShardSample
from wdspec.fluent.stages.shuffling import detshuffle as detshuffle
from wdspec.fluent.stages.shuffling import rsample as rsample
from wdspec.fluent.stages.shuffling import shuffle as shuffle
from wdspec.fluent.stages.splitting import single_node_only as single_node_only
from wdspec.fluent.stages.splitting import split_by_node as split_by_node
from wdspec.fluent.stages.splitting import split_by_worker as split_by_worker
from wdspec.fluent.stages.tar_shards import group_by_keys as group_by_keys
from wdspec.fluent.stages.tar_shards import tar_file_expander as tar_file_expander
from wdspec.fluent.stages.tar_shards import tarfile_to_samples as tarfile_to_samples
from wdspec.fluent.stages.tar_shards import url_opener as url_opener
from wdspec.planning.plan import Plan as Plan
from wdspec.reading.sample_rng import sample_rng as sample_rng
from wdspec.running.gathering import gather_state as gather_state
from wdspec.running.loader import Loader as Loader
from wdspec.running.run_state import merge_states as merge_states
from wdspec.spec.language.models import Spec as Spec
from wdspec.spec.loading import load as load
from wdspec.stores.user_stores import opener as opener
from wdspec.stores.user_stores import store as store
from wdspec.webdataset import WebDataset as WebDataset
from wdspec.writing.record_writer import RecordWriter as RecordWriter
from wdspec.writing.shard_writer import ShardWriter as ShardWriter
from wdspec.writing.tar_writer import TarWriter as TarWriter

handlers = error_handlers
__all__: list[str]

__version__: str
