"""`golem:` interfaces, by the names and types of Golem 1.2."""
