"""The steps of the modulated system: read, call the library, write."""
