DO $$ BEGIN
  PERFORM pg_advisory_xact_lock(5216694956355245937);
  IF to_regclass(quote_ident(current_schema()) || '.holdfast_once_at') IS NULL THEN
    CREATE TABLE IF NOT EXISTS holdfast_once (
      name        bytea       NOT NULL PRIMARY KEY,
      run         bytea       NOT NULL,
      fingerprint bytea       NOT NULL,
      record      bytea,
      at          timestamptz NOT NULL DEFAULT now()
    ) WITH (fillfactor = 80);
    CREATE INDEX IF NOT EXISTS holdfast_once_at ON holdfast_once (at);
  END IF;
END $$
