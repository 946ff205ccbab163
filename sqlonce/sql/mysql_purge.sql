DELETE o FROM (
  SELECT name FROM holdfast_once WHERE at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?
  ORDER BY at LIMIT ? FOR UPDATE SKIP LOCKED
) AS expired STRAIGHT_JOIN holdfast_once AS o ON o.name = expired.name
