"""Resources: control groups for the tree of a run, and limits for each of its processes."""
