"""How fast each store is, and how its costs grow."""
