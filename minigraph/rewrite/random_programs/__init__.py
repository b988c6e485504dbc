"""Programs made at random, which need no more than the package itself.

`rows` holds an operator with its inputs for each type, `recipes` programs of layers that train.
"""
