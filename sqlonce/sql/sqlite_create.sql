CREATE TABLE IF NOT EXISTS holdfast_once (
  name        BLOB    NOT NULL PRIMARY KEY,
  run         BLOB    NOT NULL,
  fingerprint BLOB    NOT NULL,
  record      BLOB,
  at          INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER))
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS holdfast_once_at ON holdfast_once (at)
