package chaos_test

import (
	"bufio"
	"context"
	"math"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// rate is that of load.Rates. The time between two calls is not a whole number of µs.
var rate = lockcore.Rate{N: 39, Burst: 2}

const (
	replyTime = 50 * time.Millisecond // from a grant until its begin is counted, as long as the machine is not late
	mostOfAll = 0.9                   // of the slots are used, although processes are killed
)

// throttled makes a call with a rate, which the counting server counts.
func (w *worker) throttled(ctx context.Context) {
	c := newCall()
	c.end(ctx, w, lockcore.Terms{Wait: lockcore.Forever}, guard.Throttled(ctx, w.locks, "rate", rate, lockcore.ThrottleOptions{Wait: lockcore.Forever}, func(context.Context) error {
		defer c.enter()()
		_, err := w.counter.Write([]byte{1})
		return err
	}))
}

// counting is the counting server, which is in the test process: it counts the begins of all workers
// by its own clock. It also reads what Redis does, with MONITOR: a script writes the time of the
// bucket once for each grant.
type counting struct {
	r *run

	mu     sync.Mutex
	begins []time.Time // as they arrive
	grants []int64     // by the clock of Redis, in µs
	full   int64
}

// bucket is the command with which a script takes a cost: when the bucket is full, and how far ahead
// that is.
var bucket = regexp.MustCompile(`"HSET" "holdfast:[^"]*:f" "b" "(\d+) (\d+)"`)

// count starts the counting server of a run.
func (r *run) count() {
	oneServer(r)
	c := &counting{r: r}
	l, err := (&net.ListenConfig{}).Listen(r.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		r.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() { // ends when the listener is closed
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { c.read(conn) }) // ends with the worker
		}
	})
	monitor, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", r.one.Addr())
	if err == nil {
		_, err = monitor.Write([]byte("MONITOR\r\n"))
	}
	if err != nil {
		r.Fatal(err)
	}
	all.Go(func() { // ends when the connection is closed
		for in := bufio.NewScanner(monitor); in.Scan(); {
			c.hear(in.Text())
		}
	})
	r.Cleanup(func() { // the workers have ended
		_ = monitor.Close()
		_ = l.Close()
		all.Wait()
	})
	r.counting, r.task.Counter = c, l.Addr().String()
}

func (c *counting) read(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for in := bufio.NewReader(conn); ; {
		if _, err := in.ReadByte(); err != nil { // the worker has ended
			return
		}
		c.mu.Lock()
		c.begins = append(c.begins, time.Now())
		c.mu.Unlock()
	}
}

func (c *counting) hear(line string) {
	b := bucket.FindStringSubmatch(line)
	if b == nil {
		return
	}
	full, _ := strconv.ParseInt(b[1], 10, 64)
	ahead, _ := strconv.ParseInt(b[2], 10, 64)
	c.mu.Lock()
	defer c.mu.Unlock()
	at := full - ahead
	for range int(math.Round(float64(full-max(c.full, at)) / perCall)) {
		c.grants = append(c.grants, at)
	}
	c.full = full
}

// perCall is the time of a call at the rate, in µs.
var perCall = float64(time.Second/time.Microsecond) / float64(rate.N)

// killThrottled kills workers for d, one after another, and starts others.
func killThrottled(d time.Duration) func(*run) {
	return func(r *run) {
		r.await("calls begin", func(*oracle) bool { return len(r.counting.times()) > 2*rate.N })
		from, killed := time.Now(), 0
		for time.Since(from) < d {
			p := r.slots[rand.IntN(len(r.slots))]
			p.kill(order{})
			p.begin()
			killed++
			time.Sleep(rand.N(600 * time.Millisecond))
		}
		to := time.Now()
		time.Sleep(2 * time.Second) // the calls that wait now remove the dead processes before them
		r.counting.used(from, to)
	}
}

func (c *counting) times() []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.begins)
}

// used judges how many slots were used.
func (c *counting) used(from, to time.Time) {
	began := 0
	for _, at := range c.times() {
		if at.After(from) && at.Before(to) {
			began++
		}
	}
	late := c.r.control.Between(from, to)
	used := float64(began) / (float64(rate.N) * to.Sub(from).Seconds())
	c.r.Logf("%.3f of the slots were used in %v, in which the machine was late by %v", used, to.Sub(from), late)
	// The gate runs on busy machines, so there only the windows are judged.
	if least := mostOfAll * (1 - late.Seconds()/to.Sub(from).Seconds()); testlevel.Pick(c.r, false, false, true) && used < least {
		c.r.Errorf("%.3f of the slots were used, want %.3f", used, least)
	}
}

// judge is called when the workers have ended.
func (c *counting) judge() (proved bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	per, most := int64(time.Second/time.Microsecond), rate.N+rate.Burst-1
	slices.Sort(c.grants)
	busiest := 0
	for i, from := 0, 0; i < len(c.grants); i++ {
		for c.grants[i]-c.grants[from] >= per {
			from++
		}
		busiest = max(busiest, i-from+1)
	}
	// A begin is counted when its message arrives: after the grant by the time of the reply and of the
	// message. So two calls may be counted nearer to each other than they were granted, and the window
	// is shorter than Per by that time. What begins was granted before, so each begin has a grant.
	above, whole, counted := 0, 0, 0
	for i, from, begun := 0, 0, 0; i < len(c.begins); i++ {
		for c.begins[i].Sub(c.begins[from]) >= time.Second {
			from++
		}
		whole = max(whole, i-from+1)
		short := from
		for allowed := replyTime + c.r.control.Between(c.begins[from], c.begins[i]); c.begins[i].Sub(c.begins[short]) >= time.Second-allowed && short < i; {
			short++
		}
		if n := i - short + 1; n > most {
			above++
		}
		counted = max(counted, i-short+1)
		for begun < len(c.grants) && c.grants[begun] <= c.begins[i].UnixMicro() {
			begun++
		}
		if i+1 > begun {
			c.r.Errorf("begin %d was counted after %d grants", i+1, begun)
			break
		}
	}
	c.r.Logf("%d grants, at most %d in a second by the clock of Redis; %d begins, at most %d in a second by the clock of the counting server, %d in a second less the time of a reply",
		len(c.grants), busiest, len(c.begins), whole, counted)
	if busiest > most {
		c.r.Errorf("%d calls were granted within a second, want at most %d", busiest, most)
	}
	if above > 0 {
		c.r.Errorf("%d windows have more than %d begins, at most %d", above, most, counted)
	}
	return len(c.begins) > 5*rate.N && len(c.r.deaths) > 0
}

// rates is a scenario: processes share a rate, and are killed for d.
func rates(d time.Duration) scenario {
	return scenario{
		name: "rates", procs: 8, load: load{Rates: 4}, wait: lockcore.Forever, on: (*run).count,
		happens: killThrottled(d), proves: func(r *run, _ *verdict) bool { return r.counting.judge() },
	}
}

// Processes share a rate while they are killed: no window has too many calls, and nearly all slots
// are used.
// Shows: V1, V2
func TestRates(t *testing.T) {
	testlevel.Campaign(t) // it is random, and takes real time
	s := rates(8 * time.Second)
	r := s.start(t)
	s.happens(r)
	r.finish()
	checkRun(t, r)
}
