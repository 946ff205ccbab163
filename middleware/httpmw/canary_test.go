package httpmw_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/tracing"
)

// canary begins all data that belongs to one client: its key, body, name, credentials and cookies.
// During the whole run of this package's tests it must not appear in Redis, events, logs, spans or
// metrics.
const canary = "canary9d41"

const fewestWrites = 1000 // to Redis in a full run; fewer mean that the watch does not work

// secretKey returns the client's key of a test with a canary in it. A quoted key stays quoted, and
// a malformed one stays malformed.
func secretKey(key string) string {
	quoted, isQuoted := strings.CutPrefix(key, `"`)
	switch {
	case key == "" || key == `""` || len(key) > 200: // tests depend on the length of these keys
		return key
	case isQuoted:
		return `"` + canary + "-key-" + quoted
	}
	return canary + "-key-" + key
}

// secret returns a request's body with a canary in it. An empty body stays empty.
func secret(body string) string {
	if body == "" {
		return ""
	}
	return body + " " + canary + "-body"
}

func secretTenant(name string) string {
	if name == "nobody" || name == "empty" { // see tenant
		return name
	}
	return canary + "-tenant-" + name
}

// lookout is the watch of the whole run. TestMain checks it at the end.
var lookout = newWatch()

// watch searches for canaries in the data that leaves the process.
type watch struct {
	observer event.Observer // of every fixture
	metrics  *sdkmetric.ManualReader
	needles  [][]byte

	mu       sync.Mutex
	fixtures int
	looks    map[string]int
	seen     []string
}

func newWatch() *watch {
	w := &watch{metrics: sdkmetric.NewManualReader(), needles: needles(canary), looks: map[string]int{}}
	traces, err := tracing.New(tracing.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans{w})),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.metrics)),
	})
	if err != nil {
		panic(err)
	}
	w.observer = event.Join(lines{w}, traces)
	return w
}

// needles returns the forms of text that are searched for: unchanged, in hex, and in base64 at each
// of three offsets.
func needles(text string) [][]byte {
	all := [][]byte{[]byte(text), []byte(hex.EncodeToString([]byte(text))), []byte(strings.ToUpper(hex.EncodeToString([]byte(text))))}
	for skip := range 3 {
		b := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\x00", skip) + text))
		all = append(all, []byte(b[(skip*8+5)/6:(skip+len(text))*8/6])) // only the characters that do not depend on the neighboring bytes
	}
	return all
}

// look searches text. what names its source.
func (w *watch) look(what, text string) { w.search(what, []byte(text)) }

func (w *watch) search(what string, b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks[what]++
	for _, needle := range w.needles {
		if i := bytes.Index(b, needle); i >= 0 {
			w.seen = append(w.seen, fmt.Sprintf("%s: %.300q", what, b[max(0, i-100):]))
			return
		}
	}
}

// stream returns a writer that searches all data that is written to it. A canary may extend over
// two writes.
func (w *watch) stream(what string) *stream { return &stream{w: w, what: what} }

type stream struct {
	w    *watch
	what string
	mu   sync.Mutex
	tail []byte
}

func (s *stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tail = append(s.tail, b...)
	s.w.search(s.what, s.tail)
	longest := 0
	for _, needle := range s.w.needles {
		longest = max(longest, len(needle))
	}
	s.tail = bytes.Clone(s.tail[max(0, len(s.tail)-longest+1):])
	return len(b), nil
}

func (w *watch) logger(what string) *log.Logger { return log.New(w.stream(what), "", 0) }

// dial returns a dialer for one fixture. Its connections to Redis are searched in both directions,
// and their writes are counted.
func (w *watch) dial(next redistest.Dialer, sent *atomic.Int64) redistest.Dialer {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fixtures++
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &watchedConn{Conn: c, out: w.stream("to Redis"), in: w.stream("from Redis"), sent: sent}, nil
	}
}

type watchedConn struct {
	net.Conn
	out, in *stream
	sent    *atomic.Int64
}

func (c *watchedConn) Write(b []byte) (int, error) {
	_, _ = c.out.Write(b)
	c.sent.Add(1)
	return c.Conn.Write(b)
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		_, _ = c.in.Write(b[:n])
	}
	return n, err
}

// lines is an Observer that searches the text of all events.
type lines struct{ w *watch }

func (l lines) Start(ctx context.Context, a event.Acquisition) context.Context {
	l.w.look("call", fmt.Sprintf("%+v", a))
	return ctx
}

