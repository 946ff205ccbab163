package sim

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
)

// weather alternates between storms, in which each network has its own faults, and calms without
// faults.
func (w *world) weather(ctx context.Context) {
	r := w.rng("weather", 0)
	for ctx.Err() == nil {
		if len(w.servers) > 1 && !w.c.Majority {
			w.minority(ctx, r)
			continue
		}
		w.calm(ctx, r)
		if ctx.Err() == nil {
			w.storm(ctx, r)
		}
	}
	w.hushed(false)
}

func (w *world) hushed(on bool) {
	w.hush.Store(on)
	w.heard.Store(int64(w.now()))
}

// hushedLately reports whether a waiter may have missed a message and has not sent a request since.
func (w *world) hushedLately() bool {
	return w.hush.Load() || w.now()-time.Duration(w.heard.Load()) <= sluggish
}

func (w *world) calm(ctx context.Context, r rng) {
	w.hushed(r.chance(30))
	if len(w.dead) == 0 || r.chance(40) { // each run has at least one killed process
		sleep(ctx, r.between(6*time.Second, 12*time.Second))
		w.kill(ctx, r, true)
	}
	sleep(ctx, r.between(25*time.Second, 45*time.Second))
}

func (w *world) storm(ctx context.Context, r rng) {
	ctx, cancel := context.WithTimeout(ctx, r.between(20*time.Second, 80*time.Second))
	defer cancel()
	w.hushed(r.chance(20))
	w.stormy(true)
	for _, n := range w.nodes() {
		for _, l := range n.links {
			if l.swell = breeze; r.chance(60) {
				l.swell = r.between(5*time.Millisecond, 700*time.Millisecond)
			}
			l.latency(l.swell)
		}
	}
	var all sync.WaitGroup
	for _, s := range w.servers {
		all.Go(func() { w.strikes(ctx, s) })
	}
	all.Go(func() {
		for ctx.Err() == nil {
			sleep(ctx, r.between(time.Second, 15*time.Second))
			w.disturb(ctx, r)
		}
	})
	all.Wait()
	for _, n := range w.nodes() {
		for _, l := range n.links {
			l.swell = breeze
			l.latency(breeze)
		}
	}
	w.untilAllVote()
	w.stormy(false)
}

// strikes causes faults between each process and a server until ctx ends.
func (w *world) strikes(ctx context.Context, s *server) {
	var all sync.WaitGroup
	for i := range w.slots {
		r := w.rng("storm", i+10*s.index+int(w.now()/time.Millisecond)*100)
		all.Go(func() {
			for ctx.Err() == nil {
				sleep(ctx, r.between(100*time.Millisecond, 6*time.Second))
				if n := w.slots[i].Load(); ctx.Err() == nil {
					n.links[s.index].strike(ctx, r)
				}
			}
		})
	}
	all.Wait()
}

func (w *world) stormy(on bool) {
	for _, n := range w.nodes() {
		if on {
			n.calm.Store(0)
		} else {
			n.calm.Store(int64(w.now()))
		}
	}
}

// disturb causes a fault of the server.
func (w *world) disturb(ctx context.Context, r rng) {
	s := w.servers[r.IntN(len(w.servers))]
	switch {
	case ctx.Err() != nil:
	case r.chance(10):
		w.kill(ctx, r, false)
	case len(w.servers) > 1 && r.chance(75):
		s.restart(ctx, r)
	case len(w.servers) > 1 || r.chance(50):
		_ = s.rdb.ScriptFlush(ctx).Err()
		w.struck("script flush")
	default:
		w.lose(exclusiveKey(r.IntN(w.c.Keys)), r.chance(50))
		w.struck("data loss")
	}
}

var scripts = []string{
	"acquire", "acquire", "renew", "renew", "release", "release", "rotate", "rotate", "rotate", "leave", "complete",
	"acquire_share", "release_share", "renew_share",
}

// strike causes one fault, and returns when it is over.
func (l *link) strike(ctx context.Context, r rng) {
	l.bad.Store(0)
	defer func() {
		if !l.killed.Load() {
			l.bad.Store(int64(l.w.now()))
		}
	}()
	f, d := l.faults, r.between(0, 8*time.Second)
	if r.chance(50) {
		d = r.between(0, 1500*time.Millisecond)
	}
	for1 := func(name string, begin func()) {
		l.w.struck(name)
		begin()
		sleep(ctx, d)
		l.heal()
	}
	about := faulty.Script(scripts[r.IntN(len(scripts))])
	if r.chance(25) {
		about = nil
	}
	switch r.IntN(12) {
	case 0:
		for1("silence", func() { l.silent.Store(true); f.Silence() })
	case 1:
		for1("silent replies", func() { l.silent.Store(true); f.SilenceReplies() })
	case 2:
		for1("down", f.Down)
	case 3:
		l.w.struck("cut")
		f.Cut()
	case 4:
		top := r.between(10*time.Millisecond, 1500*time.Millisecond)
		for1("delays", func() { l.latency(top) })
		l.latency(l.swell)
	case 5:
		l.plant(ctx, f.LoseReply(about), d, "lost reply")
	case 6:
		l.plant(ctx, f.CutReply(about), d, "cut reply")
	case 7:
		l.plant(ctx, f.LoseRequest(about), d, "lost request")
	case 8:
		l.plant(ctx, f.Hold(about), d, "late duplicate")
	case 9:
		for1("dropped messages", func() { l.drops.Store(r.Int64N(3) + 1) })
		l.drops.Store(0)
	case 10:
		for1("deaf", func() { l.deaf.Store(true) })
		l.deaf.Store(false)
	case 11:
		l.copies.Store(r.Int64N(4) + 1)
		sleep(ctx, d)
		l.copies.Store(0)
	}
}

// plant waits for d, and then removes x. A request that x holds arrives then.
func (l *link) plant(ctx context.Context, x *faulty.Fault, d time.Duration, name string) {
	sleep(ctx, d+time.Second)
	select {
	case <-x.Struck():
		l.w.struck(name)
	default:
	}
	x.Remove()
	x.Deliver()
}

// breeze is the latency without faults.
const breeze = 2 * time.Millisecond

// latency sets the maximum latency of each request and each reply.
func (l *link) latency(top time.Duration) {
	r := l.w.rng("latency", l.node.index+100*l.server.index+int(l.w.now()))
	l.slow.Store(top > 20*time.Millisecond)
	l.bad.Store(max(int64(l.w.now()), 1)) // replies under way arrive late
	l.faults.DelayFunc(func() time.Duration {
		if l.greetings.Load() > 0 {
			return 0
		}
		return r.between(0, top)
	})
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
