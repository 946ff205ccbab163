package locktest

import (
	"bytes"
	"iter"
	"math/rand/v2"
)

// damage yields damaged forms of b: cut, with changed bytes, too long, or random bytes.
func damage(b []byte) iter.Seq[[]byte] {
	const places, pieces = 200, 100
	return func(yield func([]byte) bool) {
		step := 1 + len(b)/places
		for i := 0; i < len(b); i += step {
			if !yield(b[:i:i]) {
				return
			}
			for _, flip := range []byte{0x01, 0x80, 0xff, b[i], ^b[i]} { // the last two set the byte to 0 and to 255
				bad := bytes.Clone(b)
				if bad[i] ^= flip; !yield(bad) {
					return
				}
			}
		}
		random := rand.New(rand.NewPCG(1, 2)) // the same in each run
		for n := range pieces {
			garbage := make([]byte, n)
			for i := range garbage {
				garbage[i] = byte(random.Uint32())
			}
			if !yield(garbage) || !yield(append(bytes.Clone(b), garbage...)) {
				return
			}
		}
		yield(nil)
	}
}
