"""The local viewer and the Jaeger-compatible query API, straight from the files of one capture directory.

Nothing here writes records or answers anything but GET. What is shown comes from the files; the index beside them only makes finding fast.
"""
