"""sfumato: mechanisms, accounting and attacks for learning from private data."""
