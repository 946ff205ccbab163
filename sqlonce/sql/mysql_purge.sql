DELETE o FROM (
  SELECT name FROM holdfast_once WHERE at < NOW() - INTERVAL ? MICROSECOND
  ORDER BY at LIMIT ? FOR UPDATE SKIP LOCKED
) AS expired STRAIGHT_JOIN holdfast_once AS o ON o.name = expired.name
