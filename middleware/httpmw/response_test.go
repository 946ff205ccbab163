package httpmw_test

import (
	"bytes"
	"encoding/hex"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// golden has the encoding of version 1. These bytes must stay readable while records of this
// version may be stored.
var golden = []struct {
	name string
	hex  string
	want httpmw.Recorded
}{
	{"streamed", "0102 00c9", httpmw.Recorded{Status: 201, Streamed: true}},
	{"empty", "0101 00cc 00 00 00", httpmw.Recorded{Status: 204, Body: []byte{}}},
	{
		"whole", "0101 00c9 02" + " 0c436f6e74656e742d54797065 00" + " 044c696e6b 02 0161 0162" + " 01 06582d53756d73 01 023432" + " 0568656c6c6f",
		httpmw.Recorded{
			Status: 201, Header: http.Header{"Content-Type": {}, "Link": {"a", "b"}}, Trailer: http.Header{"X-Sums": {"42"}},
			Body: []byte("hello"),
		},
	},
	{ // of a release in which this header was recorded
		"a header that is not recorded by default", "0101 00c9 01" + " 0c582d526571756573742d4964 01 0161" + " 00 00",
		httpmw.Recorded{Status: 201, Header: http.Header{"X-Request-Id": {"a"}}, Body: []byte{}},
	},
}

func fromHex(tb testing.TB, s string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestGoldenRecords(t *testing.T) {
	for _, row := range golden {
		want := fromHex(t, row.hex)
		if got, err := httpmw.Encode(row.want); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: encoded to %x, %v; want %x", row.name, got, err, want)
		}
		if got, err := httpmw.Decode(want); err != nil || !reflect.DeepEqual(got, row.want) {
			t.Errorf("%s: decoded to %+v, %v; want %+v", row.name, got, err, row.want)
		}
	}
}

// Shows: H7
func TestBadRecordsDoNotDecode(t *testing.T) {
	for name, s := range map[string]string{
		"nothing":                  "",
		"short":                    "0101c8",
		"version 0":                "000100cc000000",
		"version 2":                "020100cc000000",
		"kind 0":                   "010000cc000000",
		"kind 3":                   "010300cc000000",
		"status 199":               "010100c7000000",
		"status 1000":              "010103e8000000",
		"no body":                  "010100cc0000",
		"a byte too many":          "010100cc00000000",
		"a byte after streamed":    "010200c900",
		"long number":              "010100cc00008000",
		"huge number":              "010100c80000ffffffffffffffffff01",
		"overflowing number":       "010100c80000ffffffffffffffffffff01",
		"body longer than all":     "010100c80000056162",
		"body of a 204":            "010100cc00000161",
		"empty header name":        "010100c80100000000",
		"header name with space":   "010100c8010341206200" + "0000",
		"lower-case header name":   "010100c801046c696e6b00" + "0000",
		"header names in disorder": "010100c802044c696e6b00" + "0445746167" + "00" + "0000",
		"header name twice":        "010100c802044c696e6b00" + "044c696e6b00" + "0000",
		"newline in a header":      "010100c801044c696e6b01030d0a61" + "0000",
		"Set-Cookie":               "010100c8010a5365742d436f6f6b69650101610000",
		"Set-Cookie as a trailer":  "010100c800010a5365742d436f6f6b6965010161" + "00",
	} {
		if got, err := httpmw.Decode(fromHex(t, s)); err == nil {
			t.Errorf("%s: decoded to %+v", name, got)
		}
	}
}

// FuzzDecode checks that a valid record is the only encoding of its value, and that no input
// panics.
func FuzzDecode(f *testing.F) {
	for _, row := range golden {
		f.Add(fromHex(f, row.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := httpmw.Decode(b)
		if err != nil {
			return
		}
		again, err := httpmw.Encode(a)
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%x decoded to %+v, which encodes to %x, %v", b, a, again, err)
		}
	})
}

// A record was changed. It is not replayed, the handler does not run, and the Observer gets
// BadRecord.
func TestBadRecordIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(string) string{
		"cut":           func(s string) string { return s[:len(s)-1] },
		"not ours":      func(string) string { return "\x01\x01\x05bytes\x02hi" },
		"failed":        func(string) string { return "\x01\x02\x00\x02hi" },
		"not a record":  func(string) string { return "{}" },
		"other version": func(s string) string { return strings.Replace(s, "http", "htt2", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, _ *http.Request) {
				runs++
				_, _ = w.Write([]byte("secret"))
			})
			f.wantRan(f.post("k"), 200)
			hash := f.redis.Keys()[0]
			redistest.On(f.redis).Unfold(hash)
			f.redis.HSet(hash, "r", spoil(f.redis.HGet(hash, "r")))
			f.wantProblem(f.post("k"), 500, "record-unreadable")
			if n := count[event.BadRecord](f.events); n != 1 || runs != 1 {
				t.Errorf("counted %d, %d runs", n, runs)
			}
		})
	}
}
