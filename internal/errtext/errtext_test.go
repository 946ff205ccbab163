package errtext_test

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/internal/errtext"
)

func TestJoin(t *testing.T) {
	a, b := errors.New("lockcore: a"), errors.New("lockcore: b")
	foreign := errors.New("redis: nil")
	for want, err := range map[string]error{
		"lockcore: a":             errtext.Join(nil, a),
		"lockcore: a; b":          errtext.Join(a, nil, b),
		"lockcore: a; redis: nil": errtext.Join(a, foreign),
		"lockcore: a: b":          errtext.Wrap(a, b),
		"redis: nil: a":           errtext.Wrap(foreign, a),
		"sqlonce: a; b":           errtext.Join(errors.New("sqlonce: a"), errors.New("sqlonce: b")),
		"guard: Once: a; b":       errtext.Prefix("guard: Once", errtext.Join(a, b)),
		"guard: a: b: redis: nil": errtext.Prefix("guard", errtext.Wrap(a, errtext.Wrap(b, foreign))),
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
	if err := errtext.Wrap(a, nil); err != a { //nolint:errorlint // the same error value
		t.Error(err)
	}
	if err := errtext.Join(nil, nil); err != nil {
		t.Error(err)
	}
	if err := errtext.Wrap(a, errtext.Join(b, foreign)); !errors.Is(err, a) || !errors.Is(err, b) || !errors.Is(err, foreign) {
		t.Errorf("%v does not match all errors that it joins", err)
	}
}
