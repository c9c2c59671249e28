"""The SQL engine: every connected Horn clause, by plain SQL. DuckDB runs it here."""
