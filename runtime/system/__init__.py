"""What the operating system gives: files, folders that nobody else writes into, the C compiler."""
