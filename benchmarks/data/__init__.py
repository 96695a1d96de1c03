"""Models, suites and peers' sources that benchmarks and tests share."""
