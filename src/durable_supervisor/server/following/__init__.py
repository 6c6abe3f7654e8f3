"""Events to whoever follows: server-sent events, and a WebSocket for an attached viewer."""
