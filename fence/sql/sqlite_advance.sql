INSERT INTO holdfast_fence (name, token, hold) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET token = excluded.token, hold = excluded.hold
WHERE token < excluded.token OR (token = excluded.token AND hold = excluded.hold)
