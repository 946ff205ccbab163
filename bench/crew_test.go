package main

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func runCrew(c *crew, d time.Duration) (o outcome) {
	_, _ = c.warmUp(), c.open() // they cannot fail here
	time.Sleep(d)
	c.close()
	c.collect(&o)
	return o
}

// The run ends although a library ignores its ctx. A call that still waits in the library counts
// with the time it has waited.
func TestCrewHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forever := make(chan struct{})
		c := newCrew(3, &witness{}, func(context.Context, *worker) error {
			<-forever
			return nil
		})
		start := time.Now()
		o := runCrew(c, time.Second)
		if took := time.Since(start); took > time.Second+2*grace {
			t.Errorf("it took %v", took)
		}
		if o.Ops != 0 || o.Unserved != 3 || o.Waits.Max != time.Second {
			t.Errorf("got %d ops, %d unserved, max %v; want 0, 3, 1s", o.Ops, o.Unserved, o.Waits.Max)
		}
		close(forever)
		synctest.Wait()
	})
}

// The ctx of a worker ends only when no worker is inside. With rueidislock the end of the ctx ends
// the lock, and the next worker would count as a violation.
func TestCrewCancelsAfterSections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, err := newWitnessFile(1)
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(path)
		seen, err := openWitness(path)
		if err != nil {
			t.Fatal(err)
		}
		cut := 0
		c := newCrew(1, seen, func(ctx context.Context, w *worker) error {
			w.granted()
			w.inside(0, 300*time.Millisecond)
			if ctx.Err() != nil {
				cut++
			}
			return nil
		})
		if o := runCrew(c, 10*time.Second+100*time.Millisecond); cut > 0 || o.Ops < 33 || o.Violations > 0 {
			t.Errorf("%d sections were cut short; %d ops, %d violations", cut, o.Ops, o.Violations)
		}
	})
}

// A call that fails is repeated, and its time is part of the wait.
func TestCrewRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		c := newCrew(1, &witness{}, func(_ context.Context, w *worker) error {
			time.Sleep(10 * time.Millisecond)
			if calls++; calls%2 == 0 {
				return errors.New("failed")
			}
			w.granted()
			return nil
		})
		if o := runCrew(c, 10*time.Second); o.Ops < 400 || bucketOf(o.Waits.Max) != bucketOf(21*time.Millisecond) {
			t.Errorf("%d ops, longest wait %v; want a wait of 21ms", o.Ops, o.Waits.Max)
		}
	})
}
