SELECT run, fingerprint, record FROM holdfast_once WHERE name = $1
