package connect_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"testing"

	rpc "connectrpc.com/connect"

	"github.com/holdfast-go/holdfast/examples/frameworks/connect"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// transfer is a message with a getter like those of protoc-gen-go.
type transfer struct{ Account string }

func (t *transfer) GetAccountId() string { return t.Account } //nolint:revive // the name that protoc-gen-go generates

type ping struct{}

type receipt struct{ Text string }

// plain encodes messages that are no protobufs.
type plain struct{}

func (plain) Name() string                        { return "json" }
func (plain) Marshal(m any) ([]byte, error)       { return json.Marshal(m) }
func (plain) Unmarshal(data []byte, m any) error  { return json.Unmarshal(data, m) }
func (plain) IsBinary() bool                      { return false }
func (plain) MarshalStable(m any) ([]byte, error) { return json.Marshal(m) }

// serve returns a function that calls a handler behind Alone over a connection.
func serve[Req any](t *testing.T, locks *lockcore.Locker, handle func(context.Context) error) func(Req) (string, error) {
	t.Helper()
	srv := httptest.NewServer(rpc.NewUnaryHandler("/bank/call", func(ctx context.Context, _ *rpc.Request[Req]) (*rpc.Response[receipt], error) {
		return rpc.NewResponse(&receipt{"done"}), handle(ctx)
	}, rpc.WithCodec(plain{}), rpc.WithInterceptors(connect.Alone(locks))))
	t.Cleanup(srv.Close)
	client := rpc.NewClient[Req, receipt](srv.Client(), srv.URL+"/bank/call", rpc.WithCodec(plain{}))
	return func(req Req) (string, error) {
		reply, err := client.CallUnary(t.Context(), rpc.NewRequest(&req))
		if err != nil {
			return "", err
		}
		return reply.Msg.Text, nil
	}
}

// A call that did not run gets Aborted or Unavailable. The error of a handler that ran is passed
// on, also that of a guard inside of it.
func TestAlone(t *testing.T) {
	locks := locktest.New(t)
	busy, inner, runs := locktest.Hold(t, locks, "account:7"), locktest.Hold(t, locks, "ledger"), 0
	pay := serve[transfer](t, locks, func(context.Context) error { runs++; return nil })
	nested := serve[transfer](t, locks, func(ctx context.Context) error {
		runs++
		return guard.Exclusive(ctx, locks, "ledger", lockcore.Terms{Wait: lockcore.NoWait}, func(context.Context) error { return nil })
	})
	other := serve[ping](t, locks, func(context.Context) error { runs++; return nil })
	for name, row := range map[string]struct {
		call  func() (string, error)
		reply string
		code  rpc.Code
		runs  int
	}{
		"busy":          {func() (string, error) { return pay(transfer{"7"}) }, "", rpc.CodeAborted, 0},
		"free":          {func() (string, error) { return pay(transfer{"8"}) }, "done", 0, 1},
		"busy inside":   {func() (string, error) { return nested(transfer{"9"}) }, "", rpc.CodeUnknown, 1},
		"no account":    {func() (string, error) { return other(ping{}) }, "done", 0, 1},
		"empty account": {func() (string, error) { return pay(transfer{}) }, "done", 0, 1},
	} {
		runs = 0
		reply, err := row.call()
		if code := rpc.CodeOf(err); reply != row.reply || err != nil && code != row.code || (err == nil) != (row.code == 0) || runs != row.runs {
			t.Errorf("%s: got %q, %v after %d runs; want %q, %v, %d", name, reply, err, runs, row.reply, row.code, row.runs)
		}
	}
	busy()
	if reply, err := pay(transfer{"7"}); reply != "done" || err != nil {
		t.Errorf("got %q, %v", reply, err)
	}
	inner()
	if err := locks.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := pay(transfer{"7"}); rpc.CodeOf(err) != rpc.CodeUnavailable {
		t.Errorf("got %v from a closed Locker", err)
	}
}
