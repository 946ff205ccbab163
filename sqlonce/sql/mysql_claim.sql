INSERT INTO holdfast_once (name, run, fingerprint, record) VALUES (?, ?, ?, ?)
ON DUPLICATE KEY UPDATE name = name
