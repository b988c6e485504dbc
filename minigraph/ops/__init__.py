"""Schema, inference and gradient of every operator; one family, one file. Importing this registers them all."""

import minigraph.ops.activation
import minigraph.ops.clip
import minigraph.ops.elementwise
import minigraph.ops.loss
import minigraph.ops.matrix
import minigraph.ops.metric
import minigraph.ops.optimizer
import minigraph.ops.random
import minigraph.ops.reduce
import minigraph.ops.tensor  # noqa: F401
