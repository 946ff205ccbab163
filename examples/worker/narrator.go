package main

import (
	"context"
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast/lockcore"
)

// narrator is an Observer that prints what happens to keys. In production, use a log or package
// tracing.
type narrator struct{ s *stage }

type keyOf struct{}

func (n narrator) Start(ctx context.Context, a lockcore.Acquisition) context.Context {
	return context.WithValue(ctx, keyOf{}, strings.ReplaceAll(a.Key, n.s.name+"-", ""))
}

func (n narrator) Event(ctx context.Context, e lockcore.Event) {
	key := ctx.Value(keyOf{})
	switch e := e.(type) {
	case lockcore.Waiting:
		n.s.say("  %v is held by %v: the task waits", key, e.Holder)
	case lockcore.Refused:
		if errors.Is(e.Err, lockcore.ErrBusy) {
			n.s.say("  %v is still busy: the task comes back later, no retry is used up", key)
		}
	case lockcore.Replayed:
		n.s.say("  %v is done already: replayed, not run", key)
	case lockcore.Lost:
		n.s.say("  %v was lost: %v", key, e.Cause)
	}
}

func (narrator) Traceparent(context.Context) string { return "" }
