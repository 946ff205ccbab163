package guard_test

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/guard"
)

func TestKey(t *testing.T) {
	for want, k := range map[string]guard.Key{
		"account:42": {Class: "account", ID: "42"},
		"42":         {ID: "42"},
		"a:b:c":      {Class: "a", ID: "b:c"},
	} {
		if got := k.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if err := k.Validate(); err != nil {
			t.Errorf("%q: %v", want, err)
		}
	}
	if err := (guard.Key{Class: strings.Repeat("c", 128), ID: "1"}).Validate(); err != nil {
		t.Error(err)
	}
	err := guard.Key{Class: strings.Repeat("c:", 100)}.Validate()
	for _, want := range []string{"Key.ID", "colon", "200 bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}
