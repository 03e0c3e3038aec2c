"""What tests of several rooms, and the benches, share, a folder a concern; what one room uses stands beside its tests.

One way each: `processes.running` and `processes.line_child` start a process, `processes.commands` a command of ours (at
the price of a fork where it is not what the test is about), `waiting` waits, `config.places` makes short folders, state
directories and configurations, `servers` has the pretend servers.
"""
