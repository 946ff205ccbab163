UPDATE holdfast_once SET record = ? WHERE name = ? AND run = ?
