package inspect

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/lockcore"
)

const maxRows = 200 // of a list

// list is a screen with a list of keys.
type list int

const (
	held list = iota
	stuck
)

func (l list) String() string { return [...]string{"held", "stuck"}[l] }

// row is a line of a list.
type row struct {
	Key, Kind, State, Holder string
	Query                    template.URL // of links to the key
	For, Left                string
	LeftMS, LeaseMS          int64
	Waiting                  string
	Parked                   int
	Trace                    string
	Why                      string // stuck: why it is in the list
}

// view is what a page shows.
type view struct {
	Title, Backend    string
	Screen            string
	AsOf              string
	Counts            [2]int // of held and stuck
	Rows              []row
	More              int // rows that are not shown
	Match, Sort       string
	Events            string // URL of the stream
	Walk              string
	Problem           string
	Once, CanWalkOnce bool
	Here              []here
	CanAct            bool

	Detail  *detail
	Confirm *confirmation
	Why     *operator.Explanation
	Query   url.Values // find
	HTTP    bool       // find has the fields of an HTTP request
	Tasks   bool       // find takes a task ID
}

// here is a key that this process holds or waits for.
type here struct {
	Key, Kind      string
	Query          template.URL
	Held, Wait     string
	Holds, Waiting int
}

func (h *handler) view(screen, title string, r *http.Request) view {
	s := h.walker.viewer(r.Context())
	once := s.once && withOnce(r)
	v := view{Title: title, Backend: operator.Where(h.locks), Screen: screen, AsOf: s.asOf.Format(time.TimeOnly), CanAct: h.mayAct(r), Once: once, CanWalkOnce: h.o.Pace >= 0}
	for i := range s.keys {
		for l := range v.Counts {
			if list(l).has(&s.keys[i], once) {
				v.Counts[l]++
			}
		}
	}
	v.Walk = s.text(h.o.Pace)
	if s.err != nil {
		v.Problem = operator.OneLine(s.err.Error())
	}
	return v
}

// text describes the walk.
func (s *snapshot) text(pace time.Duration) string {
	switch {
	case pace < 0:
		return "no walk: find a key by its name"
	case s.walks == 0:
		return fmt.Sprintf("first walk over all keys: %d found so far", s.found)
	}
	text := fmt.Sprintf("last walk over all keys: %s, in %v", s.last.Format(time.TimeOnly), s.took.Round(10*time.Millisecond))
	if s.full {
		text += fmt.Sprintf("; more than %d keys are not free, so some are missing", maxKnown)
	}
	return text
}

// withOnce reports whether a viewer asks for the keys of Once too.
func withOnce(r *http.Request) bool { return r.FormValue("once") == "yes" }

// has reports whether a list has the key for a viewer.
func (l list) has(k *operator.Key, once bool) bool {
	return (once || k.Kind != event.KindOnce) && (l == held || whyStuck(k) != "")
}

const (
	longParked = time.Minute
	longLeases = 10 // a hold that is older than this many leases
)

// whyStuck returns why an operator should look at the key, or "".
func whyStuck(k *operator.Key) string {
	holds := k.State == lockcore.StateHeld || k.State == lockcore.StateShared
	switch {
	case k.State == lockcore.StateAbandoned:
		return "abandoned " + operator.Age(k.HeldFor) + " ago"
	case holds && k.Revoked:
		return "revoked, and its handler has not returned"
	case k.State == lockcore.StateHeld && !k.Fixed && k.Lease > 0 && k.Lease-k.Remaining > k.Lease/2:
		return "not renewed for " + operator.Age(k.Lease-k.Remaining)
	case k.State == lockcore.StateHeld && k.Lease > 0 && k.HeldFor > longLeases*k.Lease:
		return fmt.Sprintf("held for more than %d times its lease", longLeases)
	case k.Parked > 0 && k.ParkedFor > longParked:
		return "a task is parked for " + operator.Age(k.ParkedFor)
	}
	return ""
}

