"""The steps of the divergence system."""
