package lockcore

import "github.com/holdfast-go/holdfast/internal/access"

// Internal is for packages of this module. Users must not call it: its type is internal and changes
// without notice.
func (l *Locker) Internal() access.Locker {
	return access.Locker{
		Backend: l.backend, Report: l.report, Subscribe: l.wake.startFor, HandleParked: l.handleParked, Interim: l.interim,
	}
}
