DELETE FROM holdfast_once WHERE name IN (
  SELECT name FROM holdfast_once WHERE at < now() - $1 * interval '1 microsecond'
  ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED
)
