"""``serve``, and ``service``, which has the user's service manager run it."""
