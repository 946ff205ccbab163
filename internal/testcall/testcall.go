// Package testcall has the call for a key as a value, for tests that repeat their steps with calls of
// several kinds.
package testcall

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Call is a call for an exclusive key.
type Call struct {
	lockcore.Terms
	Limit lockcore.Limit // zero: the key alone
	Fixed bool           // the lease is not renewed
}

// Acquire makes the call.
func (c Call) Acquire(ctx context.Context, locks *lockcore.Locker, key string) (*lockcore.Lease, error) {
	switch {
	case c.Alone() && c.Fixed:
		return locks.AcquireFixed(ctx, key, c.Terms)
	case c.Alone():
		return locks.Acquire(ctx, key, c.Terms)
	case c.Fixed:
		ctx = access.WithFixed(ctx)
	}
	return locks.AcquireShare(ctx, key, c.Limit, c.Terms)
}

// Alone reports whether the call is for the key alone.
func (c Call) Alone() bool { return c.Limit == lockcore.Limit{} }

// Weight returns the weight of the share.
func (c Call) Weight() int { return max(c.Limit.Weight, 1) }
