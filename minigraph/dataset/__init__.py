"""Public data sets as readers, by fluid's names, and `digits`, which comes with the package; imports readers and files.

`mnist` reads its files, downloads them, or warns that it serves `digits` instead. The others read files in the
folder of Paddle, see `common`.
"""

from minigraph.dataset import (
    cifar,
    common,
    conll05,
    digits,
    flowers,
    image,
    imdb,
    imikolov,
    mnist,
    movielens,
    uci_housing,
    wmt14,
    wmt16,
)
from minigraph.support.public import refuse_unknown_names

__all__ = [
    "cifar", "common", "conll05", "digits", "flowers", "image", "imdb", "imikolov", "mnist", "movielens",
    "uci_housing", "wmt14", "wmt16",
]  # fmt: skip

# Fluid's module of the same name has the data sets of slot files.
refuse_unknown_names(
    __name__, **dict.fromkeys(("DatasetFactory", "InMemoryDataset", "QueueDataset"), "minigraph.reader.slot_files")
)
