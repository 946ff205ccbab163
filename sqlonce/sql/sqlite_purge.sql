DELETE FROM holdfast_once WHERE name IN (
  SELECT name FROM holdfast_once
  WHERE at < CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - ?1
  ORDER BY at LIMIT ?2
)
