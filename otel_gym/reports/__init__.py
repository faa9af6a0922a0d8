"""What commands and the demo show of a capture directory, as data and as terminal output."""
