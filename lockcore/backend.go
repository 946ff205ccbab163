package lockcore

import "github.com/holdfast-go/holdfast/internal/access"

func init() { // see access.Of
	access.Of = func(locks any) access.Locker {
		l, _ := locks.(*Locker)
		return access.Locker{
			Backend: l.backend, Report: l.report, Subscribe: l.subscription.startFor, HandleParked: l.handleParked, Interim: l.interim,
		}
	}
}
