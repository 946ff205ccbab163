SELECT token, hold FROM holdfast_fence WHERE name = ? FOR UPDATE
