package lockcore_test

import (
	"context"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/event"
)

type pathKey struct{}

// listener adds its name to the path in ctx, and keeps each event with the path of its ctx.
type listener struct {
	name, trace string
	heard       *[]string
}

func (l listener) Start(ctx context.Context, a event.Acquisition) context.Context {
	path, _ := ctx.Value(pathKey{}).(string)
	return context.WithValue(ctx, pathKey{}, path+l.name+":"+a.Key+" ")
}

func (l listener) Event(ctx context.Context, _ event.Event) {
	path, _ := ctx.Value(pathKey{}).(string)
	*l.heard = append(*l.heard, l.name+" on "+path)
}

func (l listener) Traceparent(context.Context) string { return l.trace }

// Joined Observers get all events in order, each with the ctx that all have extended. Join returns
// the first traceparent that is not empty.
func TestObserverJoin(t *testing.T) {
	var heard []string
	a, b := listener{"a", "", &heard}, listener{"b", "trace of b", &heard}
	c := listener{"c", "trace of c", &heard}
	if o := event.Join(nil, nil); o != nil {
		t.Errorf("Join of nil only is %v, want nil", o)
	}
	if o := event.Join(nil, a, nil); o != event.Observer(a) {
		t.Errorf("Join of one Observer is %v, want that Observer", o)
	}
	o := event.Join(nil, a, b, nil, event.Join(c))
	ctx := o.Start(t.Context(), event.Acquisition{Kind: event.KindOnce, Key: "k"})
	o.Event(ctx, event.Granted{})
	if want := []string{"a on a:k b:k c:k ", "b on a:k b:k c:k ", "c on a:k b:k c:k "}; !slices.Equal(heard, want) {
		t.Errorf("events %q, want %q", heard, want)
	}
	if got := o.Traceparent(ctx); got != "trace of b" {
		t.Errorf("traceparent %q", got)
	}
	if got := event.Join(a, a).Traceparent(ctx); got != "" {
		t.Errorf("traceparent %q, want none", got)
	}
}
