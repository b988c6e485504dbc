"""Typical wrong answers: edits of the reference solution, and what the grader says."""

from __future__ import annotations

from typing import NamedTuple


class Wrong(NamedTuple):
    """One wrong answer.

    Attributes
    ----------
    lesson : str
    edits : tuple of (str, str)
        Parts of the reference solution, and what stands there instead.
    message : str
        Part of what the grader says.
    """

    lesson: str
    edits: tuple[tuple[str, str], ...]
    message: str


def wrong(lesson: str, message: str, *edits: tuple[str, str]) -> Wrong:
    return Wrong(lesson, edits, message)


READ_A_PROGRAM = [
    wrong("read_a_program", "You missed fill_constant", ('"backward": 7', '"backward": 6')),
    wrong("read_a_program", "their role is optimize|clip", ('"backward": 7', '"backward": 9')),
    wrong("read_a_program", "Only variables marked data are fed", ('["x", "y"]', '["x", "y", "w_1", "w_2"]')),
    wrong("read_a_program", "The learning rate is kept, too", (', "learning_rate_0"]', "]")),
    wrong("read_a_program", "The backward pass reads the value again", ('["mul", "relu_grad", "mul_grad"]', '["mul"]')),
    wrong("read_a_program", "This is the raw gradient", ("clip_by_norm_0.tmp_0", "w_1@GRAD")),
    wrong("read_a_program", "This is the other clip", ("clip_by_norm_0.tmp_0", "clip_by_norm_1.tmp_0")),
    wrong("read_a_program", "Its norm is 10, and the clip allows 5", ("[0.7, 0.6]", "[0.4, 0.2]")),
    wrong("read_a_program", "clip_by_norm scales the whole gradient", ("[0.7, 0.6]", "(0.5, 0.5)")),
    wrong("read_a_program", "SGD subtracts", ("[0.7, 0.6]", "[1.3, 1.4]")),
    wrong("read_a_program", "the file defines no answers", ("answers = {", "answer = {")),
]

ROLE = "Role.OPTIMIZE | Role.CLIP"
INSERT_CLIP = [
    wrong("insert_clip", "scales the whole gradient, and keeps its direction",
          ('"clip_by_norm", X=grad, max_norm=self.max_norm',
           '"clip", X=grad, min=-self.max_norm, max=self.max_norm')),
    wrong("insert_clip", "becomes one of norm 1, not 2", ("max_norm=self.max_norm", "max_norm=1.0")),
    wrong("insert_clip", "Find updates by their role and slots, not by type",
          ('op.role & Role.OPTIMIZE and {"Param", "Grad"} <= op.inputs.keys()', 'op.type == "sgd"')),
    wrong("insert_clip", "Write the clipped one under a new name",
          ('clipped = block.emit("clip_by_norm", X=grad, max_norm=self.max_norm)',
           'block.append_op("clip_by_norm", {"X": grad}, {"Out": grad}, {"max_norm": self.max_norm})'),
          ("            update.replace_input(grad, clipped)\n", "")),
    wrong("insert_clip", "Give clips Role.OPTIMIZE | Role.CLIP", (ROLE, "Role.OPTIMIZE")),
    wrong("insert_clip", "Name the parameter and its raw gradient", (", [param, grad])", ")")),
    wrong("insert_clip", "and its raw gradient, in this order", ("[param, grad])", "[grad, param])")),
    wrong("insert_clip", "Let only updates read it",
          ("update.replace_input(grad, clipped)",
           'for op in block.ops:\n                if op.type != "clip_by_norm":\n'
           "                    op.replace_input(grad, clipped)")),
    wrong("insert_clip", "Leave alone what a clip has written", (" if op.inputs[\"Grad\"][0] not in done", "")),
    wrong("insert_clip", "The second time nothing changes, but apply returns True",
          ("return bool(unclipped)", "return bool(updates)")),
    wrong("insert_clip", "apply returned None", ("return bool(unclipped)", "pass")),
    wrong("insert_clip", "nothing is clipped yet", ("            update.replace_input(grad, clipped)\n", "")),
    wrong("insert_clip", "nothing is clipped yet", ("unclipped = [", "unclipped = [][:0] and [")),
    wrong("insert_clip", "is clipped after the update of w_0 has read it",
          ("block.inserting_before(update), role", "role"), ("            update.replace_input(grad, clipped)\n", "")),
    wrong("insert_clip", "was changed. A short one keeps every bit",
          ('clipped = block.emit("clip_by_norm", X=grad, max_norm=self.max_norm)',
           'clipped = block.emit("scale", X=grad, scale=0.1)')),
]  # fmt: skip

