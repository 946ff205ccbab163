package idempotency_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/idempotency"
)

// golden has records of the existing versions. Decode must read them for as long as such records
// may be kept.
var golden = []struct {
	name string
	hex  string
	want idempotency.Content
}{
	{"done", "01 01 04 6a736f6e 02 7b7d", idempotency.Content{Ending: idempotency.Done, Codec: "json", Data: []byte("{}")}},
	{"done without a result", "01 01 04 6e6f6e65 00", idempotency.Content{Ending: idempotency.Done, Codec: "none", Data: []byte{}}},
	{"failed", "01 02 00 04 6f6f7073", idempotency.Content{Ending: idempotency.Failed, Data: []byte("oops")}},
	{"not kept", "01 03 00 00", idempotency.Content{Ending: idempotency.NotKept, Data: []byte{}}},
	{
		"two bytes of length", "01 01 01 78 8001" + strings.Repeat("61", 128),
		idempotency.Content{Ending: idempotency.Done, Codec: "x", Data: bytes.Repeat([]byte("a"), 128)},
	},
	{
		"done with a fingerprint", "02 01 05 6279746573 02 6670 02 6f6b",
		idempotency.Content{Ending: idempotency.Done, Codec: "bytes", Data: []byte("ok"), Fingerprint: []byte("fp")},
	},
	{"failed with a fingerprint", "02 02 00 01 66 04 6f6f7073", idempotency.Content{Ending: idempotency.Failed, Data: []byte("oops"), Fingerprint: []byte("f")}},
	{"not kept with a fingerprint", "02 03 00 01 66 00", idempotency.Content{Ending: idempotency.NotKept, Data: []byte{}, Fingerprint: []byte("f")}},
}

func fromHex(tb testing.TB, s string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestGoldenRecords(t *testing.T) {
	for _, row := range golden {
		want := fromHex(t, row.hex)
		if got, err := row.want.Encode(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: encoded to %x, %v; want %x", row.name, got, err, want)
		}
		if got, err := idempotency.Decode(want); err != nil || !reflect.DeepEqual(got, row.want) {
			t.Errorf("%s: decoded to %+v, %v; want %+v", row.name, got, err, row.want)
		}
	}
}

// Shows: H7
func TestBadRecordsDoNotDecode(t *testing.T) {
	for name, s := range map[string]string{
		"nothing":                 "",
		"three bytes":             "010300",
		"version 0":               "00030000",
		"version 3":               "03030000",
		"no fingerprint":          "02030000",
		"fingerprint of 65 bytes": "02030041" + strings.Repeat("61", 65) + "00",
		"fingerprint beyond end":  "020300026100",
		"no data length":          "0203000161",
		"ending 0":                "01000000",
		"ending 4":                "01040000",
		"codec name of 33 bytes":  "010121" + strings.Repeat("61", 33) + "00",
		"done without a codec":    "01010000",
		"codec name with a tab":   "010101090161",
		"codec name with DEL":     "0101017f0161",
		"codec name not ASCII":    "010102c3a400",
		"codec name ends in NUL":  "01010261000161",
		"codec name beyond end":   "01010561626300",
		"codec name up to end":    "0101046a736f6e",
		"no length":               "01010161",
		"length without its end":  "0101016180",
		"length too long":         "0101016180808080808080808080808001",
		"length in a longer form": "010101618000",
		"a byte too few":          "010101610261",
		"a byte too many":         "0101016100" + "61",
		"huge length":             "01010161ffffffffffffffffff01",
		"not kept with data":      "0103000161",
		"not kept with a codec":   "0103016100",
		"failed with a codec":     "010201610161",
		"text":                    hex.EncodeToString([]byte(`{"state":"done"}`)),
	} {
		got, err := idempotency.Decode(fromHex(t, s))
		if !errors.Is(err, idempotency.ErrFormat) {
			t.Errorf("%s: decoded to %+v, %v", name, got, err)
		}
	}
}

// Decode refuses each proper prefix of a record, and each record with an additional byte at its
// end.
func TestCutAndLongRecordsDoNotDecode(t *testing.T) {
	for _, row := range golden {
		b := fromHex(t, row.hex)
		for n := range b {
			if got, err := idempotency.Decode(b[:n]); err == nil {
				t.Errorf("%s cut to %d bytes: %+v", row.name, n, got)
			}
		}
		if got, err := idempotency.Decode(append(b, 0)); err == nil {
			t.Errorf("%s with an additional byte: %+v", row.name, got)
		}
	}
}

func TestRecordsThatCannotBeEncoded(t *testing.T) {
	for name, r := range map[string]idempotency.Content{
		"long codec name":       {Ending: idempotency.Done, Codec: strings.Repeat("x", 33)},
		"no codec name":         {Ending: idempotency.Done},
		"codec name with a tab": {Ending: idempotency.Done, Codec: "a\tb"},
		"data":                  {Ending: idempotency.Done, Codec: "x", Data: make([]byte, 64<<20+1)},
		"text":                  {Ending: idempotency.Failed, Data: make([]byte, 64<<20+1)},
		"failed with a codec":   {Ending: idempotency.Failed, Codec: "x"},
		"not kept with a codec": {Ending: idempotency.NotKept, Codec: "x"},
		"not kept with data":    {Ending: idempotency.NotKept, Data: []byte("x")},
		"long fingerprint":      {Ending: idempotency.NotKept, Fingerprint: make([]byte, 65)},
		"ending 0":              {},
		"ending 4":              {Ending: 4},
	} {
		if b, err := r.Encode(); err == nil {
			t.Errorf("%s: %d bytes", name, len(b))
		}
	}
}

func TestRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := idempotency.Content{Ending: idempotency.Ending(rapid.IntRange(1, 3).Draw(t, "state")), Data: []byte{}}
		if r.Ending == idempotency.Done {
			r.Codec = rapid.StringMatching("[ -~]{1,32}").Draw(t, "codec")
		}
		if r.Ending != idempotency.NotKept {
			r.Data = append(r.Data, rapid.SliceOf(rapid.Byte()).Draw(t, "data")...)
		}
		if f := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "fingerprint"); len(f) > 0 {
			r.Fingerprint = f
		}
		b, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := idempotency.Decode(b); err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("%+v came back as %+v, %v", r, got, err)
		}
	})
}

