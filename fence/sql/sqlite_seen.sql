SELECT token, hold FROM holdfast_fence WHERE name = ?1
