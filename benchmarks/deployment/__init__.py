"""What deployed forms of programs take and compute, beside each other and beside other tools."""
