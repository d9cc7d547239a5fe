"""What the report reads of each system: its records, curves, statements, and the facts of its parameters."""
