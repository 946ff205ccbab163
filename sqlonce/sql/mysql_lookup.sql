SELECT record, at FROM holdfast_once WHERE name = ?
