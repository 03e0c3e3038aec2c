"""What model providers take as a tool's input schema: tables of what they say and do, and the walk that holds a schema
against them.  Pure.
"""
