"""The command `otel-gym`: one file a command, found by its file name."""