func (l lines) Event(_ context.Context, e event.Event) {
	l.w.look("event", fmt.Sprintf("%T %+v %#v", e, e, e))
}

func (lines) Traceparent(context.Context) string { return "" }

// spans is a SpanProcessor that searches each span that ends and keeps none.
type spans struct{ w *watch }

func (s spans) OnEnd(span sdktrace.ReadOnlySpan) {
	b, err := json.Marshal(tracetest.SpanStubFromReadOnlySpan(span))
	if err != nil {
		panic(err)
	}
	s.w.search("span", b)
}

func (spans) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (spans) Shutdown(context.Context) error                  { return nil }
func (spans) ForceFlush(context.Context) error                { return nil }

// watchedRun is a run of tests. It fails if a canary was found, or if too little was searched.
type watchedRun struct{ m *testing.M }

func (r watchedRun) Run() int {
	log.SetOutput(io.MultiWriter(os.Stderr, lookout.stream("log")))
	redis.SetLogger(redisLog{lookout.logger("log of go-redis")})
	code := r.m.Run()
	if wrong := lookout.verdict(filtered()); len(wrong) > 0 && (code == 0 || len(lookout.seen) > 0) {
		fmt.Fprintln(os.Stderr, strings.Join(wrong, "\n"))
		return max(code, 1)
	}
	return code
}

// redisLog is a logger for go-redis, which logs every failed dial.
type redisLog struct{ *log.Logger }

func (l redisLog) Printf(_ context.Context, format string, v ...any) { l.Logger.Printf(format, v...) }

// filtered reports whether only some of the tests run.
func filtered() bool {
	for _, name := range []string{"run", "skip", "list", "fuzz"} {
		if f := flag.Lookup("test." + name); f != nil && f.Value.String() != "" {
			return true
		}
	}
	worker := flag.Lookup("test.fuzzworker")
	return worker != nil && worker.Value.String() == "true"
}

// verdict returns the problems of the run.
func (w *watch) verdict(some bool) []string {
	var rm metricdata.ResourceMetrics
	if err := w.metrics.Collect(context.Background(), &rm); err != nil {
		return []string{"collect metrics: " + err.Error()}
	}
	b, err := json.Marshal(rm)
	if err != nil {
		return []string{"read metrics: " + err.Error()}
	}
	w.search("metrics", b)
	w.mu.Lock()
	defer w.mu.Unlock()
	var wrong []string
	for _, s := range w.seen {
		wrong = append(wrong, "a canary was seen in "+s)
	}
	fewest := map[string]int{"to Redis": fewestWrites, "from Redis": fewestWrites, "call": 100, "event": 100, "span": 100, "problem": 100, "server log": 1}
	if some {
		fewest = map[string]int{"to Redis": min(w.fixtures, 1)}
	}
	for what, n := range fewest {
		if w.looks[what] < n {
			wrong = append(wrong, fmt.Sprintf("the watch looked only %d times at %s, want at least %d: is it off?", w.looks[what], what, n))
		}
	}
	return wrong
}

// The watch finds a canary unchanged, in hex and in base64, also across two writes. It does not
// join the data of two streams, and it reports that too little was searched.
// Shows: H6
func TestWatch(t *testing.T) {
	hidden := "x" + canary + "-key-k"
	for name, text := range map[string]string{
		"raw": hidden, "hex": hex.EncodeToString([]byte(hidden)), "HEX": fmt.Sprintf("%X", hidden),
		"base64 at 0": base64.StdEncoding.EncodeToString([]byte(hidden[1:])), "at 1": base64.StdEncoding.EncodeToString([]byte(hidden)),
		"at 2": base64.RawURLEncoding.EncodeToString([]byte("x" + hidden)),
	} {
		for cut := range len(text) {
			w := newWatch()
			s := w.stream("here")
			_, _ = io.WriteString(s, "before "+text[:cut])
			_, _ = io.WriteString(s, text[cut:])
			if len(w.seen) == 0 {
				t.Errorf("%s, cut at %d: not found in %q", name, cut, text)
			}
		}
	}
	w := newWatch()
	_, _ = io.WriteString(w.stream("here"), canary[:9])
	_, _ = io.WriteString(w.stream("there"), canary[9:])
	w.fixtures = 1
	if len(w.seen) > 0 || len(w.verdict(true)) != 1 || len(w.verdict(false)) < 2 {
		t.Errorf("found %q, verdict %q", w.seen, w.verdict(true))
	}
}
