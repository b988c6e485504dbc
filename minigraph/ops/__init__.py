"""Schema, inference and gradient of every operator; one family, one file. Importing this registers them all."""

import minigraph.ops.activation
import minigraph.ops.adaptive_clip
import minigraph.ops.adaptive_optimizer
import minigraph.ops.array
import minigraph.ops.averaging
import minigraph.ops.clip
import minigraph.ops.compare
import minigraph.ops.control_flow
import minigraph.ops.conv
import minigraph.ops.diagonal
import minigraph.ops.elementwise
import minigraph.ops.embedding
import minigraph.ops.error_function
import minigraph.ops.fused
import minigraph.ops.indexing
import minigraph.ops.loss
import minigraph.ops.matrix
import minigraph.ops.merged_updates
import minigraph.ops.metric
import minigraph.ops.norm
import minigraph.ops.normalization
import minigraph.ops.optimizer
import minigraph.ops.pool
import minigraph.ops.printing
import minigraph.ops.products
import minigraph.ops.random
import minigraph.ops.rectifier
import minigraph.ops.recurrent
import minigraph.ops.reduce
import minigraph.ops.reshaping
import minigraph.ops.search
import minigraph.ops.selected_rows
import minigraph.ops.selection
import minigraph.ops.series
import minigraph.ops.tensor
import minigraph.ops.training_checks  # noqa: F401
