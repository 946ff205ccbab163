INSERT INTO holdfast_fence AS f (name, token, hold) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET token = EXCLUDED.token, hold = EXCLUDED.hold
WHERE f.token < EXCLUDED.token OR (f.token = EXCLUDED.token AND f.hold = EXCLUDED.hold)
