"""The arithmetic of every operator: functions on arrays that know nothing of programs.

Kernels import `minigraph.types`, `minigraph.errors` and `minigraph.support`.

One family of operators, one file, under the name it has in `minigraph.ops`. Importing this registers them all.
"""

import minigraph.kernels.activation
import minigraph.kernels.adaptive_clip
import minigraph.kernels.adaptive_optimizer
import minigraph.kernels.array
import minigraph.kernels.averaging
import minigraph.kernels.bilinear
import minigraph.kernels.class_numbers
import minigraph.kernels.click_through
import minigraph.kernels.clip
import minigraph.kernels.clip_to_keep
import minigraph.kernels.collective
import minigraph.kernels.compare
import minigraph.kernels.control_flow
import minigraph.kernels.conv
import minigraph.kernels.crf
import minigraph.kernels.ctc
import minigraph.kernels.cuda.norms
import minigraph.kernels.cuda.updates
import minigraph.kernels.decoding
import minigraph.kernels.deformable
import minigraph.kernels.diagonal
import minigraph.kernels.elementwise
import minigraph.kernels.elementwise_losses
import minigraph.kernels.embedding
import minigraph.kernels.error_function
import minigraph.kernels.focus
import minigraph.kernels.fused
import minigraph.kernels.image_layout
import minigraph.kernels.indexing
import minigraph.kernels.jit
import minigraph.kernels.likelihood
import minigraph.kernels.loss
import minigraph.kernels.matrix
import minigraph.kernels.merged_updates
import minigraph.kernels.metric
import minigraph.kernels.norm
import minigraph.kernels.normalization
import minigraph.kernels.optimizer
import minigraph.kernels.parts
import minigraph.kernels.pool
import minigraph.kernels.printing
import minigraph.kernels.products
import minigraph.kernels.py_func
import minigraph.kernels.random
import minigraph.kernels.rank_table
import minigraph.kernels.ranking
import minigraph.kernels.rectifier
import minigraph.kernels.recurrent
import minigraph.kernels.recurrent_sequences
import minigraph.kernels.reduce
import minigraph.kernels.resampling
import minigraph.kernels.reshaping
import minigraph.kernels.sampled_losses
import minigraph.kernels.sampling
import minigraph.kernels.scaling
import minigraph.kernels.search
import minigraph.kernels.selection
import minigraph.kernels.sequence_pairs
import minigraph.kernels.sequence_pool
import minigraph.kernels.sequence_scores
import minigraph.kernels.sequence_windows
import minigraph.kernels.sequences
import minigraph.kernels.series
import minigraph.kernels.sparse_gradients
import minigraph.kernels.sparse_updates
import minigraph.kernels.tensor
import minigraph.kernels.training_checks
import minigraph.kernels.volumes
import minigraph.kernels.windows  # noqa: F401
from minigraph.kernels.registry import Kernel, find_kernel, find_specializer, kernel, specialize, takes_any_size

__all__ = ["Kernel", "find_kernel", "find_specializer", "kernel", "specialize", "takes_any_size"]
