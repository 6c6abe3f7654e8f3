"""Where workers come from, and what their owner holds on to of them: channels and ends."""
