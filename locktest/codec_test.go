package locktest_test

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/locktest"
)

type receipt struct {
	ID    string
	Cents int
	Paid  bool
	Lines [][]byte
	Tags  map[string][]int
	Next  *receipt
}

func receipts() []receipt {
	return []receipt{
		{},
		{ID: "r-1", Cents: 499, Paid: true, Lines: [][]byte{[]byte("one"), []byte("two")}, Tags: map[string][]int{"a": {1, 2}, "b": {3}}},
		{ID: "r-2", Next: &receipt{ID: "r-3", Cents: -7}},
	}
}

// gobCodec is a codec that an application may define.
type gobCodec struct{}

func (gobCodec) Name() string { return "gob" }

func (gobCodec) Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}

func (gobCodec) Decode(data []byte, v any) error {
	return gob.NewDecoder(bytes.NewReader(data)).Decode(v)
}

// The existing codecs pass with all values that they support, also in a bubble, and Codec does not
// change the values.
func TestCodec(t *testing.T) {
	inAndOut(t, func(t *testing.T) {
		values := receipts()
		locktest.Codec(t, idempotency.JSON(), values...)
		locktest.Codec(t, gobCodec{}, values...)
		locktest.Codec(t, idempotency.JSON(), &values[1], &values[2], nil)
		if !reflect.DeepEqual(values, receipts()) {
			t.Errorf("the values are now %+v", values)
		}
		locktest.Codec(t, idempotency.Bytes(), nil, []byte("text"), []byte{0}, bytes.Repeat([]byte("long"), 1000))
		locktest.Codec(t, idempotency.JSON(), 1, -7, 0)
		locktest.Codec(t, idempotency.JSON(), "", "text")
		locktest.Codec(t, idempotency.JSON(), struct{}{})
		locktest.Codec(t, idempotency.JSON(), 0.5, 0)
		locktest.Codec[any](t, idempotency.JSON(), nil, "text", 1.5, map[string]any{"a": []any{true, nil}})
		locktest.Codec(t, gobCodec{}, time.Unix(1, 2).UTC(), time.Unix(1e9, 0).UTC())
	})
}

// A wrong codec fails the test that calls Codec.
func TestCodecFails(t *testing.T) {
	const child = "HOLDFAST_TEST_BROKEN_CODEC"
	if os.Getenv(child) != "" {
		locktest.Codec(t, broken{name: func() string { return "" }}, receipts()...)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCodecFails$", "-test.v")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--- FAIL: TestCodecFails") || !strings.Contains(string(out), "locktest: codec: name") {
		t.Errorf("%v\n%s", err, out)
	}
}

// scribble changes all reachable data and terminates.
func TestScribble(t *testing.T) {
	type all struct {
		Bool    bool
		Int     int8
		Uint    uint16
		Float   float64
		Half    float64
		Complex complex128
		Text    string
		Array   [2]int
		Any     any
		Deep    any
		Map     map[string]*int
		Self    *all
		Func    func()
		hidden  []byte
	}
	one := 1
	v := all{Half: 0.5, Any: 7, Deep: []any{"x"}, Map: map[string]*int{"a": &one}, hidden: []byte("x")}
	v.Self = &v
	loop := []any{nil}
	loop[0] = loop
	locktest.Scribble(&loop)
	locktest.Scribble(&v)
	r := reflect.ValueOf(v)
	for name, old := range map[string]any{
		"Bool": false, "Int": int8(0), "Uint": uint16(0), "Float": 0.0, "Half": 0.5, "Complex": complex128(0), "Text": "", "Array": [2]int{},
		"Any": 7, "Deep": []any{"x"},
	} {
		if got := r.FieldByName(name).Interface(); reflect.DeepEqual(got, old) {
			t.Errorf("%s is still %v", name, got)
		}
	}
	if one == 1 || v.Array[1] == 0 || string(v.hidden) != "x" || v.Func != nil || fmt.Sprintf("%T", v.Any) != "int" {
		t.Errorf("%d, %+v", one, v.Array)
	}
}
