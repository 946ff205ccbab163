package grpc_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/examples/frameworks/grpc"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

type transfer struct{ account string }

func (t transfer) GetAccountId() string { return t.account } //nolint:revive // the name that protoc-gen-go generates

// A call that did not run gets Aborted or Unavailable. The error of a handler that ran is passed
// on, also that of a guard inside of it.
func TestAlone(t *testing.T) {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}})
	if err != nil {
		t.Fatal(err)
	}
	inner := locktest.Hold(t, locks, "ledger")
	busy := locktest.Hold(t, locks, "account:7")
	runs := 0
	call := func(req any) (any, codes.Code) {
		reply, err := grpc.Alone(locks)(t.Context(), req, nil, func(ctx context.Context, _ any) (any, error) {
			runs++
			if req == (transfer{"9"}) {
				return nil, guard.Exclusive(ctx, locks, "ledger", lockcore.Terms{}, func(context.Context) error { return nil })
			}
			return "done", nil
		})
		return reply, status.Code(err)
	}
	for _, row := range []struct {
		req   any
		reply any
		code  codes.Code
		runs  int
	}{
		{transfer{"7"}, nil, codes.Aborted, 0}, {transfer{"8"}, "done", codes.OK, 1}, {transfer{"9"}, nil, codes.Unknown, 1}, {"ping", "done", codes.OK, 1},
	} {
		runs = 0
		if reply, code := call(row.req); reply != row.reply || code != row.code || runs != row.runs {
			t.Errorf("%v: got %v, %v after %d runs; want %v, %v, %d", row.req, reply, code, runs, row.reply, row.code, row.runs)
		}
	}
	busy()
	if reply, code := call(transfer{"7"}); reply != "done" || code != codes.OK {
		t.Errorf("got %v, %v", reply, code)
	}
	inner()
	if err := locks.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, code := call(transfer{"7"}); code != codes.Unavailable {
		t.Errorf("got %v from a closed Locker", code)
	}
}
