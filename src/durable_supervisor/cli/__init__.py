"""The command ``durable-supervisor`` (alias ``dsup``), for people and scripts.

Nothing is imported here: `main` answers ``--version`` by itself and loads one
module per verb.
"""
