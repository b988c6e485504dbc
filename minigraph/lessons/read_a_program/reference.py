"""Lesson 1. The answers to the questions."""

from minigraph.lessons.read_a_program import program

answers = {
    # How many operators compute gradients? Their role has the word backward.
    "backward": 7,
    # Which names must a run be fed? A list, such as ["a", "b"].
    "fed": ["x", "y"],
    # Which names keep their value from run to run? A list.
    "state": ["w_1", "w_2", "learning_rate_0"],
    # Which operators read fc_0.tmp_1? A list of types, such as ["relu", "mean"].
    "readers": ["mul", "relu_grad", "mul_grad"],
    # Which gradient does the update of w_1 read? A name.
    "update": "clip_by_norm_0.tmp_0",
    # Suppose w_2[0] = w_2[1] = 1, their raw gradients are 6 and 8, and the other two gradients are 0. What are w_2[0]
    # and w_2[1] after one step? A list of two numbers.
    "step": [0.7, 0.6],
}

if __name__ == "__main__":
    print(program())
