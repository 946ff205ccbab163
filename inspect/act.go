package inspect

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/lockcore"
)

// verb is an action on a key. Each is done after one confirmation, which shows the key, and only if what
// seen returns is still as it was shown.
type verb struct {
	label string // of the button, and of the link with an ellipsis
	// may reports whether the action applies to a key.
	may func(k *operator.Key) bool
	// text says what the action does.
	text func(k *operator.Key) string
	// fields are the inputs of the form, without those that name the key.
	fields []field
	// seen is what must not have changed since the confirmation was shown.
	seen func(k *operator.Key) string
	do   func(ctx context.Context, l *lockcore.Locker, k *operator.Key, form func(string) string) (terms string, err error)
}

type field struct {
	Name, Label, Preset, Hint string
	Required                  bool
}

// confirmation is a form.
type confirmation struct {
	Verb, Label string
	Text        string
	Fields      []field
	Values      map[string]string
	Seen        string
	Query       template.URL // names the key: a field of a form could not hold each byte
	Doubt       string       // why it may have no effect
	Error       string
}

func tokenOf(k *operator.Key) string { return fmt.Sprintf("%s %d", k.State, k.Token) }

func exclusive(k *operator.Key) bool { return k.Kind == event.KindExclusive }

var reason = field{"reason", "Reason", "", "shown to everyone who waits, at most 256 bytes", true}

