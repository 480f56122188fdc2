"""Optional stages around the context selector: compression, feedback, comparison, prefetch, an intent model."""
