"""Where items are kept."""
