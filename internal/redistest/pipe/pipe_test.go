package pipe_test

import (
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/holdfast-go/holdfast/internal/redistest/pipe"
)

// The race detector reports a miniredis whose Dial and Close run at the same time.
func TestDialWhileClosing(t *testing.T) {
	for range 1000 {
		s := pipe.NewServer(miniredis.NewMiniRedis())
		var dials sync.WaitGroup
		for range 4 {
			dials.Go(func() {
				if conn, err := s.Dial(); err == nil {
					_ = conn.Close()
				}
			})
		}
		s.Close()
		dials.Wait()
		if conn, err := s.Dial(); err == nil {
			_ = conn.Close()
			t.Fatal("a dial after Close succeeded")
		}
	}
}
