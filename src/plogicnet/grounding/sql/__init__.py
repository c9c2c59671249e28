"""The SQL engine, which mines and grounds any connected Horn clause with DuckDB."""
