"""System calls: the filter that refuses those which would lead around a policy."""
