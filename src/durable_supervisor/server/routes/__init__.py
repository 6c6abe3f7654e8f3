"""The route table: one verb, one handler; and what OpenAPI tells about them."""
