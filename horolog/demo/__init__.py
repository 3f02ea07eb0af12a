"""The demonstration: jobs of every kind fire into a topic that a process of its own reads."""