// rows returns the lines of a list, for all viewers with the choice of v.
func (h *handler) rows(l list, v view) (rows []row, more int) {
	h.walker.mu.Lock()
	keys := slices.Clone(h.walker.shot.keys)
	h.walker.mu.Unlock()
	slices.SortFunc(keys, func(a, b operator.Key) int {
		switch v.Sort {
		case "key":
			return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Kind, b.Kind))
		case "waiting":
			return cmp.Or(cmp.Compare(b.WaitingCalls+b.Parked, a.WaitingCalls+a.Parked), cmp.Compare(b.HeldFor, a.HeldFor), cmp.Compare(a.Key, b.Key))
		}
		return cmp.Or(cmp.Compare(b.HeldFor, a.HeldFor), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Kind, b.Kind))
	})
	for i := range keys {
		k := &keys[i]
		if !l.has(k, v.Once) || v.Match != "" && !strings.Contains(h.o.ShowKey(k.Kind, k.Key), v.Match) {
			continue
		}
		if len(rows) == maxRows {
			more++
			continue
		}
		rows = append(rows, h.row(k))
	}
	return rows, more
}

func (h *handler) row(k *operator.Key) row {
	r := row{
		Key: operator.OneLine(h.o.ShowKey(k.Kind, k.Key)), Kind: k.Kind.String(), State: h.shown(k).StateText() + k.BoundText(), Holder: operator.Holder(k.Holder), Query: h.query(named{k.Kind, k.Key}),
		For: operator.Age(k.HeldFor), Left: operator.Age(k.Remaining), LeftMS: k.Remaining.Milliseconds(), LeaseMS: k.Lease.Milliseconds(),
		Waiting: k.WaitingText(), Parked: k.Parked, Trace: h.trace(k.Holder), Why: whyStuck(k),
	}
	return r
}

// trace returns the URL of a holder's trace, or "".
func (h *handler) trace(holder event.Holder) string {
	parts := strings.Split(holder.Traceparent, "-")
	if h.o.TraceURL == "" || len(parts) != 4 || len(parts[1]) != 32 || strings.Trim(parts[1], "0123456789abcdef") != "" {
		return ""
	}
	return strings.ReplaceAll(h.o.TraceURL, traceID, parts[1])
}

// screen serves a list.
func (h *handler) screen(l list) http.HandlerFunc {
	titles := [...]string{"Keys that are not free", "Keys that may be stuck"}
	return func(w http.ResponseWriter, r *http.Request) {
		if withOnce(r) && l == stuck {
			h.walker.withOnce() // not with the stream, so that a page that stays open does not keep it up
		}
		v := h.view(l.String(), titles[l], r)
		v.Match, v.Sort = r.FormValue("match"), r.FormValue("sort")
		v.Rows, v.More = h.rows(l, v)
		v.Events = "events?" + url.Values{"screen": {l.String()}, "match": {v.Match}, "sort": {v.Sort}, "once": {r.FormValue("once")}}.Encode()
		if l == held {
			v.Here = h.here()
		}
		h.render(w, http.StatusOK, v)
	}
}

// here returns what this process holds and waits for, at most 20 keys.
func (h *handler) here() (all []here) {
	const most = 20
	for _, one := range h.locks.Here() {
		if len(all) == most {
			break
		}
		all = append(all, here{
			Key: operator.OneLine(h.o.ShowKey(one.Kind, one.Key)), Kind: one.Kind.String(), Query: h.query(named{one.Kind, one.Key}),
			Held: operator.Age(one.HeldFor), Wait: operator.Age(one.OldestWait), Holds: one.Holds, Waiting: one.Waiting,
		})
	}
	return all
}

func (h *handler) render(w http.ResponseWriter, status int, v view) {
	var b bytes.Buffer // so that an error of the template does not leave half a page
	if err := pages.ExecuteTemplate(&b, "page", v); err != nil {
		http.Error(w, "the page cannot be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// fail shows an error.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, status int, err error) {
	v := h.view("error", http.StatusText(status), r)
	v.Problem = operator.OneLine(err.Error())
	h.render(w, status, v)
}
