SELECT record, CAST(UNIX_TIMESTAMP(at) * 1000000 AS SIGNED) FROM holdfast_once WHERE name = ?