DECAY = "Role.OPTIMIZE | Role.REGULARIZE"
TRAINING_ORDER = [
    wrong("training_order", "past the clip. Add to what the update reads",
          ("X=[grad, decay]", 'X=[param + "@GRAD", decay]')),
    wrong("training_order", "The decay is added before the clip",
          ("        plain =",
           "        updates = [op for op in block.ops if op.role & Role.CLIP] or updates\n        plain ="),
          ('op.inputs["Grad"][0] not in done', '(op.inputs.get("Grad") or op.inputs["X"])[0] not in done'),
          ('update.inputs["Param"][0], update.inputs["Grad"][0]',
           '"w", (update.inputs.get("Grad") or update.inputs["X"])[0]')),
    wrong("training_order", "Find updates by their role and slots, not by type",
          ('op.role & Role.OPTIMIZE and {"Param", "Grad"} <= op.inputs.keys()', 'op.type == "sgd"')),
    wrong("training_order", "Give it Role.OPTIMIZE | Role.REGULARIZE", (DECAY, "Role.OPTIMIZE")),
    wrong("training_order", "Name the parameter and its gradient", (", [param, grad])", ")")),
    wrong("training_order", "Leave alone what has a decay", (' if op.inputs["Grad"][0] not in done', "")),
    wrong("training_order", "Write the sum under a new name",
          ('total = block.emit("sum", X=[grad, decay])',
           'block.append_op("sum", {"X": [grad, decay]}, {"Out": grad})'),
          ("            update.replace_input(grad, total)\n", "")),
    wrong("training_order", "The updates read gradients without decay",
          ("            update.replace_input(grad, total)\n", "")),
    wrong("training_order", "Of three parameters not all decay", ("for update in plain:", "for update in plain[:1]:")),
    wrong("training_order", "w is", ("scale=self.coeff", "scale=-self.coeff")),
    wrong("training_order", "apply returned None", ("return bool(plain)", "return")),
]  # fmt: skip

GRADIENT_RULE = [
    wrong("gradient_rule", "This takes the norm for a constant", ("d_out - x * (along * is_long)", "d_out")),
    wrong("gradient_rule", "the wrong sign", ("d_out - x", "d_out + x")),
    wrong("gradient_rule", "is short, so d_out passes unchanged", ("along * is_long", "along * 1.0")),
    wrong("gradient_rule", "For x = 0 the result is NaN", ("layers.square(bound)", "layers.square(norm)")),
    wrong("gradient_rule", "The norm is of the whole tensor",
          ("layers.reduce_sum(layers.square(x))", "layers.reduce_sum(layers.square(x), dim=-1, keep_dim=True)")),
    wrong("gradient_rule", "Here max_norm is 4.5", ("x.dtype, max_norm", "x.dtype, 2.0")),
    wrong("gradient_rule", "The factor max_norm / norm is missing", (" * (limit / bound)", "")),
    wrong("gradient_rule", "This is d_out itself", ("return (d_out", "return d_out\n    return (d_out")),
    wrong("gradient_rule", "This clips d_out",
          ("return (d_out", "return layers.clip_by_norm(d_out, max_norm)\n    return (d_out")),
    wrong("gradient_rule", "does not read d_out: apply the chain rule",
          ("    along =", "    d_out = layers.ones_like(d_out)\n    along =")),
    wrong("gradient_rule", "The result has the shape", ("return (d_out", "return norm\n    return (d_out")),
    wrong("gradient_rule", "Return the variable with the result", ("return (", "result = (")),
]  # fmt: skip

