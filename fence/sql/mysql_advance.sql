INSERT INTO holdfast_fence (name, token, hold) VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE hold = IF(token < ?, ?, hold), token = GREATEST(token, ?)
