package roundtrip_test

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/roundtrip"
)

type (
	plain struct {
		ID   int `json:"id,omitempty"`
		Tags []string
		At   *time.Time
		_    int
		none struct{}
	}
	secret struct{ id int }
	tagged struct {
		Password string `json:"-"`
	}
	dashed struct {
		Dash string `json:"-,"` //nolint:staticcheck // its name is "-"
	}
	within  struct{ List []map[string][2]secret }
	pointed struct{ Next *secret }
	linked  struct {
		Next *linked
		ID   int
	}
	locked struct {
		mu sync.Mutex //nolint:unused // in a type that is searched
		sync.RWMutex
		ID int
	}
	own     struct{ id int }
	ownPtr  struct{ id int }
	byValue struct{ P ownPtr }
	inSlice struct{ P []ownPtr }
	base    struct{ ID, Name string }
	embeds  struct {
		base
		Sum int
	}
	embedsP struct {
		*base
		Sum int
	}
	hides struct {
		base
		ID int
	}
	other struct{ ID int }
	twice struct {
		base
		other
	}
	text    string //nolint:unused // in a type that is searched
	embedsT struct {
		text //nolint:unused // in a type that is searched
		ID   int
	}
	function struct{ F func() }
	optional struct {
		F func() `json:",omitzero"`
	}
	failing        struct{ Err error }
	anything       struct{ V any }
	generic[T any] struct{ V T }
	self           struct {
		*self
		ID int
	}
	random struct{ id int }
	set    map[string]bool
	oneWay struct{ Cents int }
)

func (o own) MarshalJSON() ([]byte, error)     { return json.Marshal(o.id) }
func (o *own) UnmarshalJSON(b []byte) error    { return json.Unmarshal(b, &o.id) }
func (o *ownPtr) MarshalJSON() ([]byte, error) { return json.Marshal(o.id) }
func (o *ownPtr) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &o.id) }
func (o oneWay) MarshalJSON() ([]byte, error)  { return json.Marshal(fmt.Sprint(o.Cents, " cents")) }

func (random) MarshalJSON() ([]byte, error) {
	return json.Marshal(strings.Repeat("r", time.Now().Nanosecond()%1000))
}
func (*random) UnmarshalJSON([]byte) error { return nil }

func (s set) MarshalJSON() ([]byte, error) { // in the order of the map
	var all []string
	for name := range s {
		all = append(all, name)
	}
	return json.Marshal(all)
}

func (s *set) UnmarshalJSON(b []byte) error {
	var all []string
	err := json.Unmarshal(b, &all)
	*s = set{}
	for _, name := range all {
		(*s)[name] = true
	}
	return err
}

type gobs struct{}

func (gobs) Name() string { return "gob" }
func (gobs) Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}

func (gobs) Decode(data []byte, v any) error { return gob.NewDecoder(bytes.NewReader(data)).Decode(v) }

// outcome is what the two checks of a value say: "" if it may be recorded, else a part of the
// error.
type outcome struct{ before, after string }

func check[T any](c idempotency.Codec, values ...T) func() (any, outcome) {
	return func() (any, outcome) {
		var o outcome
		if err := roundtrip.Type[T](c); err != nil {
			o.before = err.Error()
		}
		for _, v := range values {
			data, err := c.Encode(v)
			if err == nil {
				err = roundtrip.Value(c, v, data)
			}
			if err != nil {
				o.after = err.Error()
			}
		}
		return reflect.TypeFor[T](), o
	}
}

