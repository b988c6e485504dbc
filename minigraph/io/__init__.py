"""Saving and loading: variables, programs, models for inference, state dictionaries.

Files are in the layouts of Paddle 1.8.5, which minigraph reads and writes, or in the safetensors format, which is
recommended for new files. A file is written whole or not at all. Reading a file runs no code from it. A file that is
damaged, or does not fit, is an error and changes nothing.

`DataLoader` and the readers of `minigraph.reader` are here too, as in fluid.
"""

from minigraph.io.inference_model import load_inference_model, save_inference_model
from minigraph.io.program_desc import serialize_program
from minigraph.io.program_reading import deserialize_program
from minigraph.io.programs import load, load_program_state, save, set_program_state
from minigraph.io.safetensors_files import load_safetensors, save_safetensors
from minigraph.io.state_dicts import load_dygraph, save_dygraph
from minigraph.io.variables import (
    get_program_parameter,
    get_program_persistable_vars,
    is_belong_to_optimizer,
    is_parameter,
    is_persistable,
    load_params,
    load_persistables,
    load_vars,
    save_params,
    save_persistables,
    save_vars,
)
from minigraph.reader import (
    ComposeNotAligned,
    batch,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    multiprocess_reader,
    shuffle,
    xmap_readers,
)
from minigraph.reader.loader import DataLoader, PyReader, default_collate_fn
from minigraph.support.public import refuse_unknown_names

__all__ = [
    "ComposeNotAligned", "DataLoader", "PyReader", "batch", "buffered", "cache", "chain", "compose",
    "default_collate_fn", "deserialize_program", "firstn", "get_program_parameter", "get_program_persistable_vars",
    "is_belong_to_optimizer", "is_parameter", "is_persistable", "load", "load_dygraph", "load_inference_model",
    "load_params", "load_persistables", "load_program_state", "load_safetensors", "load_vars", "map_readers",
    "multiprocess_reader", "save", "save_dygraph", "save_inference_model", "save_params", "save_persistables",
    "save_safetensors", "save_vars", "serialize_program", "set_program_state", "shuffle", "xmap_readers",
]  # fmt: skip

refuse_unknown_names(__name__)