var verbs = map[string]verb{
	"revoke": {
		label: "Revoke",
		may:   func(k *operator.Key) bool { return k.State == lockcore.StateHeld || k.State == lockcore.StateShared },
		text:  (*operator.Key).RevokeText,
		seen:  func(k *operator.Key) string { return strconv.FormatInt(k.Token, 10) }, // a share may come or go
		do: func(ctx context.Context, l *lockcore.Locker, k *operator.Key, _ func(string) string) (string, error) {
			return "", l.RevokeIfUnchanged(ctx, k.Kind, k.Key, k.Holding)
		},
	},
	"clear": {
		label: "Clear",
		may: func(k *operator.Key) bool {
			return k.State == lockcore.StateDone || k.State == lockcore.StateAbandoned || k.State == lockcore.StateCooling && k.PauseLeft <= 0
		},
		text: (*operator.Key).ClearText,
		seen: tokenOf,
		do: func(ctx context.Context, l *lockcore.Locker, k *operator.Key, _ func(string) string) (string, error) {
			return "", l.ClearIfUnchanged(ctx, k.Kind, k.Key, k.Holding)
		},
	},
	"wake": {
		label: "Wake",
		may:   func(k *operator.Key) bool { return k.Parked > 0 },
		text: func(k *operator.Key) string {
			return fmt.Sprintf("Asks a worker to wake the first of the %d tasks that are parked on this key. If the key is not free, the task waits for it, or is parked again in its old place.", k.Parked)
		},
		seen: func(*operator.Key) string { return "" },
		do: func(ctx context.Context, l *lockcore.Locker, k *operator.Key, _ func(string) string) (string, error) {
			received, err := operator.Wake(ctx, l, k.Kind, k.Key)
			if err == nil && received == 0 {
				err = errNotReceived
			}
			return "", err
		},
	},
	"pause": {
		label: "Pause",
		may:   exclusive,
		text: func(*operator.Key) string {
			return "No call of this key begins until the pause ends. Calls that run go on. A running pause gets longer, never shorter."
		},
		fields: []field{{"for", "For", "10m", "1ms to 24h", true}, reason},
		seen:   func(*operator.Key) string { return "" },
		do: func(ctx context.Context, l *lockcore.Locker, k *operator.Key, form func(string) string) (string, error) {
			d, err := durationIn(form, "for")
			if err == nil {
				err = reasonIn(form)
			}
			if err != nil {
				return "", err
			}
			err = l.Pause(ctx, k.Key, d, form("reason"))
			if err != nil && ctx.Err() == nil && statusOf(err) == http.StatusServiceUnavailable && !errors.Is(err, lockcore.ErrUnavailable) {
				err = inputError{err} // of a field
			}
			return d.String() + ": " + form("reason"), err
		},
	},
	"end-pause": {
		label: "End the pause",
		may:   func(k *operator.Key) bool { return k.PauseLeft > 0 },
		text: func(k *operator.Key) string {
			return fmt.Sprintf("The key is paused for another %s: %s. Its calls begin as soon as the pause has ended.", operator.Age(k.PauseLeft), operator.OneLine(k.PauseReason))
		},
		seen: func(k *operator.Key) string { return strconv.QuoteToASCII(k.PauseReason) }, // a form changes line breaks
		do: func(ctx context.Context, l *lockcore.Locker, k *operator.Key, _ func(string) string) (string, error) {
			return "", l.Pause(ctx, k.Key, 0, "")
		},
	},
	"limit": {
		label: "Limit",
		may:   exclusive,
		text: func(*operator.Key) string {
			return "Bounds the calls of Limited, Shared and Throttled for a time: of this and their own terms the smaller one counts. It replaces an earlier restriction. Fill in a limit or a rate or both."
		},
		fields: []field{
			{"n", "Calls at a time", "", "or the sum of their weights, 1 to 1000000; no effect on Throttled; empty: not bounded", false},
			{"rate", "Rate", "", "how many calls begin in a time, such as 2/1s; empty: not bounded", false},
			{"burst", "Burst", "", "with a rate: how many calls may begin at once; empty: 1", false},
			{"for", "For", "1h", "1s to 720h", true},
			reason,
		},
		seen: func(*operator.Key) string { return "" },
		do: func(ctx context.Context, l *lockcore.Locker, k *operator.Key, form func(string) string) (string, error) {
			r, err := restrictionIn(form)
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("%s for %v: %s", operator.Bounds(r), r.For, r.Reason), l.Restrict(ctx, k.Key, r)
		},
	},
	"end-limit": {
		label: "End the limit",
		may:   func(k *operator.Key) bool { return k.Restriction.For > 0 },
		text: func(k *operator.Key) string {
			return fmt.Sprintf("The key is restricted to %s for another %s: %s. Its calls have their own terms as soon as that has ended.", operator.Bounds(k.Restriction), operator.Age(k.Restriction.For), operator.OneLine(k.Restriction.Reason))
		},
		seen: func(k *operator.Key) string { return strconv.QuoteToASCII(k.Restriction.Reason) },
		do: func(ctx context.Context, l *lockcore.Locker, k *operator.Key, _ func(string) string) (string, error) {
			return "", l.Restrict(ctx, k.Key, lockcore.Restriction{})
		},
	},
}

// order is that of the links of a key.
var order = []string{"revoke", "clear", "wake", "pause", "end-pause", "limit", "end-limit"}

var (
	errNotReceived = errors.New("no process received it: the process that parked a task of this key most recently has ended, or is not subscribed. The task comes back by itself later")
	errChanged     = errors.New("the key has changed since it was shown: look again")
	errForm        = errors.New("the form cannot be read")
)

// inputError is an error of a field of a form.
type inputError struct{ error }

func durationIn(form func(string) string, name string) (time.Duration, error) {
	d, err := time.ParseDuration(form(name))
	if err != nil || d <= 0 {
		return 0, inputError{fmt.Errorf("%s is %q, must be a duration such as 10m", name, form(name))}
	}
	return d, nil
}

func reasonIn(form func(string) string) error {
	if strings.TrimSpace(form("reason")) == "" {
		return inputError{errors.New("reason is empty: those who wait must know why")}
	}
	return nil
}

