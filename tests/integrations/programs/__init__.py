"""One program for each framework: a help desk of 24 tools, four users at a time and a restart.

`desk` has the tools, `script` decides what the model replies, and a module with the name of each
framework connects both. `checks` runs such a module in two processes, one after the other.
"""
