package docs_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

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
