"""The steps of the topk system: read, call the library, write."""
