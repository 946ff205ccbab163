CREATE TABLE IF NOT EXISTS holdfast_once (
  name        bytea       NOT NULL PRIMARY KEY,
  run         bytea       NOT NULL,
  fingerprint bytea       NOT NULL,
  record      bytea,
  at          timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 80);
CREATE INDEX IF NOT EXISTS holdfast_once_at ON holdfast_once (at)
