"""Lower a program to a plan: steps, buffers and generated source; imports passes and what lies below them."""
