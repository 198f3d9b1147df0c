"""Gradwire: makes the gradients of distributed training small on the wire, and moves them."""
