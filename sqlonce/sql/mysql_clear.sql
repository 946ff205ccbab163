DELETE FROM holdfast_once WHERE name = ?
