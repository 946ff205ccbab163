package wire_test

import (
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/bench/internal/wire"
)

// Commands are counted for all ways to cut the stream. Text in an argument that looks like a
// command does not count.
func TestCount(t *testing.T) {
	stream := []byte("*2\r\n$3\r\nGET\r\n$6\r\n*1\r\n$4\r\n*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$0\r\n\r\n")
	for size := 1; size <= len(stream); size++ {
		if n := wire.Count(slices.Chunk(stream, size)); n != 3 {
			t.Errorf("cut into %d bytes: %d commands, want 3", size, n)
		}
	}
}
