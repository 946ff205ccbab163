UPDATE holdfast_once SET record = ?1 WHERE name = ?2 AND run = ?3
