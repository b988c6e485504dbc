"""What only an executor on a GPU does: recording graphs, sending feeds, checking indices before."""
