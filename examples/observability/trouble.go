package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// short is a lease for the faults, so that a lost lease ends within a second.
const short = time.Second

// troubles are the faults: at least one for each alert of docs/observability that needs a fault.
var troubles = []struct {
	title, alert string
	make         func(*demo, context.Context) error
}{
	{"a handler runs longer than MaxHold, and ignores the end of its ctx", "HoldfastLeaseEnded, HoldfastOverrun", (*demo).hang},
	{"an operator revokes a key", "HoldfastLeaseEnded", (*demo).revoke},
	{"the network is cut under a handler, and other calls begin", "HoldfastLeaseLost, HoldfastRenewErrors, HoldfastUnavailable", (*demo).cutRunning},
	{"the network is cut before a record is stored", "HoldfastCompletionFailed, HoldfastTookOver", (*demo).cutEnding},
	{"a handler panics under at most once", "HoldfastOutcomeUnknown, HoldfastAbandoned, HoldfastTookOver", (*demo).panics},
	{"a job meets a conflict on its last attempt", "HoldfastConflictOnLastAttempt", (*demo).lastAttempt},
	{"a task of a hot account stays parked", "HoldfastParkedOld", (*demo).parked},
	{"a done key has a record that a release with another type wrote", "HoldfastBadRecord", (*demo).badRecord},
	{"a producer repeats a job with another payload", "", (*demo).otherPayload},
	{"a partner refuses a call for a while, and a newer task replaces an older one", "", (*demo).refused},
	{"an instance dies in the middle of a cron tick", "", (*demo).deadTick},
	{"a request has no key, and the body of another one was read before Idempotent", "HoldfastNoKey, HoldfastMisconfigured", (*demo).badRequests},
}

// makeTrouble makes one fault after another until ctx ends.
func (d *demo) makeTrouble(ctx context.Context, pause time.Duration) {
	for ctx.Err() == nil {
		for _, t := range troubles {
			if stage.Sleep(ctx, pause) != nil {
				return
			}
			d.say("fault: %s (%s)", t.title, cmp.Or(t.alert, "no alert"))
			if err := t.make(d, ctx); err != nil && ctx.Err() == nil {
				d.say("unexpected result: %v", err)
			}
		}
		d.say("all faults were made; the first one follows")
	}
}

func (d *demo) hang(ctx context.Context) error {
	terms := lockcore.Terms{Name: "report", Lease: short, MaxHold: short / 4}
	err := guard.Exclusive(ctx, d.a.Locks, "report:hangs", terms, func(ctx context.Context) error {
		<-ctx.Done()
		return stage.Sleep(context.WithoutCancel(ctx), short/4)
	})
	return unless(err, lockcore.ErrMaxHold)
}

func (d *demo) revoke(ctx context.Context) error {
	err := guard.Exclusive(ctx, d.a.Locks, "report:revoked", lockcore.Terms{Name: "report", Lease: short}, func(ctx context.Context) error {
		if err := d.b.Locks.Revoke(ctx, event.KindExclusive, "report:revoked"); err != nil {
			return err
		}
		<-ctx.Done() // the next renewal cancels it
		return nil
	})
	return unless(err, lockcore.ErrRevoked)
}

func (d *demo) cutRunning(ctx context.Context) error {
	defer mend(ctx, d.b)
	err := guard.Exclusive(ctx, d.b.Locks, "report:cut", lockcore.Terms{Name: "report", Lease: short}, func(ctx context.Context) error {
		d.b.Cut()
		begin, cancel := context.WithTimeout(ctx, short/4)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				key := fmt.Sprintf("report:other:%d", i)
				_ = guard.Exclusive(begin, d.b.Locks, key, lockcore.Terms{Name: "report"}, func(context.Context) error { return nil })
			})
		}
		wg.Wait()
		<-ctx.Done()
		return nil
	})
	return unless(err, lockcore.ErrLost)
}

func (d *demo) cutEnding(ctx context.Context) error {
	defer mend(ctx, d.b)
	key, o := "invoice:"+rand.Text(), guard.OnceOptions{Terms: lockcore.Terms{Name: "invoice", Lease: short}, Keep: keep}
	_, _ = guard.Once(ctx, d.b.Locks, key, o, func(context.Context) error {
		d.b.Cut()
		return nil
	})
	// Redis has no outcome of that run: the next one, here on the other node, takes the key over.
	outcome, err := guard.Once(ctx, d.a.Locks, key, o, func(context.Context) error { return nil })
	if err == nil && outcome != guard.TookOver {
		return errors.New("the second run " + outcome.String())
	}
	return err
}

func (d *demo) panics(ctx context.Context) error {
	key, o := "invoice:"+rand.Text(), guard.OnceOptions{Terms: lockcore.Terms{Name: "invoice"}, Keep: keep, Mode: guard.AtMostOnce}
	once := func() (err error) {
		defer func() { _ = recover() }()
		_, err = guard.Once(ctx, d.a.Locks, key, o, func(context.Context) error { panic("in the middle") })
		return err
	}
	_ = once()
	if err := once(); !errors.Is(err, lockcore.ErrAbandoned) {
		return errors.Join(errors.New("the second call was not refused"), err)
	}
	o.Mode = guard.AtLeastOnce
	if _, err := guard.Once(ctx, d.a.Locks, key, o, func(context.Context) error { return nil }); err != nil {
		return err
	}
	return d.a.Locks.Clear(ctx, event.KindOnce, key)
}