TRY = """            try:
                values.replace_all_uses(values.output(op, "Out"), values.input(op, "X"))
            except RewriteError:  # a reader for which that name means another value, or a sub-block
                continue
"""
LIVE_OUT = ' or values.is_live_out(values.output(op, "Out"))'
PASS_BY_HAND = [
    wrong("pass_by_hand", "Remove only operators whose attribute scale is 1", (' and op.attr("scale") == 1.0', "")),
    wrong("pass_by_hand", "The bias must be 0, too", (' and op.attr("bias") == 0.0', "")),
    wrong("pass_by_hand", "If the slot ScaleTensor is used", (' and not op.inputs.get("ScaleTensor")', "")),
    wrong("pass_by_hand", "h is fetched, so somebody outside reads it", (LIVE_OUT, "")),
    wrong("pass_by_hand", "old is persistable, so the next run reads it", (LIVE_OUT, "")),
    wrong("pass_by_hand", "w means the new value",
          ("except RewriteError", "except KeyError")),
    wrong("pass_by_hand", "y differs",
          (TRY, '            for other in program.global_block().ops:\n'
                '                other.replace_input(op.outputs["Out"][0], op.inputs["X"][0])\n'),
          ("values.erase(op)", "program.global_block().remove(op)")),
    wrong("pass_by_hand", "The operators of the sub-block know the name h",
          (TRY, '            for use in values.users(values.output(op, "Out")):\n'
                '                if use.slot:\n'
                '                    values.replace_use(use, values.input(op, "X"))\n'),
          ("values.erase(op)", "program.global_block().remove(op)")),
    wrong("pass_by_hand", "changed the program and says that it did not", ("changed = True", "pass")),
    wrong("pass_by_hand", "says that it changed the program, and did not",
          ("return changed", "return True")),
    wrong("pass_by_hand", "changes a program a second time",
          ("            values.erase(op)\n", ""), ("self.apply(program)", "pass")),
    wrong("pass_by_hand", "The reference saves more",
          (LIVE_OUT, LIVE_OUT + ' or not values.is_used_once(values.output(op, "Out"))')),
]  # fmt: skip

DEAD_CODE = [
    wrong("dead_code", "an operator that writes a persistable variable is alive", ("is_kept or ", "")),
    wrong("dead_code", "Walk backward, and collect what living operators read",
          ("wanted.update(op.input_arg_names)", "pass")),
    wrong("dead_code", "first drop what an operator writes",
          ("wanted.difference_update(written)", "wanted.update(op.input_arg_names)"),
          ("            wanted.update(op.input_arg_names)\n        for",
           "            wanted.difference_update(written)\n        for")),
    wrong("dead_code", "without this draw the next one gives other numbers", ("is_random(op.type) or ", "")),
    wrong("dead_code", "Ask op.input_arg_names",
          ("wanted.update(op.input_arg_names)", "wanted.update(*op.inputs.values())")),
    wrong("dead_code", "alive if any of its results is wanted",
          ("wanted.intersection(written)", "wanted.intersection(written[:1])")),
    wrong("dead_code", "The reference saves more", ("            wanted.difference_update(written)\n", "")),
    wrong("dead_code", "changes a program a second time",
          ("                dead.append(op)\n                continue\n", "                dead.append(op)\n")),
    wrong("dead_code", "says that it changed the program, and did not", ("bool(dead)", "True")),
    wrong("dead_code", "Nothing is saved", ("for op in dead:", "for op in dead[:0]:"), ("bool(dead)", "False")),
]  # fmt: skip

OVERWRITTEN_NAMES = [
    wrong("overwritten_names", "compare values.read(name, op), not names", ("values.read(name, op) for", "name for")),
    wrong("overwritten_names", "Operators are equal if their attributes are, too",
          (", repr(sorted(op.attrs.items()))", "")),
    wrong("overwritten_names", "u - v is not v - u", ("return op.type, tuple(inputs)",
          "return op.type, frozenset(value for _, *several in inputs for value in several)")),
    wrong("overwritten_names", "Operators are equal if their types are, too", ("return op.type, ", "return ")),
    wrong("overwritten_names", "Two draws give different numbers", ("is_random(op.type) or ", "")),
    wrong("overwritten_names", "a means the new value",
          ("            except RewriteError", "            except KeyError")),
    wrong("overwritten_names", "b is fetched, so its operator stays", (" or values.is_live_out(result)", "")),
    wrong("overwritten_names", "The reference saves more",
          ("is_random(op.type) or", "is_random(op.type) or len(op.input_arg_names) > 1 or")),
    wrong("overwritten_names", "changes a program a second time",
          ("values, changed = Values(program), False",
           "values, changed = Values(program), False\n"
           "        keys = {op: _key(op, values) for op in program.global_block().ops}"),
          ("_key(op, values), op)", "keys[op], op)")),
    wrong("overwritten_names", "changed the program and says that it did not", ("changed = True", "pass")),
    wrong("overwritten_names", "AttributeError", ("values.erase(op)", "values.remove(op)")),
    wrong("overwritten_names", "top_k has two results", (" or len(op.output_arg_names) != 1", "")),
]  # fmt: skip

