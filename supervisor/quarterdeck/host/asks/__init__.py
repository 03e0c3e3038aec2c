"""What servers ask, brought to the client whose request it is: by requests of ours, or by `input_required`."""
