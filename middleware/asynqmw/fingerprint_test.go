package asynqmw_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

var byPaymentID = asynqmw.ByJSON("payment", "/payment_id")

// A task has a key that is done with another payload. The task completes without a run, and the
// Observer gets PayloadDiffers. Another form of the same payload is not a difference.
// Shows: O7
func TestOncePayloadDiffers(t *testing.T) {
	inBubble(t, func(w *world) {
		var g gauge
		once := asynqmw.Once(w.locks, byPaymentID, asynqmw.OnceOptions{})
		w.serve(asynqmw.Configure(quick()), once(g.handler(nothing)))
		for i, step := range []struct {
			payload string
			events  int
		}{
			{`{"payment_id":7,"amount":5}`, 0},
			{`{"payment_id":7,"amount":5}`, 0},
			{`{"amount": 5.0, "payment_id": 7}`, 0},
			{`{"payment_id":7,"amount":5000}`, 1},
			{`{"payment_id":7,"amount":5}`, 1},
		} {
			w.ends(w.enqueue("charge", step.payload, asynq.MaxRetry(0)), asynq.TaskStateCompleted)
			if got := locktest.EventsOf[event.PayloadDiffers](w.heard); len(got) != step.events {
				w.Errorf("%d: %d events, want %d", i, len(got), step.events)
			}
		}
		for _, e := range locktest.EventsOf[event.PayloadDiffers](w.heard) {
			if want := (event.PayloadDiffers{Name: "payment", Key: "charge/payment:7"}); e != want {
				w.Errorf("event %+v, want %+v", e, want)
			}
		}
		if runs, _ := g.counts(); runs != 1 {
			w.Errorf("%d runs, want 1", runs)
		}
	})
}

