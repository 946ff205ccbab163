package inspect

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/operator"
)

// detail is what the page shows of one key.
type detail struct {
	Row    row
	Facts  []operator.Fact
	Says   string
	Record string
	Acts   []link
	Done   string // the action that was done last
}

type link struct{ Verb, Label string }

func (h *handler) detail(k *operator.Key) *detail {
	d := &detail{Row: h.row(k), Facts: h.shown(k).Facts(), Says: h.shown(k).Explain()}
	d.Facts = slices.DeleteFunc(d.Facts, func(f operator.Fact) bool { return f.Name == "key" })
	for _, here := range h.locks.Here() {
		if here.Kind == k.Kind && here.Key == k.Key && here.Waiting > 0 {
			d.Facts = append(d.Facts, operator.Fact{Name: "waiting here", Value: fmt.Sprintf("%d, the oldest for %s: calls of the process that serves this page", here.Waiting, operator.Age(here.OldestWait))})
		}
	}
	if k.Record != nil && h.o.Record != nil {
		if c, err := idempotency.Decode(k.Record.Data); err == nil {
			d.Record = h.o.Record(k.Key, c)
		}
	}
	return d
}

// details serves one key.
func (h *handler) details(w http.ResponseWriter, r *http.Request) {
	k, status, err := h.look(r)
	if err != nil {
		h.fail(w, r, status, err)
		return
	}
	v := h.view("key", h.o.ShowKey(k.Kind, k.Key), r)
	v.Detail = h.detail(&k)
	if done := r.FormValue("done"); verbs[done].label != "" {
		if v.Detail.Done = verbs[done].label + ": done."; done == "clear" {
			v.Detail.Done += " Nothing runs by itself: send the work again."
		}
	}
	if v.CanAct {
		for _, name := range order {
			if verbs[name].may(&k) {
				v.Detail.Acts = append(v.Detail.Acts, link{name, verbs[name].label + "…"})
			}
		}
	}
	h.render(w, http.StatusOK, v)
}

// find serves the search: by task ID, key, or HTTP request.
func (h *handler) find(w http.ResponseWriter, r *http.Request) {
	v := h.view("find", "Why does it wait?", r)
	v.Query, v.HTTP, v.Tasks = r.URL.Query(), h.o.HTTPKey != nil, h.o.Tasks != nil
	subject, err := h.subject(v.Query)
	status := http.StatusOK
	if err != nil {
		v.Problem, status = operator.OneLine(err.Error()), http.StatusBadRequest
	} else if subject != "" {
		e, err := h.why(r, subject)
		if err != nil {
			v.Problem, status = operator.OneLine(err.Error()), statusOf(err)
		} else {
			v.Why = &e
			for i := range e.Keys[:min(len(e.Keys), maxRows)] {
				v.Rows = append(v.Rows, h.row(&e.Keys[i]))
			}
			v.More = len(e.Keys) - len(v.Rows)
		}
	}
	h.render(w, status, v)
}

// subject returns what a search asks for.
func (h *handler) subject(q url.Values) (string, error) {
	if h.o.HTTPKey != nil && q.Get("idempotency-key") != "" {
		return h.o.HTTPKey(q.Get("scope"), q.Get("method"), q.Get("path"), q.Get("idempotency-key"))
	}
	return q.Get("q"), nil
}

func (h *handler) why(r *http.Request, subject string) (operator.Explanation, error) {
	e, err := operator.Why(r.Context(), h.locks, subject, h.o.Tasks, func(match func(*operator.Key) bool) (keys []operator.Key) {
		for _, k := range h.walker.viewer(r.Context()).keys {
			if match(h.shown(&k)) {
				keys = append(keys, k)
			}
		}
		return keys
	})
	shown := e
	shown.Keys = slices.Clone(e.Keys)
	for i := range shown.Keys {
		shown.Keys[i] = *h.shown(&e.Keys[i])
	}
	e.Tasks = slices.Clone(e.Tasks)
	for i := range e.Tasks {
		for _, key := range operator.KeysIn(e.Tasks[i].LastErr) {
			for _, kind := range []event.Kind{event.KindExclusive, event.KindOnce} { // the error does not say which
				e.Tasks[i].LastErr = h.hide(e.Tasks[i].LastErr, named{kind, key})
				err = h.hideIn(err, named{kind, key})
			}
		}
	}
	shown.Tasks = e.Tasks
	e.Answer = shown.Text()
	return e, err
}

// keysJSON is the form of the lists.
type keysJSON struct {
	AsOf     time.Time          `json:"as_of"`
	Complete bool               `json:"complete"` // a walk over all keys has ended, and there are not too many
	Keys     []operator.Holding `json:"keys"`
}

func (h *handler) json(k *operator.Key) operator.Holding {
	return h.shown(k).JSON()
}

// api serves a list as JSON.
func (h *handler) api(l list) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, once := h.walker.viewer(r.Context()), withOnce(r)
		all := keysJSON{AsOf: s.asOf.UTC(), Complete: s.walks > 0 && !s.full && s.err == nil, Keys: []operator.Holding{}}
		for i := range s.keys {
			if l.has(&s.keys[i], once) {
				all.Keys = append(all.Keys, h.json(&s.keys[i]))
			}
		}
		slices.SortFunc(all.Keys, func(a, b operator.Holding) int { return int(b.HeldForMS - a.HeldForMS) })
		writeJSON(w, http.StatusOK, all)
	}
}

func (h *handler) apiKey(w http.ResponseWriter, r *http.Request) {
	k, status, err := h.look(r)
	if err != nil {
		writeError(w, status, err)
		return
	}
	writeJSON(w, http.StatusOK, keysJSON{AsOf: time.Now().UTC(), Complete: true, Keys: []operator.Holding{h.json(&k)}})
}

func (h *handler) apiWhy(w http.ResponseWriter, r *http.Request) {
	subject, err := h.subject(r.URL.Query())
	if err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	e, err := h.why(r, subject)
	if err != nil {
		writeError(w, statusOf(err), err)
		return
	}
	for i := range e.Keys {
		e.Keys[i] = *h.shown(&e.Keys[i])
	}
	writeJSON(w, http.StatusOK, e.JSON())
}

func writeError(w http.ResponseWriter, status int, err error) {
	writeJSON(w, status, struct {
		Error string `json:"error"`
	}{err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v)
}
