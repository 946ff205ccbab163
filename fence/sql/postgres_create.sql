CREATE TABLE IF NOT EXISTS holdfast_fence (
  name  bytea  NOT NULL PRIMARY KEY,
  token bigint NOT NULL,
  hold  text   NOT NULL
)
