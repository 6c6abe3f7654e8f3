"""What all handlers share: the service's state and figures, and what a route is."""
