"""Names of ``fluid.incubate.fleet.utils``: a client for files of HDFS."""

from minigraph.incubate.fleet.utils import hdfs
from minigraph.support.public import refuse_unknown_names

__all__ = ["hdfs"]

refuse_unknown_names(__name__)