// With Fingerprint a task with another payload is refused, and asynq retries it until its retries
// are used up. With SkipRetry it would be archived at once.
func TestOnceFingerprintRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		fingerprint asynqmw.FingerprintFunc
		same, other string
	}{
		"fields": {asynqmw.Fields("/amount", "/currency"), `{"payment_id":7,"currency":"EUR","amount":5,"sent_at":2}`, `{"payment_id":7,"amount":5000,"currency":"EUR"}`},
		"except": {asynqmw.Except("/sent_at"), `{"payment_id":7,"amount":5,"currency":"EUR","sent_at":2}`, `{"payment_id":7,"amount":5000,"currency":"EUR","sent_at":1}`},
		"whole":  {asynqmw.WholePayload, `{"payment_id":7,"amount":5.0,"sent_at":1,"currency":"EUR"}`, `{"payment_id":7,"amount":5,"currency":"EUR","sent_at":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				var g gauge
				once := asynqmw.Once(w.locks, byPaymentID, asynqmw.OnceOptions{Fingerprint: row.fingerprint})
				w.serve(asynqmw.Configure(quick()), once(g.handler(nothing)))
				w.ends(w.enqueue("charge", `{"payment_id":7,"amount":5,"currency":"EUR","sent_at":1}`), asynq.TaskStateCompleted)
				w.ends(w.enqueue("charge", row.same, asynq.MaxRetry(0)), asynq.TaskStateCompleted)
				info := w.ends(w.enqueue("charge", row.other, asynq.MaxRetry(2)), asynq.TaskStateArchived)
				if want := (&lockcore.MismatchError{Key: "charge/payment:7", Done: true}).Error(); info.LastErr != want || info.Retried != 2 {
					w.Errorf("last error %q, retried %d, want %q and 2", info.LastErr, info.Retried, want)
				}
				if n := len(locktest.EventsOf[event.PayloadDiffers](w.heard)); n != 0 {
					w.Errorf("%d events, want none: it was refused", n)
				}
				if runs, _ := g.counts(); runs != 1 {
					w.Errorf("%d runs, want 1", runs)
				}
			})
		})
	}
}

// A deployment changes between reporting and refusing. Keys that were done before it keep their
// behavior: a task with another payload completes without a run.
func TestOnceFingerprintDeploy(t *testing.T) {
	inBubble(t, func(w *world) {
		reports := asynqmw.Once(w.locks, byPaymentID, asynqmw.OnceOptions{})
		refuses := asynqmw.Once(w.locks, byPaymentID, asynqmw.OnceOptions{Fingerprint: asynqmw.Fields("/amount")})
		for _, order := range [][]asynq.MiddlewareFunc{{reports, refuses}, {refuses, reports}} {
			id := fmt.Sprint(len(locktest.EventsOf[event.Granted](w.heard)))
			for amount, once := range order {
				var g gauge
				task := asynq.NewTask("charge", fmt.Appendf(nil, `{"payment_id":%q,"amount":%d}`, id, amount))
				if err := once(g.handler(nothing)).ProcessTask(w.Context(), task); err != nil {
					w.Error(err)
				}
				if runs, _ := g.counts(); runs != 1-amount {
					w.Errorf("%d runs of delivery %d", runs, amount)
				}
			}
		}
	})
}

// A key by payload has only one payload, so the record has no digest of it. A record of any other
// key has one, also the record of a failure.
func TestOnceStoresADigest(t *testing.T) {
	inBubble(t, func(w *world) {
		for i, row := range []struct {
			key    asynqmw.KeyFunc
			err    error
			stored int
		}{
			{asynqmw.ByPayload(), nil, 0},
			{asynqmw.Join(asynqmw.ByType(), asynqmw.ByPayload()), nil, 0},
			{byPaymentID, nil, 32},
			{asynqmw.Join(asynqmw.ByType(), byPaymentID), nil, 32},
			{byPaymentID, guard.Final(errBoom), 32},
		} {
			w.rdb.FlushAll(w.Context())
			var g gauge
			h := asynqmw.Once(w.locks, row.key, asynqmw.OnceOptions{})(g.handler(func(context.Context, int, *asynq.Task) error { return row.err }))
			task := asynq.NewTask("charge", []byte(`{"payment_id":7,"secret":"canary"}`))
			if err := h.ProcessTask(w.Context(), task); !errors.Is(err, row.err) {
				w.Error(err)
			}
			k, err := row.key(w.Context(), task)
			if err != nil {
				w.Fatal(err)
			}
			e, err := idempotency.Lookup(w.Context(), w.locks, asynqmw.OnceKey("charge", k))
			if err != nil {
				w.Fatal(err)
			}
			if len(e.Content.Fingerprint) != row.stored || bytes.Contains(e.Content.Data, []byte("canary")) {
				w.Errorf("%d: record %+v, want a digest of %d bytes", i, e.Content, row.stored)
			}
		}
	})
}

// The record of a key by task ID has no digest of the payload either.
func TestOnceByTaskIDStoresNoDigest(t *testing.T) {
	inBubble(t, func(w *world) {
		var g gauge
		once := asynqmw.Once(w.locks, asynqmw.ByTaskID(), asynqmw.OnceOptions{})
		w.serve(asynqmw.Configure(quick()), once(g.handler(nothing)))
		info := w.ends(w.enqueue("charge", `{"amount":5}`), asynq.TaskStateCompleted)
		e, err := idempotency.Lookup(w.Context(), w.locks, asynqmw.OnceKey("charge", guard.Key{Class: "task", ID: "default," + info.ID}))
		if err != nil || e.State != lockcore.StateDone || len(e.Content.Fingerprint) != 0 {
			w.Errorf("%+v, %v; want done without a fingerprint", e, err)
		}
	})
}

// A payload has no fingerprint. The task does not run, asynq gets an error that it retries, and the
// Observer gets NoKey.
func TestNoFingerprint(t *testing.T) {
	inBubble(t, func(w *world) {
		key := func(_ context.Context, _ *asynq.Task) (guard.Key, error) {
			return guard.Key{Class: "payment", ID: "7"}, nil
		}
		var g gauge
		once := asynqmw.Once(w.locks, key, asynqmw.OnceOptions{Fingerprint: asynqmw.Fields("/amount", "/currency")})
		w.serve(asynqmw.Configure(quick()), once(g.handler(nothing)))
		for _, payload := range []string{"no JSON", `{"amuont":5}`, `{"amount":"` + "\xff" + `"}`} {
			info := w.ends(w.enqueue("charge", payload, asynq.MaxRetry(1)), asynq.TaskStateArchived)
			if info.Retried != 1 || !strings.Contains(info.LastErr, `no fingerprint for a task of type "charge"`) || !strings.Contains(info.LastErr, `"/amount"`) {
				w.Errorf("retried %d, last error %q", info.Retried, info.LastErr)
			}
		}
		if n := len(locktest.EventsOf[event.NoKey](w.heard)); n != 6 {
			w.Errorf("%d NoKey, want 6", n)
		}
		if runs, _ := g.counts(); runs != 0 {
			w.Errorf("%d runs, want 0", runs)
		}
	})
}

func fingerprintOf(t interface{ Fatal(...any) }, f asynqmw.FingerprintFunc, payload string) string {
	b, err := f(asynq.NewTask("charge", []byte(payload)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Pairs of payloads, and whether their fingerprints are equal.
func TestWholePayload(t *testing.T) {
	long := strings.Repeat("9", 400)
	for _, row := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":[true,null]}`, " {\n\"b\" : [ true, null ], \"a\": 1 } ", true},
		{`{"a":1}`, `{"a":1.0}`, true},
		{`1`, `1e0`, true},
		{`100`, `1E+2`, true},
		{`0.01`, `1e-2`, true},
		{`-0`, `0.000e5`, true},
		{`[12345678901234567890]`, `[12345678901234567891]`, false},
		{`9007199254740993`, `9007199254740992`, false},
		{long + `1`, long + `2`, false},
		{`1e400`, `1e401`, false},
		{`1e99999999999999999999`, `1e99999999999999999999`, true},
		{`1e99999999999999999999`, `2e99999999999999999999`, false},
		{`1`, `-1`, false},
		{`1`, `"1"`, false},
		{`"a"`, `"\u0061"`, true},
		{`"😀"`, `"\ud83d\ude00"`, true},
		{`"\u00e9"`, `"e\u0301"`, false}, // composed and decomposed: texts are not normalized
		{`{"a":1,"a":2}`, `{"a":2}`, true},
		{`{"a":1,"a":2}`, `{"a":1}`, false},
		{`{"a":null}`, `{}`, false},
		{`[]`, `{}`, false},
		{`[[1],2]`, `[[1,2]]`, false},
		{`["ab","c"]`, `["a","bc"]`, false},
		{`{"a":"b"}`, `{"b":"a"}`, false},
		{`{}`, `{ }`, true},
		{``, ` `, false}, // not JSON: compared byte by byte
		{`{"a":1`, `{"a": 1`, false},
		{`{} {}`, `{}  {}`, false},
		{"\"\xff\"", "\"\xfe\"", false}, // encoding/json makes U+FFFD of both
		{`"\ud800"`, `"\ud801"`, false},
		{`"\ud800"`, `"\ufffd"`, false},
		{`"\\ud800"`, ` "\\ud800"`, true}, // an escaped backslash, not an escape of a surrogate
		{`"\udc00\ud800"`, `"\udc01\ud800"`, false},
		{"\"\xff\"", "\"\xff\" ", false},
		{`{"a":"` + "\x00" + `"}`, `{"a":"\u0000"}`, false}, // JSON must not contain a control character
	} {
		if a, b := fingerprintOf(t, asynqmw.WholePayload, row.a), fingerprintOf(t, asynqmw.WholePayload, row.b); (a == b) != row.same {
			t.Errorf("%q and %q: same is %v, want %v", row.a, row.b, a == b, row.same)
		}
	}
}

