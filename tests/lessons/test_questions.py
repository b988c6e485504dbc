"""Messages of a grade for answers that no question of lesson 1 expects."""

from minigraph.lessons.read_a_program import program
from minigraph.lessons.read_a_program.questions import questions

SAID = [
    ("backward", "seven", "The answer is a number, not 'seven'."),
    ("backward", 3, "3 is not right."),
    ("fed", "x", "The answer is a list of names, not 'x'."),
    ("fed", ["x", "learning_rate_0"], "'learning_rate_0' is none of them."),
    ("state", ["w_1"], "2 of 3 are missing."),
    ("readers", ["mul", "mul", "relu_grad", "mul_grad"], "Name each as often as it is there."),
    ("update", ["clip_by_norm_0.tmp_0"], "The answer is a name, not ['clip_by_norm_0.tmp_0']."),
    ("step", [0.7], "The answer is a list of 2 numbers."),
    ("step", [0.7, 0.5], "[0.7, 0.5] is not right."),
    ("step", None, 'Not answered: set answers["step"].'),
]


def test_an_unexpected_answer_is_told_what_kind_is_wanted_or_what_is_wrong():
    asked = {each.key: each for each in questions(program())}
    for key, given, said in SAID:
        assert asked[key].message(given) == said
