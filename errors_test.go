package holdfast_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

type badCodec struct{ idempotency.Codec }

func (badCodec) Name() string { return strings.Repeat("n", 300) }

// Every error of this module has a text of one line, which begins with the name of one of its
// packages and names no other one.
func TestErrorTexts(t *testing.T) {
	ctx := t.Context()
	nothing := func(context.Context) error { return nil }
	tick := func(context.Context, cronmw.Tick) error { return nil }
	once := lockcore.Claim{}
	bad := lockcore.Terms{Name: strings.Repeat("n", 200), Wait: -5, MaxWaiting: -1, Lease: 1, MaxHold: -1, MinHold: -1, Stall: 1}
	server := locktest.NewServer(t)
	locks := server.Locker(lockcore.Options{})
	ended, end := context.WithCancel(ctx)
	end()

	var errs []error
	add := func(all ...error) { errs = append(errs, all...) }
	two := func(_ any, err error) { add(err) }
	panics := func(f func()) {
		defer func() { add(fmt.Errorf("%v", recover())) }()
		f()
	}

	// lockcore
	add(bad.Validate(), lockcore.Options{Prefix: "{", Terms: bad, ReplicaAcks: lockcore.ReplicaAcks{N: -1}}.Validate())
	two(lockcore.New(nil, lockcore.Options{Prefix: "{", Terms: bad}))
	two(locks.Acquire(ctx, "", bad))
	two(locks.Acquire(ctx, strings.Repeat("k", 600), bad))
	two(locks.Acquire(ended, "k", lockcore.Terms{}))
	two(locks.Acquire(ended, "", lockcore.Terms{}))
	_, _, err := locks.Claim(ctx, "", lockcore.Claim{Terms: bad, Keep: -1, Fingerprint: make([]byte, 300)})
	add(err)
	release := locktest.Hold(t, locks, "held")
	two(locks.Acquire(ctx, "held", lockcore.Terms{Wait: lockcore.NoWait}))
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	two(locks.Acquire(short, "held", lockcore.Terms{Wait: time.Minute}))
	two(server.Locker(lockcore.Options{}).Acquire(short, "held", lockcore.Terms{Wait: time.Minute}))
	add(locks.Clear(ctx, event.KindExclusive, "held"), locks.ForceClear(ctx, event.KindExclusive, "held", lockcore.Holding{State: lockcore.StateHeld}), locks.Revoke(ctx, event.KindExclusive, ""))
	two(locks.Inspect(ctx, event.KindExclusive, ""))
	lease, err := locks.Acquire(ctx, "lease", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	add(lease.Complete(ctx, nil, time.Hour))
	lease, _, err = locks.Claim(ctx, "once", once)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = locks.Claim(lease.Context(), "once", once)
	add(err, lease.Complete(ctx, nil, 0))
	locktest.Abandon(t, locks, "abandoned")
	_, _, err = locks.Claim(ctx, "abandoned", lockcore.Claim{AtMostOnce: true})
	add(err)
	for _, err := range doctor.List(ctx, locks, doctor.ListOptions{Kind: 9}) {
		add(err)
	}
	rdb := redis.NewClient(server.Options())
	defer rdb.Close()
	rdb.Set(ctx, "holdfast:2:x:{string}", "s", 0)
	two(locks.Acquire(ctx, "string", lockcore.Terms{}))
	o := server.Options()
	faults := locktest.NewFaults(t)
	o.Dialer = faults.Dial(o.Dialer)
	gone := redis.NewClient(o)
	defer gone.Close()
	away, err := lockcore.New(gone, lockcore.Options{NoGroups: true})
	if err != nil {
		t.Fatal(err)
	}
	faults.Down()
	two(away.Acquire(ctx, "k", lockcore.Terms{Wait: 20 * time.Millisecond}))
	two(doctor.Check(ctx, gone, lockcore.Options{}))
	add(away.Close(ctx))

	// guard
	add(guard.Exclusive(ctx, nil, "k", bad, nil), guard.Exclusive(ctx, locks, "", bad, nothing))
	opts := guard.OnceOptions{Terms: bad, Keep: -1, Mode: 9, Fingerprint: make([]byte, 300), Codec: badCodec{idempotency.JSON()}, MaxResult: -1}
	add(opts.Validate())
	two(guard.Once(ctx, nil, "k", opts, nil))
	two(guard.Once(ctx, locks, "", opts, nothing))
	two(guard.OnceValue[int](ctx, nil, "k", opts, nil))
	two(guard.OnceValue(ctx, locks, "chan", guard.OnceOptions{}, func(context.Context) (chan int, error) { return make(chan int), nil }))
	add(guard.Exclusive(ctx, locks, "lost", lockcore.Terms{}, func(ctx context.Context) error {
		locktest.Lose(ctx)
		return guard.Exclusive(ctx, locks, "inner", lockcore.Terms{}, nothing)
	}))

	// idempotency, fence
	two(idempotency.Decode([]byte("x")))
	two(idempotency.Decode(nil))
	two(idempotency.Content{Ending: 9}.Encode())
	add(idempotency.Content{Codec: "json", Data: []byte("{")}.Value(idempotency.JSON(), new(int)))
	add(idempotency.Content{Codec: "gob"}.Value(idempotency.JSON(), new(int)))
	add(idempotency.Content{Codec: "bytes"}.Value(idempotency.Bytes(), new(int)))
	two(idempotency.Lookup(ctx, locks, ""))
	two(fence.Of(ctx, "k"))
	add(new(fence.Memory).Do(fence.Hold{}, func() error { return nil }))
	two(fence.Redis{}.Do(ctx, fence.Hold{}, "k", "SET"))

	// asynqmw
	add(asynqmw.ExclusiveOptions{Terms: bad, Busy: 99}.Validate(), asynqmw.OnceOptions{Terms: bad, Busy: 99, Keep: -1, Mode: 9}.Validate())
	panics(func() { asynqmw.Exclusive(nil, nil, asynqmw.ExclusiveOptions{Terms: bad, Busy: 99}) })
	panics(func() { asynqmw.Once(nil, nil, asynqmw.OnceOptions{Terms: bad, Busy: 99}) })
	two(asynqmw.NewTicks(nil, asynqmw.TickOptions{}, asynqmw.Periodic{}, asynqmw.Periodic{Spec: "@every 5m"}))
	add(asynqmw.EnqueueTick(ctx, nil, "", time.Time{}, nil, asynq.TaskID("t")))

	// cronmw
	job := cronmw.Job{Terms: bad, Overlap: 9, CatchUp: 9, MaxLateness: -1, Keep: -1}
	add(job.Validate())
	two(cronmw.AddTo(cron.New(), nil, "", "nonsense", job, nil))
	two(cronmw.AddTo(cron.New(), locks, "n", "nonsense", cronmw.Job{}, tick))
	two(cronmw.AddTo(nil, locks, "n", "nonsense", cronmw.Job{CatchUp: cronmw.CatchUpLatest}, tick))
	jobs, err := cronmw.New(locks, cronmw.Options{})
	add(err)
	add(jobs.Add("", "nonsense", job, nil), jobs.Add("", "@reboot", job, nil), jobs.Every("", 1, job, nil))
	two(cronmw.New(nil, cronmw.Options{}))

	// httpmw
	add(httpmw.IdempotentOptions{Terms: bad, Keep: -1, Mode: 9, Methods: []string{"get"}}.Validate(), httpmw.ExclusiveOptions{Terms: bad}.Validate())
	two(httpmw.IdempotentOptions{}.KeyOf("", "get", "?", "a, b"))
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	two(httpmw.ByPathValue("c", "id")(r))
	panics(func() { httpmw.Exclusive(nil, nil, httpmw.ExclusiveOptions{Terms: bad}) })
	panics(func() { httpmw.Idempotent(nil, nil, httpmw.IdempotentOptions{Terms: bad, Keep: -1}) })

	// what is closed
	release()
	locks2 := server.Locker(lockcore.Options{})
	add(locks2.Close(ctx))
	two(locks2.Acquire(ctx, "k", lockcore.Terms{}))

	const ours = `lockcore|doctor|guard|idempotency|fence|asynqmw|cronmw|httpmw`
	first, again := regexp.MustCompile(`^(`+ours+`): `), regexp.MustCompile(`.\b(`+ours+`): `)
	n := 0
	for _, err := range errs {
		if err == nil {
			continue
		}
		n++
		text := err.Error()
		if strings.Contains(text, "\n") || !first.MatchString(text) || again.MatchString(text) {
			t.Errorf("%q must be one line that begins with the name of a package and has no other", text)
		}
		t.Log(text)
	}
	if n < 50 {
		t.Errorf("%d of %d calls failed, want at least 50", n, len(errs))
	}
}
