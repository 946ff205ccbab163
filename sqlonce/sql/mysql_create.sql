CREATE TABLE IF NOT EXISTS holdfast_once (
  name        VARBINARY(512) NOT NULL PRIMARY KEY,
  run         BINARY(16)     NOT NULL,
  fingerprint VARBINARY(64)  NOT NULL,
  record      MEDIUMBLOB,
  at          TIMESTAMP      NOT NULL DEFAULT CURRENT_TIMESTAMP,
  KEY holdfast_once_at (at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
