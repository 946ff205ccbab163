INSERT INTO holdfast_once (name, run, fingerprint, record) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO NOTHING
