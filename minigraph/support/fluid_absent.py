"""Public names of fluid 1.8 that are not here, each with the reason and what to use instead."""

from __future__ import annotations

from typing import NamedTuple


class Absent(NamedTuple):
    """Why names of fluid are not here."""

    reason: str
    hint: str


_HASHED = Absent("its hashes are those of a library that minigraph does not use", "Number n-grams with layers.hash.")
_DETECTION = Absent("detection is out of scope", "Train and run detectors where they are at home.")
_RANKS = "Train on several ranks: minigraph.parallel.DataParallel or fleet's collective mode, and minigraph launch."
_SERVERS = Absent("parameter servers are out of scope", _RANKS)
_PIPELINES = Absent("pipelines over devices are out of scope", _RANKS)
_EXCHANGES = Absent("programs are not written with exchanges here, passes insert them", _RANKS)
_GRAPHS = Absent(
    "quantization, and the graphs of Paddle's own passes, are out of scope",
    "Rewrite programs with minigraph.rewrite, and quantize a saved model where that is at home.",
)
_COMPLEX = Absent("complex numbers are out of scope", "Keep real and imaginary parts in two tensors.")
_SCOPES = Absent("no scope is entered for all calls", "Use executor.scope_guard(scope), or give run its scope.")
_RUNNER = Absent("saved programs do not become layers", "Run them with io.load_inference_model and an Executor.")
_READING = Absent("programs do not read files", "Read the variable before: io.load_vars(exe, folder, vars=[variable]).")
_TOOLS = Absent("this tool of Paddle's own is out of scope", "Leave the call out: the numbers do not depend on it.")
_INFERENCE = Absent(
    "the inference engine is out of scope",
    "Load the model with io.load_inference_model and run it with an Executor.",
)
_DATA_SETS = Absent(
    "its files need a library that minigraph does not use",
    "Read the files with that library, and give minigraph a reader.",
)
_OLDER = Absent("only before 1.8", "Use dygraph.Linear(input_dim, output_dim) and flatten the input before.")
_OLDER_CLIPS = Absent("only before 1.8", "Leave gradient_clip out: without a strategy nothing is clipped.")
_DESCRIPTIONS = Absent(
    "programs, blocks and operators are their own descriptions",
    "Take the desc of a Program, a Block or an Operator; read bytes with Program.parse_from_string.",
)
_PROTOBUF = Absent(
    "protobuf's classes are not here",
    "Read a description with Program.parse_from_string or io.load_inference_model, or print it: minigraph show MODEL.",
)
_CODE = Absent("operators of compiled libraries cannot be loaded", "Define them in Python, see load_op_library.")

_NAMES = {
    _HASHED: "search_pyramid_hash",
    _DETECTION: """
        anchor_generator bipartite_match box_clip box_coder box_decoder_and_assign collect_fpn_proposals
        deformable_roi_pooling density_prior_box detection_output distribute_fpn_proposals
        generate_mask_labels generate_proposal_labels generate_proposals iou_similarity locality_aware_nms matrix_nms
        multi_box_head multiclass_nms multiclass_nms2 polygon_box_transform prior_box detection prroi_pool psroi_pool
        retinanet_detection_output retinanet_target_assign roi_align roi_perspective_transform roi_pool
        rpn_target_assign sigmoid_focal_loss ssd_loss target_assign yolo_box yolov3_loss DetectionMAP
    """,
    _SERVERS: """
        HashName RoundRobin TrainerDesc MultiTrainer DistMultiTrainer
        PipelineTrainer DataFeedDesc load_persistables_for_increment load_persistables_for_inference
        convert_dist_to_sparse_program tdm_child tdm_sampler rank_attention parameter_server
        fleet_util fleet_barrier_util lookup_table_utils
        distribute_lookup_table ps_dispatcher MPISymetricRoleMaker
        communicator device_worker trainer_desc trainer_factory data_feed_desc minigraph.distributed
    """,
    _PIPELINES: "PipelineOptimizer",
    _EXCHANGES: "collective",
    _GRAPHS: "slim quantize IrGraph Graph Compressor QuantizeTranspiler",
    _COMPLEX: "ComplexVariable",
    _SCOPES: "default_scope_funcs",
    _RUNNER: "StaticModelRunner",
    _READING: "load",
    _TOOLS: "minigraph.annotations debugger net_drawer graphviz multiprocess_utils",
    _INFERENCE: """
        AnalysisConfig AnalysisPredictor NativeConfig PaddleBuf PaddleDType PaddlePredictor PaddleTensor ZeroCopyTensor
        create_paddle_predictor
    """,
    _DATA_SETS: "mq2007 sentiment voc2012",
    _OLDER: "FC",
    _OLDER_CLIPS: "NullGradientClipAttr BaseGradientClipAttr",
    _DESCRIPTIONS: "ProgramDesc BlockDesc OpDesc",
    _CODE: "sysconfig",
    _PROTOBUF: "proto framework_pb2",
}

ABSENT = {name: absent for absent, names in _NAMES.items() for name in names.split()}
"""Reason, and what to use instead, by name; by path where another module of fluid has the name."""
