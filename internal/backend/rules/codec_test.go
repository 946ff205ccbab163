package rules_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
)

var update = flag.Bool("update", false, "write the golden file again, after layout was raised")

// fill sets each field of a value to a random value, also fields that a later version adds.
func fill(rnd *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(rnd, field)
		}
	case reflect.Slice:
		if n := rnd.IntN(4); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range v.Len() {
			fill(rnd, v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(rnd, v.Index(i))
		}
	case reflect.String:
		v.SetString(strings.Repeat("t\x00\xff", rnd.IntN(30)))
	case reflect.Bool:
		v.SetBool(rnd.IntN(2) == 0)
	case reflect.Int, reflect.Int64:
		v.SetInt(rnd.Int64() >> rnd.IntN(64) * []int64{-1, 1}[rnd.IntN(2)])
	case reflect.Uint8:
		v.SetUint(rnd.Uint64N(uint64(rules.Shared) + 1))
	default:
		panic("a field has the kind " + v.Kind().String())
	}
}

func random(seed uint64) (k rules.Key) {
	fill(rand.New(rand.NewPCG(seed, 1)), reflect.ValueOf(&k).Elem())
	return k
}

// TestEncode encodes random keys and decodes them. The result is the same key.
func TestEncode(t *testing.T) {
	for seed := range uint64(2000) {
		k := random(seed)
		b := rules.Encode(k)
		got, err := rules.Decode(b)
		if err != nil || !reflect.DeepEqual(got, k) {
			t.Fatalf("seed %d: decoded %+v, error %v, want %+v", seed, got, err, k)
		}
		if again := rules.Encode(got); !bytes.Equal(again, b) {
			t.Fatalf("seed %d: encoded %x, then %x", seed, b, again)
		}
	}
}

// TestDecodeRefuses decodes bytes that Encode does not return. Each gets an error, which names an
// unknown version.
func TestDecodeRefuses(t *testing.T) {
	whole := rules.Encode(random(7))
	for n := range whole {
		if k, err := rules.Decode(whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes decode: %+v", n, len(whole), k)
		}
	}
	for _, tt := range []struct {
		name, want string
		b          []byte
	}{
		{"nothing", "empty", nil},
		{"another version", "layout version 9", append([]byte{9}, whole[1:]...)},
		{"more bytes", "no valid end", append(bytes.Clone(whole), 0)},
		{"an unknown state", "no valid state at byte 2 of 51", append([]byte{5, 12}, make([]byte, 49)...)},
		{"a longer form of 0", "no valid number at byte 1 of 51", append([]byte{5, 0x80}, make([]byte, 49)...)},
		{"a flag that is 2", "no valid flag at byte 3 of 51", append([]byte{5, 0, 4}, make([]byte, 48)...)},
		{"a text of 2^40 bytes", "no valid text", append([]byte{5, 0, 0, 0, 0, 0}, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40)},
		{"2^40 ended ids", "no valid number of elements", append(rules.Encode(rules.Key{})[:45], 0x80, 0x80, 0x80, 0x80, 0x80, 0x40)},
	} {
		if k, err := rules.Decode(tt.b); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: decoded %+v, error %v, want one with %q", tt.name, k, err, tt.want)
		}
	}
}

// stored is a key with all fields.
var stored = rules.Key{
	Plain: true, State: rules.Shared, Owner: "owner", Locker: "locker", End: 1_700_000_000_000_001, Length: 2, Holder: "holder", Token: 3, Used: 4, Attempts: 5,
	Revoked: true, Replaced: true, Abandoned: true, Fingerprint: "fingerprint", Record: []byte("record"), CompletedBy: "by", Ended: []string{"e1", "e2"}, ParkingLocker: "waker",
	Shares:        []rules.Share{{ID: "s1", Share: backend.Share{Limit: 7, Weight: 6}, Cooling: true, End: 8, Since: 9, Locker: "l1", Holder: "h1"}},
	SharesExpires: 10, Head: "head", HeadSeen: 11, Expires: 12, QueueExpires: 13, ParkedExpires: 14,
	Queue: []rules.Waiter{{Since: -15, Locker: "l2", Request: "r2", Share: backend.Share{Limit: 17, Weight: 16, Rate: backend.Rate{N: 20, Burst: 21, Cost: 22, Per: 23}}}},
	Waits: []rules.Waits{{Locker: "l3", Calls: 42, Since: 43, Expires: 44}},
	Flow: rules.Flow{Buckets: [2]rules.Bucket{{Full: 24, Ahead: 25}, {Full: 40, Ahead: 41}}, Head: "rated", HeadSeen: 26, Expires: 27, Restriction: rules.Restriction{
		End: 34, Restriction: backend.Restriction{For: 35, Limit: 36, Rate: backend.Rate{N: 37, Burst: 38, Per: 39}, Reason: "night"},
	}},
	Parked:   []rules.ParkedEntry{{Since: 18, Text: "p1", Woken: 19}, {Text: "p2"}},
	Triggers: []rules.Trigger{{Entry: "a/b", Score: 28}}, Succeeded: 29, Uncovered: 30, TriggersExpires: 31,
	Paused: 32, PauseLength: 33, PauseReason: "reason",
}

