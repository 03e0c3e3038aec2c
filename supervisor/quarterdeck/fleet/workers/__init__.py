"""One worker process as the supervisor has it: started, reached by its socket, asked, and ended."""
