package lockcore_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

// nilLease calls each exported method of a nil lease and checks that it behaves like a released
// one.
func nilLease(t *testing.T, le *lockcore.Lease) {
	t.Helper()
	v := reflect.ValueOf(le)
	for i := range v.NumMethod() {
		name, m := v.Type().Method(i).Name, v.Method(i)
		var args []reflect.Value
		for in := range m.Type().Ins() {
			switch in {
			case reflect.TypeFor[context.Context]():
				args = append(args, reflect.ValueOf(t.Context()))
			case reflect.TypeFor[time.Duration]():
				args = append(args, reflect.ValueOf(time.Minute))
			default:
				args = append(args, reflect.Zero(in))
			}
		}
		for _, out := range m.Call(args) {
			switch got := out.Interface().(type) {
			case context.Context:
				if !errors.Is(context.Cause(got), lockcore.ErrReleased) || got.Err() == nil {
					t.Errorf("%s: a ctx with %v, cause %v; want it canceled with ErrReleased", name, got.Err(), context.Cause(got))
				}
			case error:
				if !errors.Is(got, lockcore.ErrReleased) {
					t.Errorf("%s: %v, want ErrReleased", name, got)
				}
			default:
				if out.Type() == reflect.TypeFor[error]() || !out.IsZero() {
					t.Errorf("%s: %v, want the zero value, or ErrReleased", name, got)
				}
			}
		}
	}
}
