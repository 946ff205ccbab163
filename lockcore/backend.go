package lockcore

import (
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
)

func init() { // see access.Of
	access.Of = func(locks any) access.Locker {
		l, _ := locks.(*Locker)
		return access.Locker{
			Backend: l.backend, Report: l.report, Subscribe: l.subscription.startFor, HandleParked: l.handleParked, Interim: l.interim,
			NoRecords: noRecords(l.backend),
		}
	}
}

// noRecords returns the error of each Claim, if b has no once keys.
func noRecords(b backend.Backend) error {
	if without, is := b.(interface{ NoRecords() error }); is {
		return translate(without.NoRecords())
	}
	return nil
}
