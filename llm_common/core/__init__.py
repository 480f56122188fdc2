"""Talks to a model: messages, clients, structured replies, token counts."""
