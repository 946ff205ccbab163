SELECT record, (extract(epoch FROM at) * 1000000)::bigint FROM holdfast_once WHERE name = $1
