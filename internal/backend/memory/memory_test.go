package memory_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/memory"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.PoolProbes()) }

func must(t *testing.T, o memory.Options) *memory.Backend {
	t.Helper()
	if o.Locker == "" {
		o.Locker = strings.Repeat("L", 26)
	}
	b, err := memory.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func space(t *testing.T, maxBytes int64) *memory.Space {
	t.Helper()
	s, err := memory.NewSpace(maxBytes)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func request(b *memory.Backend, kind backend.Kind, name, id string, lease time.Duration) backend.AcquireRequest {
	k := b.Key(kind, name)
	return backend.AcquireRequest{Key: &k, ID: id, Holder: "who", Lease: lease, Retention: lease + time.Minute}
}

// TestOptions checks that New refuses invalid sizes. The name of the backend says "this process
// only", and Route returns one node.
func TestOptions(t *testing.T) {
	for _, o := range []memory.Options{{MaxBytes: 1}, {MaxBytes: -1}, {MaxBytes: 1 << 20, Space: space(t, 0)}} {
		if _, err := memory.New(o); err == nil || !strings.Contains(err.Error(), "MaxBytes") {
			t.Errorf("%+v: error %v, want one about MaxBytes", o, err)
		}
	}
	b := must(t, memory.Options{})
	if name := b.Name(); !strings.Contains(name, "this process only") {
		t.Errorf("Name returns %q", name)
	}
	k := b.Key(backend.KindOnce, "k")
	if nodes := b.Route(t.Context(), []*backend.Key{&k, &k}); !slices.Equal(nodes, []string{"", ""}) {
		t.Errorf("Route returns %q", nodes)
	}
}

// TestMaxBytes fills a space. Held keys can still be renewed and repeated. Keys whose data has
// ended make room for others.
// Shows: M6
func TestMaxBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := t.Context(), space(t, 20_000)
		b := must(t, memory.Options{Space: s})
		var held []backend.AcquireRequest
		var full error
		for i := 0; full == nil; i++ {
			r := request(b, backend.KindOnce, fmt.Sprint("k", i), fmt.Sprintf("%026d", i), time.Minute)
			if _, full = b.Acquire(ctx, r); full == nil {
				held = append(held, r)
			}
		}
		for _, part := range []string{"MaxBytes is 20000", fmt.Sprintf(`"k%d"`, len(held))} {
			if !strings.Contains(full.Error(), part) {
				t.Errorf("the error is %q, want one that contains %s", full, part)
			}
		}
		if b.Permanent(full) || len(held) < 10 {
			t.Errorf("full after %d keys, permanent: %v", len(held), b.Permanent(full))
		}
		if n := s.Len(); n != len(held) {
			t.Errorf("%d keys, want %d", n, len(held))
		}
		first := held[0]
		if g, err := b.Acquire(ctx, first); err != nil || g.Outcome != backend.OutcomeGranted {
			t.Errorf("a repeat gets %+v, error %v", g, err)
		}
		c := backend.CompleteRequest{Key: first.Key, ID: first.ID, Token: 1, Record: bytes.Repeat([]byte("r"), 20_000), Keep: time.Hour}
		if _, err := b.Complete(ctx, c); err == nil || !strings.Contains(err.Error(), "MaxBytes") {
			t.Errorf("Complete returns %v", err)
		}
		for _, r := range held {
			reply := b.Renew(ctx, []backend.RenewRequest{{Key: r.Key, ID: r.ID, Lease: time.Minute, Retention: 2 * time.Minute}})[0]
			if reply.Err != nil || reply.Verdict != backend.VerdictKept {
				t.Errorf("Renew of %s returns %+v", r.Key.Name, reply)
			}
		}
		time.Sleep(2*time.Minute + time.Second)
		if _, err := b.Acquire(ctx, request(b, backend.KindOnce, "next", strings.Repeat("N", 26), time.Minute)); err != nil {
			t.Errorf("after the data of all keys has ended: %v", err)
		}
		s.Check(t)
	})
}

