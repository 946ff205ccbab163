package wire

import "iter"

// Count returns the number of commands in a stream that is cut into parts.
func Count(parts iter.Seq[[]byte]) (n int64) {
	var f frames
	for part := range parts {
		n += f.count(part)
	}
	return n
}