// TestGolden decodes a key that an earlier build has stored. If it fails, raise layout, and run the
// test with -update.
func TestGolden(t *testing.T) {
	const file = "testdata/key.golden"
	if *update {
		if err := os.WriteFile(file, []byte(hex.EncodeToString(rules.Encode(stored))+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if got := rules.Encode(stored); !bytes.Equal(got, b) {
		t.Errorf("the key is encoded as %x, want %x", got, b)
	}
	if got, err := rules.Decode(b); err != nil || !reflect.DeepEqual(got, stored) {
		t.Errorf("the bytes decode to %+v, error %v, want %+v", got, err, stored)
	}
}

// FuzzDecode decodes any bytes. Those that decode are what Encode returns. With such a key no rule
// panics, and no rule changes its argument.
func FuzzDecode(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(rules.Encode(random(seed)))
	}
	f.Add([]byte{2})
	f.Add(bytes.Repeat([]byte{1}, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := rules.Decode(b)
		if err != nil {
			return
		}
		if got := rules.Encode(k); !bytes.Equal(got, b) {
			t.Errorf("%x decodes, and its key is encoded as %x", b, got)
		}
		useKey(k)
		if got := rules.Encode(k); !bytes.Equal(got, b) {
			t.Errorf("the rules have changed the key from %x to %x", b, got)
		}
	})
}

// useKey applies all rules to a key.
func useKey(k rules.Key) {
	of := &backend.Key{Kind: backend.KindOnce, Name: "key"}
	rate := backend.Rate{N: 3, Per: time.Second, Burst: 2, Cost: 1}
	for _, id := range []string{k.Owner, "another"} {
		for _, share := range []backend.Share{{}, {Limit: 3, Weight: 1}, {Limit: 3, Weight: 1, Rate: rate}, {Rate: rate}} {
			for _, now := range []int64{1, k.End - 1, k.End + 1} {
				e := rules.Env{Now: now, Locker: k.Locker, Listeners: func(locker string) int { return len(locker) % 2 }}
				r := backend.AcquireRequest{Key: of, ID: id, Lease: time.Second, Retention: time.Minute, Queue: true, Share: share, Waits: backend.Waits{Calls: 3, Oldest: 4}}
				rules.Acquire(k, &r, e)
				rules.Spend(k, rate, e)
				rules.Pause(k, of, 7, "reason", "operator", e)
				rules.Pause(k, of, 0, "", "operator", e)
				rules.Renew(k, &backend.RenewRequest{Key: of, ID: id, Lease: time.Second, Share: share}, e)
				rules.Release(k, &backend.ReleaseRequest{Key: of, ID: id, Retention: time.Minute, Share: share}, 0, e)
				rules.Release(k, &backend.ReleaseRequest{Key: of, ID: id, Retention: time.Minute, Share: share}, 7, e)
				rules.Release(k, &backend.ReleaseRequest{Key: of, ID: id, Next: &r}, 0, e)
				rules.Withdraw(k, &backend.WithdrawRequest{Key: of, ID: id, Repeated: true, Share: share}, e)
				rules.Complete(k, &backend.CompleteRequest{Key: of, ID: id, Keep: time.Second}, e)
				rules.Adopt(k, &backend.AdoptRequest{Key: of, From: id, ID: "adopter", Lease: time.Second}, e)
				rules.Interim(k, &backend.InterimRequest{Key: of, ID: id, Attempt: int(k.Attempts)}, e)
				rules.Inspect(k, backend.KindOnce, backend.RecordHead, e)
				rules.Revoke(k, &backend.RevokeRequest{}, "operator", e)
				rules.Revoke(k, &backend.RevokeRequest{Before: k.Token + 1}, "operator", e)
				for op := range backend.TriggerDrop + 1 {
					rules.Order(k, &backend.TriggerRequest{Key: of, Op: op, Entry: "a/b", Number: 7, Ends: true, Fresh: true, Most: 2}, e)
				}
				rules.Clear(k, &backend.ClearRequest{Key: of}, "operator", e)
				rules.ForceClear(k, &backend.ForceClearRequest{Key: of, Token: k.Token, Locker: k.Locker}, "operator", e)
				rules.Park(k, &backend.ParkRequest{Key: of, Entry: "entry", Most: 9, Keep: time.Minute}, e)
				rules.Unpark(k, &backend.UnparkRequest{Key: of, Remove: []string{"text"}, Woken: 2}, e)
				rules.CallParkingLocker(k, of, e)
			}
		}
	}
}
