package lockcore

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/access"
)

// Internal is for packages of this module. Users must not call it: its type is internal and changes
// without notice.
func (l *Locker) Internal() access.Locker {
	return access.Locker{
		Backend: l.backend, Report: l.report,
		Subscribe: l.wake.startFor, HandleParked: l.handleParked, SkipMinHold: skipMinHold, BeforeWork: beforeWork, Interim: l.interim,
	}
}

// skipMinHold drops the MinHold of the hold whose ctx is ctx. Only the goroutine of the first run
// calls it, before that run returns. So minHold needs no mutex: each run returns under grant.mu,
// and the last run reads the new value.
func skipMinHold(ctx context.Context) {
	if h, ok := ctx.(*hold); ok {
		h.minHold = 0
	}
}