func restrictionIn(form func(string) string) (r lockcore.Restriction, err error) {
	if r.For, err = durationIn(form, "for"); err != nil {
		return r, err
	}
	if err := reasonIn(form); err != nil {
		return r, err
	}
	r.Reason = form("reason")
	for _, number := range []struct {
		name string
		to   *int
	}{{"n", &r.Limit}, {"burst", &r.Rate.Burst}} {
		if text := form(number.name); text != "" {
			if *number.to, err = strconv.Atoi(text); err != nil || *number.to < 1 {
				return r, inputError{fmt.Errorf("%s is %q, must be a number from 1 on", number.name, text)}
			}
		}
	}
	if text := form("rate"); text != "" {
		rate, err := operator.ParseRate(text)
		if err != nil {
			return r, inputError{err}
		}
		rate.Burst = r.Rate.Burst
		r.Rate = rate
	} else if r.Rate.Burst != 0 {
		return r, inputError{errors.New("burst must be empty without a rate")}
	}
	if r.Limit == 0 && r.Rate.N == 0 {
		return r, inputError{errors.New("n and rate are empty: one of them must restrict the key. To let no call begin, pause it")}
	}
	if err := r.Validate(); err != nil {
		return r, inputError{err}
	}
	return r, nil
}

// confirm shows the form of an action.
func (h *handler) confirm(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h.o.Allow(r); err != nil {
			h.fail(w, r, http.StatusForbidden, err)
			return
		}
		k, status, err := h.look(r)
		switch {
		case err != nil && !(name == "clear" && errors.Is(err, lockcore.ErrRecord)):
			h.fail(w, r, status, err)
		case err == nil && !verbs[name].may(&k):
			h.fail(w, r, http.StatusConflict, fmt.Errorf("%s is %s: nothing to %s", operator.OneLine(h.o.ShowKey(k.Kind, k.Key)), h.shown(&k).StateText(), strings.ToLower(verbs[name].label)))
		default:
			h.form(w, r, http.StatusOK, name, &k, err)
		}
	}
}

// form shows the form of an action. problem is an error of an input, or says that the data cannot be read.
func (h *handler) form(w http.ResponseWriter, r *http.Request, status int, name string, k *operator.Key, problem error) {
	v := verbs[name]
	c := &confirmation{Verb: name, Label: v.label, Fields: v.fields, Query: h.query(named{k.Kind, k.Key}), Values: map[string]string{}, Seen: v.seen(k)}
	text := v.text(h.shown(k))
	if errors.Is(problem, lockcore.ErrRecord) {
		text = "The data of the key cannot be read. A run of the key may be under way, or have had its effect, so check that first. Clearing deletes its record."
		c.Seen = unreadable
	}
	c.Text = strings.ReplaceAll(strings.TrimSpace(text), "\n", " ")
	if name == "pause" || name == "limit" {
		c.Doubt = operator.Doubt(r.Context(), h.locks, k, name == "limit")
		if shown := h.o.ShowKey(k.Kind, k.Key); shown != k.Key {
			c.Doubt = strings.ReplaceAll(c.Doubt, k.Key, shown)
		}
	}
	for _, f := range v.fields {
		if c.Values[f.Name] = f.Preset; r.Method == http.MethodPost {
			c.Values[f.Name] = r.PostFormValue(f.Name)
		}
	}
	if problem != nil {
		c.Error = operator.OneLine(problem.Error())
	}
	page := h.view(name, v.label, r)
	page.Confirm, page.Detail = c, h.detail(k)
	h.render(w, status, page)
}

const unreadable = "unreadable"

