"""Lesson 1. Run this file to print the program, then fill in the answers."""

from minigraph.lessons.read_a_program import program

answers = {
    # How many operators compute gradients? Their role has the word backward.
    "backward": None,
    # Which names must a run be fed? A list, such as ["a", "b"].
    "fed": None,
    # Which names keep their value from run to run? A list.
    "state": None,
    # Which operators read fc_0.tmp_1? A list of types, such as ["relu", "mean"].
    "readers": None,
    # Which gradient does the update of w_1 read? A name.
    "update": None,
    # Suppose w_2[0] = w_2[1] = 1, their raw gradients are 6 and 8, and the other two gradients are 0. What are w_2[0]
    # and w_2[1] after one step? A list of two numbers.
    "step": None,
}

if __name__ == "__main__":
    print(program())
