package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/bench/internal/redisd"
)

// The soak.
const (
	soakLease  = 2 * time.Second
	soakDelay  = time.Second // of the retry of a failed task
	soakHold   = 50 * time.Millisecond
	soakProcs  = 3
	soakHot    = 5 // accounts
	soakOthers = 200
	burstEvery = 500 * time.Millisecond
	burstHot   = 20 // tasks of one hot account: each hot account is busy for 0.4 of the time
	burstOther = 10
	longEvery  = 11 // bursts: the first task holds its key for longLasts, so that leases are lost
	longLasts  = 2 * soakLease
	killEvery  = 5 * time.Second
	pauseEvery = 20 * time.Second
	pauseTime  = 3 * time.Second

	// recovery: asynq recovers a task of a killed process 30 s after the end of asynq's lease of 30
	// s. A server looks for such tasks every minute, and at its start.
	recovery = 2 * time.Minute
	// comesBack bounds the delay of a parked task. That is a lease and the work of the tasks before
	// it, up to a quarter more, and 5 s until asynq looks for due tasks.
	comesBack = (soakLease+longLasts+2*burstHot*soakHold)*5/4 + 5*time.Second
)

// soak kills worker processes and pauses servers while tasks arrive, and judges the runs.
func (r *rig) soak(ctx context.Context, o options, out, progress io.Writer) error {
	policy := policyPark
	if len(o.policies) > 0 {
		policy = o.policies[0]
	}
	s := &soak{rig: r, crew: newCrew(order{
		Queue: r.queue.Addr, Locks: r.locks.Addr, Policy: policy, Workers: o.load.workers, Check: o.load.check, Lease: soakLease, Delay: soakDelay,
	}), killed: map[int]int64{}}
	defer s.end()
	if err := s.faults(ctx, time.Duration(o.minutes*float64(time.Minute)), progress); err != nil {
		return err
	}
	info, err := s.drain(ctx, progress)
	if err != nil {
		return err
	}
	s.end()
	v := judgeSoak(s.crew.told(), s.killed, s.pauses)
	fmt.Fprintf(out, "Soak of %v min, policy %s, %d processes of %d workers, lease %v; %s.\n\n", o.minutes, policy, soakProcs, o.load.workers, soakLease, environment(r.info(ctx, r.locks, "redis_version")))
	fmt.Fprintf(out, "- %d tasks, %d completed, %d archived, %d failures; %d processes killed, %d pauses of a server\n",
		s.enqueued, info.Completed, info.Archived, info.FailedTotal, len(s.killed), len(s.pauses))
	fmt.Fprint(out, v)
	return errors.Join(v.check(), s.check(info))
}

// soak has the processes of a soak and the faults so far. Only the goroutine of faults and drain
// uses it, except for enqueued: the producer writes it, and drain reads it after the producer has
// ended.
type soak struct {
	*rig
	crew     *crew
	ps       []*process
	killed   map[int]int64 // time of the kill, by process
	pauses   []absence     // of a server
	enqueued int
}

func (s *soak) end() {
	for _, p := range s.ps {
		p.kill()
	}
	s.ps = nil
}

// faults starts the worker processes, and for d enqueues tasks and causes faults.
func (s *soak) faults(ctx context.Context, d time.Duration, progress io.Writer) error {
	if err := s.flush(ctx); err != nil {
		return err
	}
	for range soakProcs {
		if err := s.start(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var producer sync.WaitGroup
	producer.Go(func() { s.produce(ctx) })
	defer producer.Wait()
	kills, pauses := time.NewTicker(killEvery), time.NewTicker(pauseEvery)
	defer kills.Stop()
	defer pauses.Stop()
	var resume <-chan time.Time
	var silent *redisd.Server
	for {
		var err error
		select {
		case <-ctx.Done():
			if resume == nil {
				return nil
			}
			<-resume
			return s.resume(silent)
		case <-kills.C:
			err = s.killOne(context.WithoutCancel(ctx))
		case <-pauses.C:
			silent = []*redisd.Server{s.locks, s.queue}[len(s.pauses)%2]
			s.pauses = append(s.pauses, absence{time.Now().UnixNano(), forever})
			err, resume = silent.Pause(), time.After(pauseTime)
		case <-resume:
			err, resume = s.resume(silent), nil
			fmt.Fprintf(progress, "%d kills, %d pauses, %d of the tasks done\n", len(s.killed), len(s.pauses), s.done())
		}
		if err != nil {
			return err
		}
	}
}

func (s *soak) start(ctx context.Context) error {
	p, err := s.crew.start(ctx)
	if err != nil {
		return err
	}
	s.ps = append(s.ps, p)
	return p.say(wordServe)
}

func (s *soak) killOne(ctx context.Context) error {
	i := rand.IntN(len(s.ps))
	p := s.ps[i]
	s.killed[p.id] = time.Now().UnixNano()
	p.kill()
	s.ps = append(s.ps[:i], s.ps[i+1:]...)
	return s.start(ctx)
}

func (s *soak) resume(server *redisd.Server) error {
	err := server.Resume()
	s.pauses[len(s.pauses)-1].to = time.Now().UnixNano()
	return err
}

func (s *soak) done() int {
	s.crew.mu.Lock()
	defer s.crew.mu.Unlock()
	return len(s.crew.ended)
}

// produce enqueues bursts of tasks until ctx ends. It repeats a failed call until asynq has the
// task: the ID of the task makes that safe.
func (s *soak) produce(ctx context.Context) {
	each := time.NewTicker(burstEvery)
	defer each.Stop()
	for burst := 0; ; burst++ {
		select {
		case <-ctx.Done():
			return
		case <-each.C:
		}
		for i := range burstHot + burstOther {
			account := fmt.Sprint("hot", burst%soakHot)
			if i >= burstHot {
				account = fmt.Sprint("other", rand.IntN(soakOthers))
			}
			t := task{fmt.Sprint("soak", s.enqueued), account, soakHold}
			if i == 0 && burst%longEvery == 0 {
				t.Hold = longLasts
			}
			for {
				err := s.enqueue(context.WithoutCancel(ctx), t)
				if err == nil || errors.Is(err, asynq.ErrTaskIDConflict) {
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			s.enqueued++
		}
	}
}

// drain waits until all tasks are completed, at most until asynq must have recovered them.
func (s *soak) drain(ctx context.Context, progress io.Writer) (info *asynq.QueueInfo, err error) {
	for late := time.Now().Add(recovery + time.Minute); ; time.Sleep(time.Second) {
		if info, err = s.inspector.GetQueueInfo("default"); err != nil {
			return nil, err
		}
		if info.Completed >= s.enqueued || ctx.Err() != nil || time.Now().After(late) {
			fmt.Fprintf(progress, "%d of %d tasks completed\n", info.Completed, s.enqueued)
			return info, context.Cause(ctx)
		}
	}
}

func (s *soak) check(info *asynq.QueueInfo) error {
	if info.Completed != s.enqueued || s.done() != s.enqueued {
		return fmt.Errorf("hotkey: %d of %d tasks completed, %d ended", info.Completed, s.enqueued, s.done())
	}
	return nil
}
