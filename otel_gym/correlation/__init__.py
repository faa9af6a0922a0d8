"""Which rollout a call belongs to, and the trace that follows from it."""
