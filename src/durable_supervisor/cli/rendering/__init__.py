"""A person's view of the documents: tables, timelines, a run's events as they come."""
