package security_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// 100,000 forged messages to a process that waits and to one that holds grant nothing and end no
// lease. They are well formed, broken, binary or huge. They cause a bounded number of commands a
// second (I12 of proof/sim).
// Shows: X1
func TestForgedMessages(t *testing.T) {
	testlevel.Full(t)
	for name, call := range map[string]testcall.Call{
		"renewed": {Terms: lockcore.Terms{Lease: 3 * time.Second}}, "fixed": {Terms: lockcore.Terms{Lease: time.Minute}, Fixed: true},
	} {
		t.Run(name, func(t *testing.T) { forge(t, call) })
	}
}

func forge(t *testing.T, call testcall.Call) {
	t.Helper()
	const messages = 100_000
	s := redistest.Real(t)
	admin, ctx := s.Client(t), t.Context()
	count := map[string]*redistest.Counter{"holder": {}, "waiter": {}}
	locker := func(name string) *lockcore.Locker {
		return newLocker(t, s.Client(t, func(o *redis.Options) { o.Dialer = count[name].Dial(o.Dialer) }), lockcore.Options{})
	}
	holder, waiter := locker("holder"), locker("waiter")
	_, err := holder.Acquire(ctx, "other", lockcore.Terms{}) // a process that renews leases is subscribed
	check(t, err)
	le, err := call.Acquire(ctx, holder, "k")
	check(t, err)
	got := make(chan *lockcore.Lease, 1)
	go func() {
		le, err := waiter.Acquire(ctx, "k", lockcore.Terms{Wait: lockcore.Forever})
		if err != nil {
			t.Error(err)
		}
		got <- le
	}()
	var request, hold string
	var channels []string
	for deadline := time.Now().Add(20 * time.Second); len(channels) < 2 || request == "" || hold == ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("inconclusive: channels %q, request %q, hold %q", channels, request, hold)
		}
		channels = admin.PubSubChannels(ctx, "holdfast:2:wake:*").Val()
		fields, _ := redistest.Fields(ctx, admin, "holdfast:2:x:{k}")
		hold = fields["h"]
		if queue := admin.ZRange(ctx, "holdfast:2:x:{k}:q", 0, -1).Val(); len(queue) == 1 {
			request = queue[0][len(queue[0])-26:]
		}
	}
	for _, c := range count {
		c.Reset()
	}
	start, sent := time.Now(), 0
	for sent < messages {
		pipe := admin.Pipeline()
		for range 1000 {
			pipe.Publish(ctx, channels[sent%2], forged(sent, request, hold))
			sent++
		}
		_, err := pipe.Exec(ctx)
		check(t, err)
	}
	if d := 3*time.Second - time.Since(start); d > 0 { // at least the length of the lease, so that a lost one shows
		time.Sleep(d)
	}
	took := time.Since(start)
	if err := le.Context().Err(); err != nil {
		t.Errorf("the lease was lost: %v", err)
	}
	select {
	case <-got:
		t.Error("the waiter was granted a held key")
	default:
	}
	// The bound: two requests a second, a renewal every 100 ms for a hold that a message says is
	// revoked, and a subscription that huge messages may end.
	for name := range count {
		if n := len(count[name].Commands()); float64(n) > 25*took.Seconds() {
			t.Errorf("%s: %d commands in %v: %v", name, n, took, count[name])
		}
		t.Logf("%s: %v in %v", name, count[name], took.Round(time.Millisecond))
	}
	check(t, le.Release(ctx))
	if next := <-got; next != nil {
		check(t, next.Release(ctx))
	}
}

// forged returns message number n.
func forged(n int, request, hold string) string {
	switch n / 2 % 10 {
	case 0:
		return "w" + request
	case 1:
		return "v" + hold
	case 2:
		return "w" + hold
	case 3:
		return "v" + request
	case 4:
		return "w" + strings.Repeat("A", 26)
	case 5:
		return ""
	case 6:
		return "wv"[n%2 : n%2+1]
	case 7:
		b := make([]byte, 27)
		for i := range b {
			b[i] = byte(n * (i + 1) >> (i % 8)) //nolint:gosec // any byte
		}
		return string(b)
	case 8:
		if n%2000 < 2 {
			return "w" + request + strings.Repeat("x", 1<<20)
		}
		return "w" + request + "x"
	}
	return "w" + request[:25]
}
