package lockcore

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
)

// A task is parked when it waits for a key outside of its worker, see package internal/parking. The backend
// keeps an entry for it beside the key, and replies say whether a key may have entries. The
// functions here pass that on to the code that wakes tasks. A lost reply, a lost notification or a
// process that dies only delays a parked task, because the task comes back without a wake too.

// handleParked adds handle, a handler that wakes parked tasks. handle must not block. No mutex is
// held while it runs. handleParked returns a ctx that ends with l.
func (l *Locker) handleParked(handle func(backend.Key, access.Parked)) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parkedHandlers = append(l.parkedHandlers, handle)
	return l.base
}

// seeParked passes on that a key may have parked entries. If the key is free or done, and this
// process has no handler that wakes their tasks, seeParked notifies the parking Locker.
func (l *Locker) seeParked(key *backend.Key, state access.Parked) {
	if l.passParked(key, state) || state == access.ParkedHeld || !l.startWorker() {
		return
	}
	k := *key
	go func() { // owner: l, which waits for it in join; it ends after CallTimeout, or with l.base
		defer l.wg.Done()
		_, _ = l.backend.CallParkingLocker(l.base, &k)
	}()
}

// passParked calls the handlers that wake parked tasks. It returns false if this process has none.
func (l *Locker) passParked(key *backend.Key, state access.Parked) bool {
	l.mu.Lock()
	all := l.parkedHandlers
	l.mu.Unlock()
	for _, handle := range all {
		handle(*key, state)
	}
	return len(all) > 0
}