// TestExpiry leaves keys that no request names again. Requests for another key remove them.
// Shows: M6
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := space(t, 0)
		b := must(t, memory.Options{Space: s})
		for i := range 1000 {
			if _, err := b.Acquire(t.Context(), request(b, backend.KindExclusive, fmt.Sprint(i), fmt.Sprintf("%026d", i), time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		other := b.Key(backend.KindExclusive, "other")
		for range 125 {
			_, _ = b.Inspect(t.Context(), &other, backend.NoRecord)
		}
		s.Check(t)
		if n := s.Len(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
	})
}

// TestParkedEntries fills a space with parked entries. They end in time, also if their key has no
// other data.
func TestParkedEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := space(t, 20_000)
		b := must(t, memory.Options{Space: s})
		r := request(b, backend.KindExclusive, "k", strings.Repeat("R", 26), time.Second)
		if _, err := b.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		park := backend.ParkRequest{Key: r.Key, Most: 1000, Keep: time.Hour}
		var full error
		n := 0
		for ; full == nil; n++ {
			park.Entry = fmt.Sprintf("%0100d", n)
			_, full = b.Park(t.Context(), park)
		}
		if !strings.Contains(full.Error(), "MaxBytes is 20000") || b.Permanent(full) || n < 20 || n > 200 {
			t.Errorf("full after %d entries: %v", n, full)
		}
		st, err := b.Inspect(t.Context(), r.Key, backend.NoRecord)
		if err != nil || st.Parked != n-1 {
			t.Errorf("%d entries, error %v, want %d", st.Parked, err, n-1)
		}
		park.Entry = st.OldestParked
		if reply, err := b.Park(t.Context(), park); err != nil || reply.Count != n-1 {
			t.Errorf("an entry that is parked again gets %+v, error %v", reply, err)
		}
		s.Check(t)
		time.Sleep(30 * time.Minute)
		if st, err := b.Inspect(t.Context(), r.Key, backend.NoRecord); err != nil || st.Token != 0 || st.Parked != n-1 {
			t.Errorf("after the end of the data: %+v, error %v", st, err)
		}
		s.Check(t)
		time.Sleep(30 * time.Minute)
		other := b.Key(backend.KindExclusive, "other")
		_, _ = b.Inspect(t.Context(), &other, backend.NoRecord)
		if n := s.Len(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
		s.Check(t)
	})
}

// TestTokensGrowOverRestart checks that the tokens of a new space begin at the clock.
// Shows: M5
func TestTokensGrowOverRestart(t *testing.T) {
	var last int64
	for range 3 {
		b := must(t, memory.Options{})
		before := time.Now().UnixMicro()
		g, err := b.Acquire(t.Context(), request(b, backend.KindExclusive, "k", strings.Repeat("A", 26), time.Second))
		if err != nil || g.Token <= last || g.Token < before-1000 {
			t.Fatalf("token %d after %d, error %v", g.Token, last, err)
		}
		last = g.Token
		time.Sleep(time.Millisecond)
	}
}

// TestClose checks that each method of a closed backend fails. Close ends a subscription, and
// leaves the holds of other backends.
func TestClose(t *testing.T) {
	ctx, s := t.Context(), space(t, 0)
	failed := 0
	a := must(t, memory.Options{Space: s, Options: backend.Options{Locker: strings.Repeat("A", 26), CleanupsFailed: func(n int, err error) {
		if failed += n; !errors.Is(err, backend.ErrClosed) {
			t.Errorf("CleanupsFailed gets %v", err)
		}
	}}})
	b := must(t, memory.Options{Space: s})
	r := request(a, backend.KindOnce, "k", strings.Repeat("R", 26), time.Minute)
	if _, err := a.Acquire(ctx, r); err != nil {
		t.Fatal(err)
	}
	var listening sync.WaitGroup
	up := make(chan backend.Notification, 1)
	listening.Go(func() { a.Listen(ctx, func(n backend.Notification) { up <- n }) })
	<-up
	a.Drain(ctx)
	a.Close()
	a.Close()
	listening.Wait()
	a.Listen(ctx, func(backend.Notification) { t.Error("a closed backend notifies") })

	_, acquired := a.Acquire(ctx, r)
	_, released := a.Release(ctx, backend.ReleaseRequest{Key: r.Key, ID: r.ID})
	_, completed := a.Complete(ctx, backend.CompleteRequest{Key: r.Key, ID: r.ID})
	_, inspected := a.Inspect(ctx, r.Key, backend.NoRecord)
	_, revoked := a.Revoke(ctx, backend.RevokeRequest{Key: r.Key})
	_, cleared := a.Clear(ctx, backend.ClearRequest{Key: r.Key})
	errs := []error{acquired, released, completed, inspected, cleared, revoked, a.Renew(ctx, []backend.RenewRequest{{Key: r.Key}})[0].Err}
	for _, err := range a.List(ctx, backend.ListRequest{}) {
		errs = append(errs, err)
	}
	for i, err := range errs {
		if !errors.Is(err, backend.ErrClosed) || !a.Permanent(err) {
			t.Errorf("call %d returns %v, want ErrClosed", i, err)
		}
	}
	a.Withdraw(backend.WithdrawRequest{Key: r.Key, ID: r.ID})
	a.ReleaseLater(backend.ReleaseRequest{Key: r.Key, ID: r.ID}, time.Now().Add(time.Hour))
	a.Report()
	a.Report()
	if failed != 2 || len(errs) != 8 {
		t.Errorf("%d cleanups failed, want 2; %d errors, want 8", failed, len(errs))
	}
	if st, err := b.Inspect(ctx, r.Key, backend.NoRecord); err != nil || st.State != backend.StateHeld {
		t.Errorf("another backend finds %+v, error %v", st, err)
	}
}

