"""Kernels for NVIDIA GPUs that are CUDA themselves, and what is used of cuBLAS.

The sources are the files ``*.cu`` beside this, and what `minigraph.kernels.cuda.updates` generates. They are compiled
when they are first needed, by CuPy. Norms, clips and merged updates take a table of arrays (addresses, sizes, types),
so that the number of launches does not depend on how many arrays there are, and nothing is waited for; arrays of other
types than float32 and float64 are left to the shared kernels.
"""
