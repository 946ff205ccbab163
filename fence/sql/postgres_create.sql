DO $$ BEGIN
  PERFORM pg_advisory_xact_lock(5216694956355245938);
  CREATE TABLE IF NOT EXISTS holdfast_fence (
    name  bytea  NOT NULL PRIMARY KEY,
    token bigint NOT NULL,
    hold  text   NOT NULL
  );
END $$
