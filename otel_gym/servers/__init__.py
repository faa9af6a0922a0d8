"""What listens: model servers in front of an engine, and agents."""
