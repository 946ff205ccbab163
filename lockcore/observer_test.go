package lockcore_test

import (
	"context"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/lockcore"
)

type pathKey struct{}

// listener adds its name to the path in ctx and notes what it hears on which path.
type listener struct {
	name, trace string
	heard       *[]string
}

func (l listener) Start(ctx context.Context, a lockcore.Acquisition) context.Context {
	path, _ := ctx.Value(pathKey{}).(string)
	return context.WithValue(ctx, pathKey{}, path+l.name+":"+a.Key+" ")
}

func (l listener) Event(ctx context.Context, _ lockcore.Event) {
	path, _ := ctx.Value(pathKey{}).(string)
	*l.heard = append(*l.heard, l.name+" on "+path)
}

func (l listener) Traceparent(context.Context) string { return l.trace }

// Joined observers hear everything in order, each under the ctx of all; the first traceparent wins.
func TestObserverJoin(t *testing.T) {
	var heard []string
	a, b := listener{"a", "", &heard}, listener{"b", "trace of b", &heard}
	c := listener{"c", "trace of c", &heard}
	if o := lockcore.Join(nil, nil); o != nil {
		t.Errorf("nobody joined is %v, want nil", o)
	}
	if o := lockcore.Join(nil, a, nil); o != lockcore.Observer(a) {
		t.Errorf("one joined is %v, want itself", o)
	}
	o := lockcore.Join(nil, a, b, nil, lockcore.Join(c))
	ctx := o.Start(t.Context(), lockcore.Acquisition{Kind: lockcore.KindOnce, Key: "k"})
	o.Event(ctx, lockcore.Granted{})
	if want := []string{"a on a:k b:k c:k ", "b on a:k b:k c:k ", "c on a:k b:k c:k "}; !slices.Equal(heard, want) {
		t.Errorf("heard %q, want %q", heard, want)
	}
	if got := o.Traceparent(ctx); got != "trace of b" {
		t.Errorf("traceparent %q", got)
	}
	if got := lockcore.Join(a, a).Traceparent(ctx); got != "" {
		t.Errorf("traceparent %q of who has none", got)
	}
}