// A payload that is nested too deeply is compared byte by byte. This does not overflow the stack.
func TestWholePayloadDeep(t *testing.T) {
	for depth, same := range map[int]bool{1_000: true, 10_000: true, 10_001: false, 1_000_000: false} {
		deep := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		if a, b := fingerprintOf(t, asynqmw.WholePayload, deep), fingerprintOf(t, asynqmw.WholePayload, deep+" "); (a == b) != same {
			t.Errorf("depth %d: same is %v, want %v", depth, a == b, same)
		}
	}
}

// Numbers are compared by their exact value, in any notation.
func TestWholePayloadNumbers(t *testing.T) {
	number := rapid.Custom(func(t *rapid.T) string {
		return rapid.StringMatching(`-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,3})?([eE][+-]?[0-9])?`).Draw(t, "number")
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		x, ok1 := new(big.Rat).SetString(a)
		y, ok2 := new(big.Rat).SetString(b)
		if !ok1 || !ok2 || !json.Valid([]byte(a)) {
			t.Fatal(a, b)
		}
		if same := fingerprintOf(t, asynqmw.WholePayload, a) == fingerprintOf(t, asynqmw.WholePayload, b); same != (x.Cmp(y) == 0) {
			t.Fatalf("%s and %s: same is %v", a, b, same)
		}
	})
}