// A record with the maximum of data is encoded and decoded. One with a byte more does not decode.
func TestLargestRecord(t *testing.T) {
	r := idempotency.Content{Ending: idempotency.Done, Codec: "x", Data: make([]byte, 64<<20)}
	b, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := idempotency.Decode(b); err != nil || len(got.Data) != len(r.Data) {
		t.Errorf("%d bytes, %v", len(got.Data), err)
	}
	over := append([]byte("\x01\x01\x01x\x81\x80\x80\x20"), make([]byte, 64<<20+1)...)
	if got, err := idempotency.Decode(over); !errors.Is(err, idempotency.ErrFormat) {
		t.Errorf("%d bytes, %v", len(got.Data), err)
	}
}

// An append to the data of a record does not write into the bytes after the record.
func TestDataEndsWhereTheRecordEnds(t *testing.T) {
	b := append(fromHex(t, "0101017801"+"61"), "behind"...)
	r, err := idempotency.Decode(b[:6])
	if err != nil {
		t.Fatal(err)
	}
	if _ = append(r.Data, '!'); string(b[6:]) != "behind" {
		t.Errorf("the bytes after the record are now %q", b[6:])
	}
}

// A decoded record encodes to the same bytes. Decode does not panic, and each refusal is ErrFormat.
func FuzzDecode(f *testing.F) {
	for _, row := range golden {
		f.Add(fromHex(f, row.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := idempotency.Decode(b)
		if err != nil {
			if !errors.Is(err, idempotency.ErrFormat) {
				t.Errorf("%x: %v", b, err)
			}
			return
		}
		again, err := r.Encode()
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%x decoded to %+v, which encodes to %x, %v", b, r, again, err)
		}
	})
}
