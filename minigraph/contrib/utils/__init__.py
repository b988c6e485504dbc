"""Names of ``fluid.contrib.utils``: a client for files of HDFS."""

from minigraph.contrib.utils import hdfs_utils
from minigraph.contrib.utils.hdfs_utils import HDFSClient, multi_download, multi_upload
from minigraph.support.public import refuse_unknown_names

__all__ = ["HDFSClient", "hdfs_utils", "multi_download", "multi_upload"]

refuse_unknown_names(__name__)
