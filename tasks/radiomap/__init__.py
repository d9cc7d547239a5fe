"""The steps of the radio map system: read, call the library, write."""
