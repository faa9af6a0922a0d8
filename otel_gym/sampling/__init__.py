"""Sampling parameters: what they are called on each path, what a server pins, and what calls really used. Pure."""
