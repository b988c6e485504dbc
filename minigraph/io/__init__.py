"""Save and load variables, programs, models for inference and state dictionaries; imports readers and the engine.

Files are in the layouts of Paddle 1.8.5, which minigraph reads and writes, or in the safetensors format, which is
recommended for new files. A file is written whole or not at all. Reading a file runs no code from it. A file that is
damaged, or does not fit, is an error and changes nothing.

`DataLoader` and the readers of `minigraph.reader` are here too, as in fluid.
"""

from minigraph.io.inference_model import *
from minigraph.io.program_bytes import *
from minigraph.io.program_reading import *
from minigraph.io.programs import *
from minigraph.io.safetensors_files import *
from minigraph.io.state_dicts import *
from minigraph.io.variables import *
from minigraph.reader import *
from minigraph.reader.data_sets import *
from minigraph.reader.generator_loader import *
from minigraph.reader.loader import *
from minigraph.support.public import offered, refuse_unknown_names

__all__ = offered(vars())

refuse_unknown_names(__name__)
