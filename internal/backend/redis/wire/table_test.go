package wire_test

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// commands returns a command of each script.
func commands() []wire.Command {
	s := &wire.Sender{Locker: "LOCKER", Channels: "channels:", Single: true}
	once := &backend.Key{Kind: backend.KindOnce, Name: "o", Stored: wire.StoredNames("p", backend.KindOnce, "o")}
	key := &backend.Key{Kind: backend.KindExclusive, Name: "x", Stored: wire.StoredNames("p", backend.KindExclusive, "x")}
	share, waits := backend.Share{Limit: 3, Weight: 2}, backend.Waits{Calls: 17, Oldest: 18 * time.Second}
	next := &backend.AcquireRequest{Key: key, ID: "NEXT", Holder: "next holder", Lease: 4 * time.Second, Retention: 5 * time.Second, Queue: true, Waits: waits}
	first := &backend.AcquireRequest{
		Key: once, ID: "ID", Holder: "holder", Lease: time.Second, Retention: 2 * time.Second, Fingerprint: "fingerprint", AtMostOnce: true, Queue: true, Waits: waits,
	}
	shared := &backend.AcquireRequest{Key: key, ID: "ID", Holder: "holder", Lease: time.Second, Queue: true, Share: share, Waits: waits}
	admitted := &backend.AcquireRequest{Key: key, ID: "ID", Queue: true, Share: backend.Share{Rate: backend.Rate{N: 20, Per: time.Second, Burst: 2, Cost: 1}}, Calls: 5, Waits: waits}
	renewals := []backend.RenewRequest{
		{Key: key, ID: "ID", Lease: time.Second, Retention: 2 * time.Second, Token: 6, Holder: "holder"},
		{Key: once, ID: "ID 2", Lease: 3 * time.Second, Retention: 4 * time.Second},
		{Key: key, ID: "ID 3", Lease: time.Second, Holder: "holder", Share: share},
	}
	release := &backend.ReleaseRequest{Key: key, ID: "ID", Token: 6, Retention: 2 * time.Second, Repeated: true, Share: share, Next: next}
	withdraw := backend.WithdrawRequest{Key: key, ID: "ID", Retention: 2 * time.Second, Repeated: true}
	of := withdraw
	of.Share = share
	cmds, _ := wire.Renewals(renewals, 100)
	plain := *next
	acquire, terms := s.Acquire(&plain, true, new(wire.Room)), new(wire.HoldTerms)
	terms.Set(acquire)
	end := s.Release(&backend.ReleaseRequest{Key: once, ID: "ID", Plain: true}, 0, new(wire.Room))
	many := wire.AppendGrantMany([]any{nil, nil}, 2, func(i int) (wire.Command, *wire.HoldTerms) {
		return []wire.Command{end, acquire}[i], terms
	})
	return append(cmds,
		s.Acquire(first, true, new(wire.Room)), s.Release(release, 3*time.Second, new(wire.Room)), s.Rotate(release), s.Withdraw(&withdraw), s.Withdraw(&of),
		s.Complete(&backend.CompleteRequest{Key: once, ID: "ID", Token: 6, Record: []byte("record"), Keep: 7 * time.Second, Repeated: true}),
		s.Adopt(&backend.AdoptRequest{Key: key, From: "FROM", ID: "ID", Holder: "holder", Lease: time.Second, Retention: 2 * time.Second}),
		s.Interim(&backend.InterimRequest{Key: once, ID: "ID", Attempt: 8, Answer: []byte("answer")}),
		s.Revoke(&backend.RevokeRequest{Key: key, Before: 14, Seen: 15}, "OPERATION", wire.RevokeStep{}),
		s.Trigger(&backend.TriggerRequest{Key: key, Op: backend.TriggerDone, Entry: "a/b", Number: 15, Ends: true, Keep: time.Hour, Most: 16}),
		s.Clear(&backend.ClearRequest{Key: once, Condition: backend.ClearIfSame, Token: 6, Done: true}, "OPERATION"),
		s.ForceClear(&backend.ForceClearRequest{Key: key, Token: 6, Locker: "HOLDER", Silent: 9 * time.Second}, "OPERATION"),
		s.Inspect(key, backend.RecordHead),
		s.Park(&backend.ParkRequest{Key: key, Entry: "entry", Most: 10, Keep: 11 * time.Second}),
		s.Unpark(&backend.UnparkRequest{Key: key, Remove: []string{"one", "two"}, Marked: 12, Woken: 13, Prefix: "prefix", Skip: []string{"prefix of others"}, Fresh: 3 * time.Second}),
		s.Pause(key, time.Minute, "429", "OPERATION"), s.Restrict(key, backend.Restriction{Limit: 3, Rate: backend.Rate{N: 4, Per: time.Second, Burst: 5}, For: time.Hour, Reason: "night"}, "OPERATION"),
		s.CallParkingLocker(once), s.AcquireShare(shared), s.Throttle(admitted), s.ReleaseShare(release, 3*time.Second),
		wire.Command{Script: wire.GrantMany, List: many},
	)
}

// TestCommands checks that each command has as many keys and arguments as the table names.
func TestCommands(t *testing.T) {
	seen := map[*wire.Script]bool{}
	for _, c := range commands() {
		seen[c.Script] = true
		keys, args := c.Texts()
		switch c.Script {
		case wire.Renew, wire.GrantMany, wire.Unpark: // they repeat arguments
		default:
			if len(keys) != len(c.Keys) || len(args) != len(c.Args) {
				t.Errorf("%s has the keys %q and the arguments %q, want %v and %q", c.Name, keys, args, c.Keys, c.Args)
			}
		}
	}
	for _, s := range wire.Scripts() {
		if !seen[s] {
			t.Errorf("there is no command of %s", s.Name)
		}
	}
}

var names = regexp.MustCompile(`(?m)^ *local ([a-z_, ]+) = unpack\((KEYS|ARGV)(?:, [^)]*)?\)$`)

// TestNames checks that each script gives its keys and arguments the names of the table.
func TestNames(t *testing.T) {
	keys := []string{wire.Hash: "hash", wire.Queue: "queue", wire.Shares: "shares", wire.Parked: "parked", wire.Woken: "woken", wire.Flow: "flow", wire.Triggers: "triggers"}
	for _, s := range wire.Scripts() {
		want := map[string][]string{"ARGV": s.Args}
		for _, k := range s.Keys {
			want["KEYS"] = append(want["KEYS"], keys[k])
		}
		switch s { // these repeat keys or arguments
		case wire.Renew:
			delete(want, "KEYS")
		case wire.Unpark:
			want["ARGV"] = s.Args[:len(s.Args)-1]
		case wire.GrantMany:
			continue
		}
		got := map[string][]string{}
		for _, m := range names.FindAllStringSubmatch(s.Text, -1) {
			got[m[2]] = strings.Split(m[1], ", ")
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s.lua has the names %q, want %q", s.Name, got, want)
		}
	}
}
