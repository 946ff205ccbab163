package lockcore

import "github.com/holdfast-go/holdfast/internal/access"

func init() { //nolint:gochecknoinits // see access.Of
	access.Of = func(locks any) access.Locker {
		l, _ := locks.(*Locker) //nolint:errcheck // only packages of this module call Of
		return access.Locker{
			Backend: l.backend, Report: l.report, Subscribe: l.subscription.startFor, HandleParked: l.handleParked, Interim: l.interim,
		}
	}
}
