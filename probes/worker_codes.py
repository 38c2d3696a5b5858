"""Exit codes between a worker and the process that watches it."""

BAD_CONTEXT = 75  # the device does not answer any more; go on in a new process
NOT_WRITTEN = 74  # the job could not write its events or its result