func (d *demo) lastAttempt(ctx context.Context) error {
	return guard.Exclusive(ctx, d.a.Locks, "account:blocked", lockcore.Terms{Name: "account"}, func(ctx context.Context) error {
		terms := lockcore.Terms{Name: "account", Wait: short / 4}
		err := guard.Exclusive(guard.Detach(ctx), d.b.Locks, "account:blocked", terms, func(context.Context) error { return nil })
		var busy *lockcore.BusyError
		if !errors.As(err, &busy) {
			return errors.Join(errors.New("the key was not busy"), err)
		}
		// asynqmw reports this event. A worker without asynqmw passes it to its Observer.
		d.observer.Event(ctx, event.ConflictLost{Name: "account", Holder: busy.Holder})
		return nil
	})
}

// parked reports the events of two tasks that were parked for eleven minutes, and that one of them
// ran. In a program, package asynqmw reports these events. The demo reports them itself, so that it
// needs no queue.
func (d *demo) parked(ctx context.Context) error {
	const name, key, old = "account", "account:hot", 11 * time.Minute
	for _, again := range []bool{false, true} {
		d.observer.Event(ctx, event.Parked{Name: name, Kind: event.KindExclusive, Key: key, Again: again, Count: 2, Oldest: old, Delay: old})
	}
	d.observer.Event(ctx, event.Unparked{Name: name, Kind: event.KindExclusive, Key: key, Parked: old, Count: 1, Oldest: old})
	return nil
}

func (d *demo) badRecord(ctx context.Context) error {
	key, o := "rate:"+rand.Text(), guard.OnceOptions{Terms: lockcore.Terms{Name: "rate"}, Keep: keep}
	if _, err := guard.OnceValue(ctx, d.a.Locks, key, o, func(context.Context) (string, error) { return "1.2", nil }); err != nil {
		return err
	}
	_, err := guard.OnceValue(ctx, d.b.Locks, key, o, func(context.Context) (float64, error) { return 1.2, nil })
	return unless(err, lockcore.ErrRecord)
}

func (d *demo) badRequests(ctx context.Context) error {
	post := func(path, key string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+path, strings.NewReader("item=tea"))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		return res.Body.Close()
	}
	return errors.Join(post("/orders", ""), post("/orders/wrong", rand.Text()))
}

// otherPayload calls a done key with another payload.
func (d *demo) otherPayload(ctx context.Context) error {
	key := "mail:" + rand.Text()
	for _, payload := range []string{"first", "second"} {
		o := guard.OnceOptions{
			Terms: lockcore.Terms{Name: "mail"}, Keep: keep,
			Fingerprint: idempotency.Fingerprint(nil, []byte(payload)), ReportOnly: true,
		}
		if _, err := guard.Once(ctx, d.a.Locks, key, o, func(context.Context) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// refused pauses a key, because its handler was refused. It also reports that a task was replaced, as
// asynqmw.Latest does in a program.
func (d *demo) refused(ctx context.Context) error {
	d.observer.Event(ctx, event.Replaced{Name: "account", Key: "account:hot"})
	tooMany := errors.New("429 Too Many Requests")
	err := guard.Exclusive(ctx, d.a.Locks, "partner:1", lockcore.Terms{Name: "partner"}, func(context.Context) error {
		return guard.Paused(tooMany, short)
	})
	return unless(err, tooMany)
}

// deadTick leaves a tick of a cron job without an outcome, as an instance that dies does. The
// instance that has the next tick reports it.
func (d *demo) deadTick(ctx context.Context) error {
	const job = "sweep"
	tick := cronmw.Tick{Name: job, Time: time.Now().Truncate(time.Second)}
	lease, _, err := d.b.Locks.Claim(ctx, tick.Key(), lockcore.Claim{Terms: lockcore.Terms{Name: job}})
	if err == nil {
		err = lease.Abandon(ctx)
	}
	if err != nil {
		return err
	}
	jobs, err := cronmw.New(d.a.Locks, cronmw.Options{})
	if err != nil {
		return err
	}
	o := cronmw.Job{Terms: lockcore.Terms{Name: job}}
	if err := jobs.Every(job, time.Second, o, func(context.Context, cronmw.Tick) error { return nil }); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return jobs.Run(ctx)
}

// mend ends a cut, and returns when n is connected again.
func mend(ctx context.Context, n *stage.Node) {
	n.Mend()
	for {
		_, err := n.Locks.Inspect(ctx, event.KindExclusive, "any")
		if err == nil || stage.Sleep(ctx, 50*time.Millisecond) != nil {
			return
		}
	}
}

// unless returns nil if err is the expected one, and otherwise an error.
func unless(err, planned error) error {
	switch {
	case errors.Is(err, planned):
		return nil
	case err == nil:
		return errors.New("nothing happened")
	}
	return err
}
