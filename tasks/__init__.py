"""The steps: read parameters and files, call one function of the library, write files atomically."""
