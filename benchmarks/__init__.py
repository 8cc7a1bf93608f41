"""What things cost, measured; run through nox (``nox -s bench_store``), never as a test."""
