"""The strategies of devices with blocks, threads and shared memory, one a file; `table` has them in order."""