// act does an action, and shows the key.
func (h *handler) act(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			h.fail(w, r, http.StatusBadRequest, errForm)
			return
		}
		a := Action{Time: time.Now(), Actor: operator.OneLine(h.o.Actor(r)), Verb: name}
		done := func() { h.o.Audit(r.Context(), a) }
		if a.Err = h.o.Allow(r); a.Err != nil {
			if n, err := h.keyOf(r); err == nil {
				a.Kind, a.Key = n.Kind, n.Key
			}
			done()
			h.fail(w, r, http.StatusForbidden, a.Err)
			return
		}
		k, status, err := h.look(r)
		a.Kind, a.Key, a.Holder = k.Kind, k.Key, k.Holder
		seen := r.PostFormValue("seen")
		switch {
		case errors.Is(err, lockcore.ErrRecord) && name == "clear" && seen == unreadable:
			a.Err = h.locks.ClearIfUnchanged(r.Context(), k.Kind, k.Key, lockcore.Holding{})
			err = nil
		case err != nil:
			a.Err = err
		case seen != verbs[name].seen(&k) || !verbs[name].may(&k):
			a.Err = errChanged
		default:
			a.Details, a.Err = verbs[name].do(r.Context(), h.locks, &k, r.PostFormValue)
		}
		done()
		switch {
		case errors.As(a.Err, new(inputError)):
			h.form(w, r, http.StatusBadRequest, name, &k, a.Err)
		case errors.Is(a.Err, lockcore.ErrChanged), errors.Is(a.Err, lockcore.ErrBusy), errors.Is(a.Err, errChanged):
			h.fail(w, r, http.StatusConflict, errChanged)
		case err != nil:
			h.fail(w, r, status, err)
		case a.Err != nil:
			h.fail(w, r, statusOf(a.Err), h.hideIn(a.Err, named{k.Kind, k.Key}))
		default:
			w.Header().Set("Location", "key?"+string(h.query(named{k.Kind, k.Key}))+"&done="+name)
			w.WriteHeader(http.StatusSeeOther)
		}
	}
}

// look returns the key that a request names, or an error and its status.
func (h *handler) look(r *http.Request) (operator.Key, int, error) {
	n, err := h.keyOf(r)
	if err != nil {
		if errors.Is(err, errRef) {
			return operator.Key{}, http.StatusNotFound, err
		}
		return operator.Key{}, http.StatusBadRequest, err
	}
	k, err := operator.Inspect(r.Context(), h.locks, n.Kind, n.Key, false)
	err = h.hideIn(err, n)
	return k, statusOf(err), err
}

// hideIn returns err, whose text has what is shown of a key.
func (h *handler) hideIn(err error, n named) error {
	if err == nil {
		return nil
	}
	return hiddenError{err, h.hide(err.Error(), n)}
}

// hide returns text with what is shown of a key in place of the key, as it is, as %q prints it, or as its
// name in Redis.
func (h *handler) hide(text string, n named) string {
	shown := h.o.ShowKey(n.Kind, n.Key)
	if shown == n.Key || n.Key == "" {
		return text
	}
	stored := operator.StoredName(h.locks, n.Kind, n.Key)
	for _, name := range []string{stored, n.Key} {
		for _, quoted := range []string{strconv.QuoteToASCII(name), strconv.Quote(name), `"` + name + `"`} {
			if name != "" {
				text = strings.ReplaceAll(text, quoted[1:len(quoted)-1], shown)
			}
		}
	}
	return text
}

// hiddenError is an error whose text has what is shown of a key.
type hiddenError struct {
	error
	text string
}

func (h hiddenError) Error() string { return h.text }
func (h hiddenError) Unwrap() error { return h.error }

// shown returns a key under the name that the page shows. A failure may name the key too.
func (h *handler) shown(k *operator.Key) *operator.Key {
	shown := *k
	shown.Key = h.o.ShowKey(k.Kind, k.Key)
	if k.Result != nil {
		result := *k.Result
		result.Error = h.hide(result.Error, named{k.Kind, k.Key})
		shown.Result = &result
	}
	return &shown
}

func statusOf(err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, lockcore.ErrKey):
		return http.StatusBadRequest
	case errors.Is(err, lockcore.ErrRecord):
		return http.StatusConflict
	case errors.Is(err, errNotReceived), errors.Is(err, lockcore.ErrUnsupported):
		return http.StatusConflict
	}
	return http.StatusServiceUnavailable
}
