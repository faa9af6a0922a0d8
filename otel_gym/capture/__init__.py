"""One exchange becomes one durable record."""
