"""Optional stages around the context selector."""
