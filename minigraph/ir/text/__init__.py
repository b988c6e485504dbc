"""Programs as text: printing, parsing, comparing.

Printing and parsing are inverse: ``parse(str(program)).equals(program)``, and printing what was parsed gives the same
text again. A program reads::

    program {random_seed=7}
    block 0
      param w: float32[4] {gradient_clip=GradientClipByNorm(clip_norm=1.0)}
      persist lr: float32[1]
      data x: float32[-1, 4]
      y: float32[-1, 4] = elementwise_mul(X=x, Y=w)
      w = sgd(Param=w, Grad=w@GRAD, LearningRate=lr) {role='optimize'}

- One line, one statement; indentation is free; ``#`` starts a comment.
- Parameters, persistable variables and data are declared first. Any other variable is declared by its type where an
  operator first writes it, or as ``var name: type`` when no operator of its block does. A type that nobody knows yet is
  ``unknown``.
- An operator with several output slots names them, ``Y=a: float32[2], Mask=b: bool[2] = op(X=c)``; a slot that takes
  several variables has brackets, ``X=[a, b]``.
- Braces hold what differs from the defaults. Those of a declaration depend on its kind: `DEFAULTS` has them.
- Sub-blocks follow, ``block 2 parent 0``; that of a gradient names the block that it is the gradient of,
  ``block 3 parent 0 forward 2``. The operator that runs a block has ``sub_block=2``.
- A name of letters, digits and ``_ . @ / $ + -`` stands as it is, any other in double quotes.
- Clips, regularizers and other objects whose class is `minigraph.ir.printable.printable` print as the call that makes
  them. A Python object without a text, such as a function, prints as ``<function name>``; only that cannot be parsed.
"""
