//go:build unix

package rivermw_test

import (
	"context"
	"testing"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/docprogram"
	"github.com/holdfast-go/holdfast/lockcore"
)

// The program of docs/river.md charges a payment that was sent twice once, and ends when it is
// interrupted.
func TestProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, w.pool) }() // ends when ctx does
	w.newClient(&river.Config{Logger: quiet})
	for range 2 {
		w.ends(w.insert(ChargeArgs{Payment: "7", Account: "42"}), rivertype.JobStateCompleted)
	}
	if h, err := w.locks.Inspect(t.Context(), event.KindOnce, "charge/payment:7"); err != nil || h.State != lockcore.StateDone || h.Attempt != 1 {
		t.Errorf("%+v, %v", h, err)
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The program in the package documentation is that of Example, which is compiled with the tests.
func TestDocProgram(t *testing.T) {
	t.Parallel()
	if err := docprogram.Check("doc.go", "example_test.go", 60); err != nil {
		t.Error(err)
	}
}
