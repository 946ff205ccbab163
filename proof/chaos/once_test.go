package chaos_test

import (
	"context"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// The answers to a call of a once key.
const (
	done        = "done"
	unknown     = "unknown"     // an earlier run ended without an outcome, and is not repeated
	inProgress  = "in progress" // another call runs
	unavailable = "unavailable" // of Redis; the call may be repeated
	lost        = "lost"        // the lease ended before the run did
)

// A kind of once key, by the prefix of its name.
type onceKind struct {
	name string
	most bool // at most once
	wait time.Duration
}

var onceKinds = []onceKind{
	{name: "order", wait: 10 * time.Second},              // longer than a lease
	{name: "payout", wait: 10 * time.Second, most: true}, // a run that was killed is never repeated
	{name: "quick", wait: 50 * time.Millisecond},         // a second call is refused while the first one runs
}

func kindOf(key string) onceKind {
	for _, k := range onceKinds {
		if strings.HasPrefix(key, k.name) {
			return k
		}
	}
	return onceKind{name: "?"}
}

// mode is the Mode of the kind.
func (k onceKind) mode() guard.Mode {
	if k.most {
		return guard.AtMostOnce
	}
	return guard.AtLeastOnce
}

// onceKey carries the name of a once key to the Observer.
type onceKey struct{}

const (
	window  = 250 * time.Millisecond // in which the calls of a once key come, mostly
	perKind = 4                      // once keys of a window and kind
)

// once calls a once key that other calls, also of other processes, call at about the same time.
func (w *worker) once(ctx context.Context) {
	time.Sleep(rand.N(10 * time.Millisecond))
	kind := onceKinds[rand.IntN(len(onceKinds))]
	key := fmt.Sprintf("%s%d.%d", kind.name, time.Now().UnixNano()/int64(window), rand.IntN(perKind))
	c, ctx := newCall(), context.WithValue(ctx, onceKey{}, key)
	options := guard.OnceOptions{Terms: lockcore.Terms{Wait: kind.wait}, Mode: kind.mode()}
	res, err := guard.OnceValue(ctx, w.locks, key, options, func(ctx context.Context) (string, error) {
		defer c.enter()()
		run := crand.Text()
		return run, w.run(ctx, key, key, run, rand.N(2*time.Millisecond), run)
	})
	l := line{Op: opAnswer, Key: key, Called: c.began.UnixNano(), Run: res.Value, Sum: res.Value, Replayed: res.Outcome == guard.Replayed}
	switch {
	case err == nil:
		l.Text = done
	case errors.Is(err, lockcore.ErrAbandoned):
		l.Text = unknown
	case errors.Is(err, lockcore.ErrLost), errors.Is(err, errGaveUp):
		l.Text = lost
	case errors.Is(err, lockcore.ErrBusy):
		l.Text = inProgress
	case errors.Is(err, lockcore.ErrUnavailable):
		l.Text = unavailable
	default:
		w.fail(key, err)
	}
	w.write(l)
	c.end(ctx, w, lockcore.Terms{Wait: lockcore.NoWait}, nil)
}

var errGaveUp = errors.New("the run's ctx has ended")

// run is a run of a once key that takes d. sum is the digest of its answer.
func (w *worker) run(ctx context.Context, key, held, run string, d time.Duration, sum string) error {
	l := line{Op: opBegun, Key: key, Run: run, Text: held}
	l.Attempt, l.TookOver = guard.Attempt(ctx, held)
	w.write(l)
	w.reached(atBegun, key)
	part := rand.N(d + 1)
	ok := sleep(ctx, part)
	w.reached(atWorking, key)
	if ok = ok && sleep(ctx, d-part); !ok {
		w.write(line{Op: opGaveUp, Key: key, Run: run, Text: fmt.Sprint(context.Cause(ctx))})
		return errGaveUp
	}
	w.write(line{Op: opEnded, Key: key, Run: run, Sum: sum})
	w.reached(atEnded, key)
	return nil
}

// sleep returns false if ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// serve answers HTTP requests for once keys until ctx ends, and then those that have arrived.
func (w *worker) serve(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", w.Load.Listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	scope := func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil }
	for _, k := range onceKinds {
		options := httpmw.IdempotentOptions{Terms: lockcore.Terms{Wait: k.wait}, Mode: k.mode()}
		mux.Handle("POST /"+k.name, &front{w, httpmw.Idempotent(w.locks, scope, options)(http.HandlerFunc(w.handle))})
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }() // ends with Shutdown
	<-ctx.Done()
	closing, cancel := context.WithTimeout(context.Background(), stuck)
	defer cancel()
	if err := srv.Shutdown(closing); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

const longOne = 25 // one run in this many takes longer than the others

// handle is the handler of the requests.
func (w *worker) handle(rw http.ResponseWriter, r *http.Request) {
	run, d := crand.Text(), rand.N(50*time.Millisecond)
	if rand.IntN(longOne) == 0 {
		d = rand.N(w.Lease * 3 / 2)
	}
	body := randomAnswer(rw.Header(), run)
	sum := sumOf(http.StatusCreated, rw.Header(), body)
	if err := w.run(r.Context(), r.Header.Get(httpmw.HeaderKey), httpmw.Key(r.Context()), run, d, sum); err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	rw.WriteHeader(http.StatusCreated)
	cut := rand.IntN(len(body))
	_, _ = rw.Write(body[:cut])
	if rand.IntN(2) == 0 {
		_ = http.NewResponseController(rw).Flush()
	}
	_, _ = rw.Write(body[cut:])
}

// randomAnswer fills h and returns a body that begins with the run's name; no two are alike.
func randomAnswer(h http.Header, run string) []byte {
	h.Set("Content-Type", []string{"application/octet-stream", "text/plain; charset=utf-8"}[rand.IntN(2)])
	h.Set("X-Receipt", run)
	if rand.IntN(2) == 0 {
		h.Set("Location", "/done/"+run)
		h.Set("Etag", fmt.Sprintf(`"%x"`, rand.Uint64()))
	}
	for range rand.IntN(4) {
		h.Add("X-Part", crand.Text())
	}
	body := make([]byte, len(run)+1+rand.IntN(6<<10))
	_, _ = crand.Read(body)
	copy(body, run+"\n")
	return body
}

// sumOf returns a digest of an answer: its status, all headers that the handler may set, and its body.
func sumOf(status int, h http.Header, body []byte) string {
	d := sha256.New()
	fmt.Fprintln(d, status)
	for _, name := range []string{"Content-Type", "Etag", "Location", "X-Part", "X-Receipt"} {
		fmt.Fprintf(d, "%s %q\n", name, h.Values(name))
	}
	d.Write(body)
	return hex.EncodeToString(d.Sum(nil))
}

// front is in front of httpmw. It passes the client's key to the Observer, and may kill the process
// as soon as the handler's answer comes out.
type front struct {
	w *worker
	http.Handler
}

func (f *front) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	key := r.Header.Get(httpmw.HeaderKey)
	f.Handler.ServeHTTP(&door{ResponseWriter: rw, w: f.w, key: key}, r.WithContext(context.WithValue(r.Context(), onceKey{}, key)))
}

// door writes the answers. An answer that is not a replay occurs once in the life of a key.
type door struct {
	http.ResponseWriter
	w     *worker
	key   string
	fresh bool
}

func (d *door) Unwrap() http.ResponseWriter { return d.ResponseWriter }

func (d *door) WriteHeader(status int) {
	d.fresh = status == http.StatusCreated && d.Header().Get(httpmw.HeaderReplayed) == ""
	if d.fresh {
		d.w.reached(atRecorded, d.key)
	}
	d.ResponseWriter.WriteHeader(status)
}

func (d *door) Write(p []byte) (int, error) {
	n, err := d.ResponseWriter.Write(p)
	if d.fresh {
		_ = http.NewResponseController(d.ResponseWriter).Flush()
		d.w.reached(atSent, d.key)
	}
	return n, err
}