FIRST_RULE = [
    wrong("first_rule", "From below the larger limit counts", ("min=max(a, c), max=min(b, d)", "min=c, max=d")),
    wrong("first_rule", "From below the larger limit counts", ("min=max(a, c), max=min(b, d)", "min=a, max=b")),
    wrong("first_rule", "Look at the limits one by one",
          ("min=max(a, c), max=min(b, d)", "min=min(a, c), max=max(b, d)")),
    wrong("first_rule", "Give the rule a condition, by .where",
          ('    yield max(m.a, m.c) < min(m.b, m.d), "the intervals must overlap"', "    yield from ()")),
    wrong("first_rule", "The reference saves more", ("max(m.a, m.c) < min(m.b, m.d)", "m.a < m.c and m.d < m.b")),
    wrong("first_rule", "Nothing is saved", ("layers.clip(x, min=a, max=b)", "layers.clip(x, min=-5.0, max=b)"),
          ('    a: Any = rewrite.attr("min"),\n', ""), ("m.a", "-5.0"), ("(x: Any, a: float, b", "(x: Any, b"),
          ("max(a, c)", "c")),
    wrong("first_rule", "has no replacement", ("@clip_of_clip.to\n", "")),
    wrong("first_rule", "which is no pass", ("@rewrite.rule\n", ""), ("@clip_of_clip.where\n", ""),
          ("@clip_of_clip.to\n", "")),
    wrong("first_rule", "the file defines no clip_of_clip", ("clip_of_clip", "clips")),
    wrong("first_rule", "which the pattern does not have", ("(x: Any, a: float, b: float, c: float, d: float)",
          "(x: Any, low: float, b: float, c: float, d: float)"), ("max(a, c), max", "max(low, c), max")),
    wrong("first_rule", "TypeError", ("yield max(m.a, m.c)", "return max(m.a, m.c)")),
    wrong("first_rule", "Nothing is saved", ("layers.clip(layers.clip(x", "layers.relu(layers.clip(x"),
          ("max=b), min=c, max=d)", "max=b))"), ("m.c", "0.0"), ("m.d", "9.0"), ("max(a, c)", "max(a, 0.0)"),
          ("min(b, d)", "b"), ('    c: Any = rewrite.attr("min"),\n    d: Any = rewrite.attr("max"),\n', ""),
          (", c: float, d: float", "")),
]  # fmt: skip

REPLACED = "softmax_with_cross_entropy(x, label, ignore_index=ignored, return_softmax=True)"
SOFTMAX_LOSS = [
    wrong("softmax_loss", "takes logits and labels: give it x and label",
          (REPLACED, REPLACED.replace("(x,", "(layers.softmax(x),"))),
    wrong("softmax_loss", "capture the attribute, and pass it on", (REPLACED, REPLACED.replace("ignored", "-100"))),
    wrong("softmax_loss", "Match only a softmax along the last axis",
          ("layers.softmax(x)", "layers.softmax(x, axis=k)"),
          ('ignored: Any = rewrite.attr("ignore_index")',
           'ignored: Any = rewrite.attr("ignore_index"), k: Any = rewrite.attr("axis")')),
    wrong("softmax_loss", "Give the rule a condition on m.label.shape",
          ("len(m.label.shape) == len(m.x.shape)", "True")),
    wrong("softmax_loss", "compare with the number of dimensions of x",
          ("len(m.label.shape) == len(m.x.shape)", "len(m.label.shape) == 2")),
    wrong("softmax_loss", "The reference saves more", ("ignored), p", "ignored)"), (", return_softmax=True", "")),
    wrong("softmax_loss", "The reference saves more", (", ignore_index=ignored), p", "), p"),
          (', ignored: Any = rewrite.attr("ignore_index")', ""), (", ignored: int", ""),
          (", ignore_index=ignored", "")),
    wrong("softmax_loss", "in the same order", ("ignored), p", "ignored), p"),
          ("return layers.softmax_with", "loss, p = layers.softmax_with"),
          ("return_softmax=True)", "return_softmax=True)\n    return p, loss")),
    wrong("softmax_loss", "takes logits and labels: give it x and label",
          (REPLACED, REPLACED.replace("(x, label", "(label, x"))),
    wrong("softmax_loss", "The pattern is a cross entropy that reads the result of a softmax",
          ("p = layers.softmax(x)", "p = layers.sigmoid(x)")),
    wrong("softmax_loss", "has no replacement", ("@softmax_loss.to\n", "")),
]  # fmt: skip

