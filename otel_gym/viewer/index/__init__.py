"""The summary index of a capture directory: one row a rollout and one a call, so that 100,000 rollouts open at once.

It is a cache. It stands in `<dir>/.otel-gym/viewer/index.sqlite`, or in memory where the directory cannot be written, follows the files by size, time and
inode, re-reads a file whose indexed part has changed, and is thrown away when it is damaged, of another version or of another run.
"""
