"""Paddle 2's functions on tensors."""