BEAT_TORCH = [
    wrong("beat_torch", "x (a b) = (x a) b: brackets may move",
          ("layers.mul(layers.mul(x, a), b)\n\n\n@rewrite", "layers.mul(layers.mul(x, b), a)\n\n\n@rewrite")),
    wrong("beat_torch", "(a b) x = a (b x): brackets may move",
          ("layers.mul(x, layers.mul(a, b))\n\n\nreassociate", "layers.mul(a, layers.mul(x, b))\n\n\nreassociate")),
    wrong("beat_torch", "does not end: rules have fired",
          ('    yield left < right, "fewer multiplications"\n', ""),
          ('    yield right < left, "fewer multiplications"\n', "")),
    wrong("beat_torch", "The reference saves more", ("Rules(from_left, from_right)", "Rules(from_left)")),
    wrong("beat_torch", "The reference saves more", ("Rules(from_left, from_right)", "Rules(from_right)")),
    wrong("beat_torch", "Compare the costs of both orders", ("left < right", "left > right"),
          ("rewrite.Rules(from_left, from_right)", "from_left")),
    wrong("beat_torch", "Compare the costs of both orders", ("right < left", "right > left"),
          ("rewrite.Rules(from_left, from_right)", "from_right")),
    wrong("beat_torch", "With x_num_col_dims=2 the first factor is flattened otherwise",
          ("(x: Any, a: Any, b: Any) -> Any:\n    \"\"\"Compute ``x",
           '(x: Any, a: Any, b: Any, k: Any = rewrite.attr("x_num_col_dims")) -> Any:\n    \"\"\"Compute ``x'),
          ("layers.mul(x, layers.mul(a, b))\n\n\n@from_left",
           "layers.mul(x, layers.mul(a, b), x_num_col_dims=k)\n\n\n@from_left"),
          ("len(each.shape) == 2 and ", "")),
    wrong("beat_torch", "takes rows * inner * columns", ("x.shape[0] * x.shape[1] * y", "x.shape[0] * y")),
    wrong("beat_torch", "takes rows * inner * columns",
          ("x.shape[0] * x.shape[1] * y.shape[1]", "x.shape[0] + x.shape[1] + y.shape[1]")),
    wrong("beat_torch", "takes rows * inner * columns",
          (" + rows * a.shape[1] * columns", ""), (" + rows * a.shape[0] * columns", "")),
    wrong("beat_torch", "leave the order as it is if a size is not known", (" and -1 not in each.shape", "")),
    wrong("beat_torch", "the file defines no reassociate", ("reassociate =", "rules =")),
    wrong("beat_torch", "Nothing is saved", ("each.shape) == 2", "each.shape) == 3")),
]  # fmt: skip

SUM = 'block.append_op("c_allreduce_sum", {"X": grad}, {"Out": grad}, {"use_calc_stream": True})'
SUM_OVER_RANKS = [
    wrong("sum_over_ranks", "Divide the gradient of the loss by the number of ranks", ("1.0 / self.ranks", "1.0")),
    wrong("sum_over_ranks", "Put c_sync_calc_stream in front of it", (', {"use_calc_stream": True}', "")),
    wrong("sum_over_ranks", "one rank's part of a sum: the parts add up",
          ('op("c_allreduce_sum"', 'op("c_allreduce_max"')),
    wrong("sum_over_ranks", "updates w_0 by one rank's part of its gradient",
          ("for grad in op.role_vars[1::2]:", 'for grad in {*op.role_vars[1::2]} - {"w_0@GRAD"}:')),
    wrong("sum_over_ranks", "which c_allreduce_sum has done already", (SUM, f"{SUM}\n                    {SUM}")),
    wrong("sum_over_ranks", "Put it after the c_allreduce_sum of the gradient",
          ("block.inserting_before(following", "block.inserting_before(None")),
    wrong("sum_over_ranks", "A clone for testing still exchanges", ("role=Role.BACKWARD)", "role=Role.FORWARD)")),
    wrong("sum_over_ranks", "Applied a second time, the pass changes the program again",
          ('        if block.ops.of_type("c_allreduce_sum"):\n            return False\n', "")),
    wrong("sum_over_ranks", "apply returned None", ("        return True", "        return None")),
    wrong("sum_over_ranks", "Nothing is exchanged", ("op.role_vars[1::2]", "op.role_vars[2::2]")),
]  # fmt: skip

ANSWERS = [
    *READ_A_PROGRAM, *PASS_BY_HAND, *FIRST_RULE, *DEAD_CODE, *OVERWRITTEN_NAMES, *SOFTMAX_LOSS, *INSERT_CLIP,
    *TRAINING_ORDER, *GRADIENT_RULE, *BEAT_TORCH, *SUM_OVER_RANKS,
]  # fmt: skip