// The values at the pointers of Fields, or all others for Except, make the fingerprint. The order
// of the pointers does not matter.
func TestFieldsAndExcept(t *testing.T) {
	const doc = `{"amount":5,"to":{"iban":"X","name":"A"},"list":[1,{"t":2},3],"note":null}`
	for _, row := range []struct {
		name string
		f    asynqmw.FingerprintFunc
		b    string
		same bool
	}{
		{"another field", asynqmw.Fields("/amount"), `{"amount":5.0,"note":1}`, true},
		{"the field", asynqmw.Fields("/amount"), `{"amount":6}`, false},
		{"an object", asynqmw.Fields("/to"), `{"to":{"name":"A","iban":"X"}}`, true},
		{"in an object", asynqmw.Fields("/to/iban"), `{"to":{"iban":"Y","name":"A"}}`, false},
		{"in an array", asynqmw.Fields("/list/1/t"), `{"list":[0,{"t":2}]}`, true},
		{"null is no missing value", asynqmw.Fields("/amount", "/note"), `{"amount":5}`, false},
		{"missing in both", asynqmw.Fields("/amount", "/x"), `{"amount":5}`, true},
		{"a value that moved", asynqmw.Fields("/amount", "/x"), `{"x":5}`, false},
		{"except another", asynqmw.Except("/note"), `{"amount":5,"to":{"iban":"X","name":"A"},"list":[1,{"t":2},3]}`, true},
		{"except inside", asynqmw.Except("/to/name", "/note", "/list/1/t"), `{"amount":5,"to":{"iban":"X","name":"B"},"list":[1,{"t":9},3],"note":1}`, true},
		{"except an element", asynqmw.Except("/list/0"), strings.Replace(doc, "[1,", "[9,", 1), true},
		{"except an element, not its place", asynqmw.Except("/list/0"), strings.Replace(doc, "[1,", "[", 1), false},
		{"except nothing", asynqmw.Except("/x", "/list/9", "/amount/x"), doc, true},
		{"a difference", asynqmw.Except("/note"), strings.Replace(doc, "5", "6", 1), false},
	} {
		if a, b := fingerprintOf(t, row.f, doc), fingerprintOf(t, row.f, row.b); (a == b) != row.same {
			t.Errorf("%s: same is %v, want %v", row.name, a == b, row.same)
		}
	}
	if a, b := fingerprintOf(t, asynqmw.Fields("/amount", "/note"), doc), fingerprintOf(t, asynqmw.Fields("/note", "/amount", "/note"), doc); a != b {
		t.Error("the order of the pointers changes the fingerprint")
	}
}

// An invalid pointer causes a panic when the function is made. The text has the function and the
// pointer.
func TestBadFingerprintPointers(t *testing.T) {
	for want, call := range map[string]func(){
		"asynqmw: Fields: at least one JSON pointer is needed":                       func() { asynqmw.Fields() },
		"asynqmw: Except: at least one JSON pointer is needed":                       func() { asynqmw.Except() },
		`asynqmw: Fields: JSON pointer "amount" does not begin with a slash`:         func() { asynqmw.Fields("/ok", "amount") },
		`asynqmw: Except: JSON pointer "/a~2" has a ~ that is neither ~0 nor ~1`:     func() { asynqmw.Except("/a~2") },
		`asynqmw: Fields: JSON pointer "" names the whole payload, use WholePayload`: func() { asynqmw.Fields("") },
		`asynqmw: Except: JSON pointer "" names the whole payload, use WholePayload`: func() { asynqmw.Except("/a", "") },
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("panic %v, want %s", got, want)
				}
			}()
			call()
		}()
	}
}

// No payload causes a panic, and equal payloads have equal fingerprints.
func FuzzFingerprint(f *testing.F) {
	for _, s := range []string{``, `{"a":1}`, `[[],{}]`, `"\ud800\udc00"`, `"\`, `1e5`, "\xff"} {
		f.Add([]byte(s))
	}
	fields, except := asynqmw.Fields("/a", "/b/0"), asynqmw.Except("/a", "/b/0")
	f.Fuzz(func(t *testing.T, payload []byte) {
		task := asynq.NewTask("charge", payload)
		for _, fn := range []asynqmw.FingerprintFunc{asynqmw.WholePayload, fields, except} {
			a, err1 := fn(task)
			b, err2 := fn(asynq.NewTask("charge", bytes.Clone(payload)))
			if (err1 == nil) != (err2 == nil) || !bytes.Equal(a, b) {
				t.Errorf("%q: %q, %v and %q, %v", payload, a, err1, b, err2)
			}
		}
	})
}
