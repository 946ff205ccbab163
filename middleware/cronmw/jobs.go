package cronmw

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// lookAgain is the longest sleep without a look at the clock: the clock may be set, and timers stop
// while the machine is suspended.
const lookAgain = time.Minute

// Options are the options of [Jobs]. The zero value is ready to use.
type Options struct {
	// Location is the zone of specs that name none. Default: UTC. It must be the same on all
	// instances.
	Location *time.Location
	// CancelOnStop ends the ctx of running jobs when the ctx of Run ends. Default: false, the jobs
	// run to their end, which Terms.MaxHold bounds.
	CancelOnStop bool
	// Now is the clock that decides when ticks are due on this instance. Default: time.Now. Set it
	// in tests of instances with different clocks. It decides only when this instance requests a
	// tick. The clock of Redis decides whether the tick is in time.
	Now func() time.Time
}

// Jobs are the cron jobs of one instance. Make it with [New], add the jobs, and call Run.
type Jobs struct {
	locks *lockcore.Locker
	o     Options

	mu      sync.Mutex
	jobs    map[string]*singleton
	running bool
}

// New returns Jobs without a job. It returns an error if locks is nil or o is not
// valid.
func New(locks *lockcore.Locker, o Options) (*Jobs, error) {
	if locks == nil {
		return nil, errors.New("cronmw: New: locks must not be nil")
	}
	if o.Location == nil {
		o.Location = time.UTC
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Jobs{locks: locks, o: o, jobs: map[string]*singleton{}}, nil
}

// Add adds a job. Each tick of spec runs on one of the instances that add a job of this name. spec
// has the five fields of cron, or six, the first of which is for seconds. It may also be a
// descriptor such as @daily. robfig/cron parses it.
//
// name identifies the job in all instances and releases. It has 1 to 128 bytes. A renamed job is a
// new job: during a deploy the ticks of both names run, a run under the old name does not delay one
// under the new name, and the new name has no missed ticks. If two releases have different specs,
// each runs the ticks of its own spec.
//
// A spec is in UTC, unless Options.Location has another zone, or the spec begins with one
// (CRON_TZ=Europe/Rome 0 7 * * *). If a zone changes its clocks, a time that the zone leaves out in
// spring has no tick on that day. A time that it repeats in autumn has two ticks, an hour apart,
// unless SkipRepeated is set. Both are the behavior of robfig/cron. Choose UTC, or a time that is
// neither left out nor repeated.
//
// Add returns every problem of spec, name, j and fn at once. It also returns an error for @every
// (use [Jobs.Every]) and @reboot, for a name that was added before, after Run was called, and for a
// Locker of lockcore.NewQuorum, which records no ticks.
func (js *Jobs) Add(name, spec string, j Job, fn func(ctx context.Context, t Tick) error) error {
	s, err := newSingleton(js.locks, name, j, fn)
	spec, specErr := checkSpec(spec)
	if specErr != nil {
		return errtext.Join(err, specErr)
	}
	schedule, specErr := parser.Parse(spec)
	if specErr != nil {
		return errtext.Join(err, fmt.Errorf("cronmw: spec %q: %w", spec, specErr))
	}
	s.plan, specErr = newPlan(schedule, js.o.Location, spec, j.SkipRepeated, js.o.Now())
	if err = errtext.Join(err, specErr); err != nil {
		return err
	}
	return js.add(s)
}

// Every is [Jobs.Add] with a tick at every multiple of d since 1970-01-01T00:00:00Z, on all
// instances. With 5 min the ticks are at :00, :05 and so on, with 24 h at midnight UTC. With 7 min
// they do not start again at each hour. d must be whole seconds, 1 s to 366 days, else Every
// returns an error.
func (js *Jobs) Every(name string, d time.Duration, j Job, fn func(ctx context.Context, t Tick) error) error {
	s, err := newSingleton(js.locks, name, j, fn)
	if d < time.Second || d > maxKeep || d%time.Second != 0 {
		err = errtext.Join(err, fmt.Errorf("cronmw: Every: %v must be whole seconds between 1s and %v", d, maxKeep))
	}
	if err != nil {
		return err
	}
	s.plan = plan{every(d), js.o.Location, fmt.Sprint("every ", d)}
	return js.add(s)
}

func (js *Jobs) add(s *singleton) error {
	s.now, s.cancel = js.o.Now, js.o.CancelOnStop
	js.mu.Lock()
	defer js.mu.Unlock()
	switch {
	case js.running:
		return fmt.Errorf("cronmw: job %q: Run has begun", s.name)
	case js.jobs[s.name] != nil:
		return fmt.Errorf("cronmw: job %q was added before", s.name)
	}
	js.jobs[s.name] = s
	return nil
}

// Run requests each tick when it is due, until ctx ends. Then it requests no further tick and stops
// waiting as a standby. It returns nil when all jobs that run on this instance have returned. Close
// locks after it. A tick that Redis grants at the moment when ctx ends still runs, unless
// CancelOnStop is set. A second call of Run returns an error.
//
// Each tick runs in its own goroutine, with the values of ctx. If several ticks of a job are due at
// once, because the process was paused, Run requests only the latest.
//
// A panic of a job is recorded as its tick's failure and passed to Job.OnResult. The other jobs
// continue. Without OnResult the panic passes on and ends the process, because no other code would
// see it.
func (js *Jobs) Run(ctx context.Context) error {
	js.mu.Lock()
	again := js.running
	js.running = true
	js.mu.Unlock()
	if again {
		return errors.New("cronmw: Run was called before")
	}
	var wg sync.WaitGroup
	for _, s := range js.jobs {
		wg.Go(func() { s.loop(ctx, &wg) })
	}
	<-ctx.Done()
	wg.Wait()
	return nil
}

// loop starts the ticks of a job on this instance until ctx ends. wg waits for the goroutines that
// it starts.
func (s *singleton) loop(ctx context.Context, wg *sync.WaitGroup) {
	start := func(at time.Time) {
		wg.Go(func() {
			if r := s.tick(ctx, at); r.panicked && s.job.OnResult == nil {
				panic(r.Err)
			}
		})
	}
	var note notes
	begun := s.now()
	seen := begun // all ticks up to this time were started
	if s.job.CatchUp == CatchUpLatest {
		wg.Go(func() {
			if at, missed := s.missed(ctx, begun); missed {
				start(at)
			}
		})
	}
	for s.wait(ctx, seen) {
		now := s.now()
		if at, due := s.due(seen, now); due {
			start(at)
		}
		seen = now // also if the clock was set back: ticks that are started again are done
		if s.job.CatchUp == CatchUpLatest && note.stale(now) {
			wg.Go(func() { _, _ = s.note(ctx, now) }) // if Redis is unavailable, the next process makes the note
		}
	}
}

// wait waits for the next tick, for at most a minute. It returns false if ctx ends.
func (s *singleton) wait(ctx context.Context, seen time.Time) bool {
	d := lookAgain
	if next := s.Next(seen.In(s.zone)); !next.IsZero() {
		d = min(d, next.Sub(s.now()))
	}
	return sleep(ctx, max(d, 0), nil) && ctx.Err() == nil
}

// due returns the latest tick after seen that is not after now.
func (s *singleton) due(seen, now time.Time) (time.Time, bool) {
	at := s.Next(seen.In(s.zone))
	if at.IsZero() || at.After(now) {
		return at, false
	}
	if next := s.Next(at); !next.IsZero() && !next.After(now) {
		return s.latest(now.In(s.zone))
	}
	return at, true
}