// Each row has a type, its values and the errors that they get. A type or a value that comes back
// gets none.
func TestResults(t *testing.T) {
	js, at, cents := idempotency.JSON(), time.Now(), oneWay{7}
	for _, row := range []struct {
		run           func() (any, outcome)
		before, after string
	}{
		{run: check(js, plain{1, []string{"a"}, &at, 1, struct{}{}}, plain{})},
		{run: check(js, &plain{ID: 1})},
		{run: check(js, "text")},
		{run: check(js, "not UTF-8 \xff"[:9])},
		{run: check(js, []byte("bytes"))},
		{run: check(js, int64(1)<<62)},
		{run: check(js, 0.1)},
		{run: check(js, struct{}{})},
		{run: check(js, at)},
		{run: check(js, big.NewInt(7))},
		{run: check(js, netip.MustParseAddr("::1"))},
		{run: check(js, json.RawMessage(`{ "a": 1 }`))},
		{run: check(js, map[string]any{"a": 1, "b": []any{nil, "x"}, "c": map[string]any{}})},
		{run: check(js, map[time.Time]own{at: {1}})},
		{run: check(js, dashed{"x"})},
		{run: check(js, own{1})},
		{run: check(js, &ownPtr{1})},
		{run: check(js, inSlice{[]ownPtr{{1}}})},
		{run: check(js, &byValue{ownPtr{1}})},
		{run: check(js, &locked{ID: 1})},
		{run: check(js, linked{&linked{nil, 1}, 2})},
		{run: check(js, self{nil, 1})},
		{run: check(js, embeds{base{"1", "2"}, 3})},
		{run: check(js, embedsP{nil, 3})},
		{run: check(js, pointed{nil})},
		{run: check(js, &url.URL{Host: "h", Path: "/"})},
		{run: check(js, optional{nil})},
		{run: check(js, failing{nil})},
		{run: check(js, anything{"x"}, anything{7}, anything{nil})},
		{run: check(js, generic[plain]{})},
		{run: check(js, random{1}, random{2}, random{3})},
		{run: check(js, set{"a": true, "b": true, "cc": true, "d": true, "e": true})},
		{run: check[any](js, nil, "x", plain{ID: 1})},

		{run: check[secret](js), before: "secret.id, because it is unexported"},
		{run: check[*secret](js), before: "secret.id"},
		{run: check[tagged](js), before: `tagged.Password, because its tag is json:"-"`},
		{run: check[within](js), before: "within.List.id"},
		{run: check[[]*secret](js), before: "secret.id"},
		{run: check[generic[secret]](js), before: ".V.id"},
		{run: check[big.Int](js), before: "big.Int.neg"},
		{run: check[byValue](js), before: "byValue.P.id"},
		{run: check[hides](js), before: `hides.base.ID, because another field has the name "ID"`},
		{run: check[twice](js), before: `twice.other.ID, because another field has the name "ID"`},
		{run: check[embedsT](js), before: "embedsT.text"},
		{run: check[function](js), before: "function.F, a func"},
		{run: check[error](js), before: "interface type error"},
		{run: check[fmt.Stringer](js), before: "interface type fmt.Stringer"},

		{run: check(js, pointed{nil}, pointed{&secret{1}}), after: "pointed.Next.id"},
		{run: check(js, &url.URL{Host: "h"}, &url.URL{User: url.User("u")}), after: "URL.User.username"},
		{run: check(js, failing{nil}, failing{errors.New("x")}), after: "failing.Err.s"},
		{run: check(js, generic[fmt.Stringer]{at}), after: "decode it"},
		{run: check(js, embedsP{nil, 1}, embedsP{&base{}, 1}), after: "decode it"},
		{run: check(js, []any{&secret{1}}), after: ".id"},
		{run: check(js, cents), after: "decode it"},
		{run: check(js, generic[any]{uint64(1)<<63 + 1}), after: "others"},

		{run: check(gobs{}, map[string]int{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5})},
		{run: check(gobs{}, plain{ID: 1})},
		{run: check(gobs{}, at)},
		{run: check[any](gobs{}, 7), after: "decode it"},
		{run: check(idempotency.Bytes(), []byte("x"), nil)},
	} {
		typ, got := row.run()
		for _, o := range [][2]string{{got.before, row.before}, {got.after, row.after}} {
			if (o[0] == "") != (o[1] == "") || !strings.Contains(o[0], o[1]) {
				t.Errorf("%v: error %q, want %q", typ, o[0], o[1])
			}
		}
	}
}

// A value of a type that has passed costs nothing.
func TestCheckedTypesCostNothing(t *testing.T) {
	js, v := idempotency.JSON(), plain{ID: 1}
	data, _ := js.Encode(v)
	if n := testing.AllocsPerRun(100, func() {
		if err := errors.Join(roundtrip.Type[plain](js), roundtrip.Value(js, v, data)); err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
