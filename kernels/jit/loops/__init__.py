"""Loops over arrays, in the part of Python that numba compiles.

The modules here are not imported in order to run. `minigraph.kernels.jit.compiling` takes their text, several together
where they use each other's functions, and compiles single functions for given types. Each imports NumPy as ``np`` and
nothing else but its neighbours. ``REASSOCIATED`` names the functions whose sums the compiler may split, so that several
are in flight at a time; ``CONTRACTED`` those in which it may round a product and a sum once, and which become part of
the loops that call them; ``INTRINSICS`` those that are called by the compiler and tell it what instructions to make.

A constant takes the type of the arrays where it is written ``x.dtype.type(2)``: a bare 2.0 would make all of float64.
"""