// TestContext checks that a command whose ctx has ended does not run. A release runs.
func TestContext(t *testing.T) {
	b := must(t, memory.Options{})
	r := request(b, backend.KindExclusive, "k", strings.Repeat("R", 26), time.Minute)
	cause := errors.New("cause")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := b.Acquire(ended, r); !errors.Is(err, cause) {
		t.Errorf("Acquire returns %v", err)
	}
	if _, err := b.Acquire(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for _, err := range b.List(ended, backend.ListRequest{}) {
		if !errors.Is(err, cause) {
			t.Errorf("List yields %v", err)
		}
	}
	if reply, err := b.Release(ended, backend.ReleaseRequest{Key: r.Key, ID: r.ID, Token: 1, Retention: time.Minute}); err != nil || !reply.Released {
		t.Errorf("Release returns %+v, error %v", reply, err)
	}
}

// TestRecordIsCopied changes the bytes that it passed to the backend and got from it. The stored
// record does not change.
func TestRecordIsCopied(t *testing.T) {
	b := must(t, memory.Options{})
	r := request(b, backend.KindOnce, "k", strings.Repeat("R", 26), time.Minute)
	g, err := b.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	record := []byte("record")
	if _, err := b.Complete(t.Context(), backend.CompleteRequest{Key: r.Key, ID: r.ID, Token: g.Token, Record: record, Keep: time.Hour}); err != nil {
		t.Fatal(err)
	}
	record[0] = 'x'
	for range 2 {
		done, err := b.Acquire(t.Context(), r)
		if err != nil || string(done.Record) != "record" {
			t.Fatalf("Acquire returns the record %q, error %v", done.Record, err)
		}
		done.Record[0] = 'x'
		st, err := b.Inspect(t.Context(), r.Key, backend.WholeRecord)
		if err != nil || string(st.Record) != "record" {
			t.Fatalf("Inspect returns the record %q, error %v", st.Record, err)
		}
		st.Record[0] = 'x'
	}
}

// TestConcurrent runs lockers in parallel. A key never has two holders, and no token is used twice.
// Shows: M3
func TestConcurrent(t *testing.T) {
	const lockers, rounds = 8, 300
	s := space(t, 0)
	var inside [3]atomic.Int64
	var last [3]atomic.Int64
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	var listening sync.WaitGroup
	for i := range lockers {
		b := must(t, memory.Options{Space: s, Options: backend.Options{Locker: fmt.Sprintf("%026d", i)}})
		listening.Go(func() { b.Listen(ctx, func(backend.Notification) {}) })
		wg.Go(func() {
			for n := range rounds {
				k := rand.IntN(len(inside))
				r := request(b, backend.KindExclusive, fmt.Sprint("k", k), fmt.Sprintf("%013d%013d", i, n), time.Minute)
				r.Queue = n%2 == 0
				g, err := b.Acquire(ctx, r)
				if err != nil {
					t.Error(err)
					return
				}
				if g.Outcome != backend.OutcomeGranted {
					b.Withdraw(backend.WithdrawRequest{Key: r.Key, ID: r.ID, Retention: time.Minute, Repeated: n%3 == 0})
					continue
				}
				if inside[k].Add(1) != 1 || last[k].Swap(g.Token) >= g.Token {
					t.Errorf("key %d has two holders, or token %d was used before", k, g.Token)
				}
				_, _ = b.Inspect(ctx, r.Key, backend.NoRecord)
				for _, err := range b.List(ctx, backend.ListRequest{}) {
					if err != nil {
						t.Error(err)
					}
				}
				inside[k].Add(-1)
				b.ReleaseLater(backend.ReleaseRequest{Key: r.Key, ID: r.ID, Token: g.Token, Retention: time.Minute}, time.Now())
			}
		})
	}
	wg.Wait()
	cancel()
	listening.Wait()
	s.Check(t)
}
