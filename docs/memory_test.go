package docs_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// A recorded response needs the memory that the page states, by MEMORY USAGE and by used_memory of
// a redis-server, within ten percent.
func TestBytesPerKey(t *testing.T) {
	testlevel.Full(t)
	for _, tt := range []struct {
		size        int
		usage, used float64
		settings    []string
	}{
		{200, 552, 667, nil},
		{2 << 10, 3216, 3403, nil},
		{200, 0, 670, []string{"--hash-max-listpack-value", "4096"}},
		{2 << 10, 0, 2780, []string{"--hash-max-listpack-value", "4096"}},
	} {
		rdb := redistest.Real(t, tt.settings...).Client(t)
		const n = 1000
		record(t, rdb, n, tt.size) // so that the memory of the first scripts and connections is not counted
		rdb.FlushAll(t.Context())
		before := usedMemory(t, rdb)
		record(t, rdb, n, tt.size)
		keys := rdb.Keys(t.Context(), "pay:*").Val()
		if len(keys) != n {
			t.Fatalf("%d keys", len(keys))
		}
		usage, used := float64(rdb.MemoryUsage(t.Context(), keys[0], 0).Val()), (usedMemory(t, rdb)-before)/n
		t.Logf("a body of %d bytes, %v: MEMORY USAGE %.0f bytes, used_memory %.0f bytes", tt.size, tt.settings, usage, used)
		if tt.usage > 0 && (usage < tt.usage*0.9 || usage > tt.usage*1.1) {
			t.Errorf("MEMORY USAGE is %.0f bytes, the page says %.0f", usage, tt.usage)
		}
		if used < tt.used*0.9 || used > tt.used*1.1 {
			t.Errorf("used_memory grew by %.0f bytes, the page says %.0f", used, tt.used)
		}
	}
}

// The mark of an abandoned payment needs the memory that the page states, and holds nothing that a
// client can enlarge.
func TestBytesPerAbandonedKey(t *testing.T) {
	testlevel.Full(t)
	rdb := redistest.Real(t).Client(t)
	n := testlevel.Pick(t, 0, 1000, 100_000)
	panics(t, rdb, n)
	rdb.FlushAll(t.Context())
	before := usedMemory(t, rdb)
	panics(t, rdb, n)
	used := (usedMemory(t, rdb) - before) / float64(n)
	key := rdb.RandomKey(t.Context()).Val()
	t.Logf("%d keys: used_memory %.0f bytes a key, MEMORY USAGE %d bytes", n, used, rdb.MemoryUsage(t.Context(), key, 0).Val())
	if used > 350 {
		t.Errorf("used_memory grew by %.0f bytes a key, the page says about 300", used)
	}
	if left := rdb.PTTL(t.Context(), key).Val(); left < 99*24*time.Hour || left > 101*24*time.Hour {
		t.Errorf("the mark is kept for %v, want 100 days", left)
	}
	largest := map[string]string{ // in bytes: host 128, pid 10, task 128, traceparent 128; fingerprint 64; 16 ids of 26
		"m": strings.Repeat("m", 397), "g": strings.Repeat("g", 64), "l": strings.Repeat("l", 16*26), "t": "1795681613280128", "f": "1795681613280128", "n": "1000000", "a": "1",
	}
	for field, value := range rdb.HGetAll(t.Context(), key).Val() {
		if len(value) > len(largest[field]) {
			t.Errorf("the field %q has %d bytes, want at most %d", field, len(value), len(largest[field]))
		}
	}
	for field, value := range largest {
		rdb.HSet(t.Context(), key, field, value)
	}
	if most := rdb.MemoryUsage(t.Context(), key, 0).Val(); most > 1600 {
		t.Errorf("the largest mark has %d bytes, the page says at most 1,600 bytes", most)
	} else {
		t.Logf("the largest mark has %d bytes", most)
	}
}

// panics sends n requests with different keys to a handler that panics.
func panics(t *testing.T, rdb *redis.Client, n int) {
	t.Helper()
	locks, err := lockcore.New(rdb, lockcore.Options{Prefix: "pay"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close(t.Context()) }()
	h := httpmw.Idempotent(locks, func(*http.Request) (string, error) { return "acme", nil }, httpmw.IdempotentOptions{Mode: guard.AtMostOnce})(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("after the charge") }))
	for i := range n {
		func() {
			defer func() { _ = recover() }()
			post(h, "amount=1", "Idempotency-Key", strconv.Itoa(i), "Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		}()
	}
	if stored := rdb.DBSize(t.Context()).Val(); stored != int64(n) {
		t.Fatalf("%d keys are stored, want %d", stored, n)
	}
}

// record sends n requests with different keys. Their responses are similar to those of payments.
func record(t *testing.T, rdb *redis.Client, n, size int) {
	t.Helper()
	locks, err := lockcore.New(rdb, lockcore.Options{Prefix: "pay"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close(t.Context()) }()
	h := httpmw.Idempotent(locks, func(*http.Request) (string, error) { return "acme", nil }, httpmw.IdempotentOptions{})(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Location", "/payments/8e03978e-40d5-43dd-bc93-6894a57f9324")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(strings.Repeat("a", size)))
		}))
	for i := range n {
		if w := post(h, "amount=1", "Idempotency-Key", strconv.Itoa(i)); w.Code != http.StatusCreated {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
}

func usedMemory(t *testing.T, rdb *redis.Client) float64 {
	t.Helper()
	_, info, _ := strings.Cut(rdb.Info(t.Context(), "memory").Val(), "used_memory:")
	info, _, _ = strings.Cut(info, "\r\n")
	n, err := strconv.ParseFloat(info, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
