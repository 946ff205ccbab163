package docs_test

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// statuses has the HTTP statuses of each type of problem.
var statuses = map[string][]int{
	httpmw.TypeKeyMissing:       {400},
	httpmw.TypeKeyMalformed:     {400},
	httpmw.TypeBodyUnreadable:   {400},
	httpmw.TypeResourceUnnamed:  {400},
	httpmw.TypeUnauthorized:     {401},
	httpmw.TypeInProgress:       {409},
	httpmw.TypeBusy:             {409, 423},
	httpmw.TypeLimitReached:     {429},
	httpmw.TypeOutcomeUnknown:   {409},
	httpmw.TypeNotReplayable:    {409},
	httpmw.TypeBodyTooLarge:     {413},
	httpmw.TypeKeyReused:        {422},
	httpmw.TypeInternal:         {500},
	httpmw.TypeRecordUnreadable: {500},
	httpmw.TypeUnavailable:      {503},
	httpmw.TypeInterrupted:      {503},
}

// The fragment has each type of problem with each of its statuses, and no other. The operation
// refers to each status.
func TestOpenAPITypes(t *testing.T) {
	text := read(t, "openapi/idempotency.yaml")
	found := map[string][]int{}
	parts := regexp.MustCompile(`(?m)^    Idempotency(\d+):$`).Split(text, -1)
	for i, name := range regexp.MustCompile(`(?m)^    Idempotency(\d+):$`).FindAllStringSubmatch(text, -1) {
		status, _ := strconv.Atoi(name[1])
		for _, uri := range regexp.MustCompile(`https://\S+`).FindAllString(parts[i+1], -1) {
			found[uri] = append(found[uri], status)
		}
		if ref := "'" + name[1] + "': {$ref: '#/components/responses/Idempotency" + name[1] + "'}"; !strings.Contains(text, ref) {
			t.Errorf("no %s", ref)
		}
		if retry := slices.Contains([]int{409, 423, 429, 503}, status); strings.Contains(parts[i+1], "Retry-After: {$ref") != retry {
			t.Errorf("%d: Retry-After should be there: %v", status, retry)
		}
	}
	for uri, want := range statuses {
		if !slices.Equal(found[uri], want) {
			t.Errorf("%s is under %v, want %v", uri, found[uri], want)
		}
	}
	if len(found) != len(statuses) {
		t.Errorf("%d types, want %d", len(found), len(statuses))
	}
}

// statuses of this file agrees with the code.
func TestOpenAPICode(t *testing.T) {
	source := read(t, "../middleware/httpmw/problem.go")
	names := regexp.MustCompile(`(?m)^\tType\w+ += typeBase \+ "(.+?)"`).FindAllStringSubmatch(source, -1)
	if len(names) != len(statuses) {
		t.Errorf("the code has %d types, this test %d", len(names), len(statuses))
	}
	codes := map[string]int{}
	for code := 400; code < 600; code++ {
		codes["http.Status"+strings.NewReplacer(" ", "", "-", "").Replace(http.StatusText(code))] = code
	}
	rows := regexp.MustCompile(`Type: (Type\w+), Status: (http\.\w+)`).FindAllStringSubmatch(source, -1)
	if len(rows) != len(statuses) {
		t.Errorf("the code has %d problems, this test %d", len(rows), len(statuses))
	}
	for _, row := range rows {
		uri := regexp.MustCompile(row[1] + ` += typeBase \+ "(.+?)"`).FindStringSubmatch(source)[1]
		base, _, _ := strings.Cut(httpmw.TypeInternal, "#")
		if want := statuses[base+"#"+uri]; len(want) == 0 || want[0] != codes[row[2]] {
			t.Errorf("%s is answered with %s, this test has %v", row[1], row[2], want)
		}
	}
}

// keyPattern is the form of a key: a quoted string, or bare text without a comma.
const keyPattern = `^("[ -~]+"|[ !#-+.-~-][ -+.-~-]*)$`

// The names and bounds of the headers in the fragment are those of the code.
func TestOpenAPIHeaders(t *testing.T) {
	text := read(t, "openapi/idempotency.yaml")
	for _, want := range []string{"name: " + httpmw.HeaderKey + "\n", httpmw.HeaderReplayed + ": {$ref", "maxLength: 512\n", "pattern: '" + keyPattern + "'\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	h := chain(t, httpmw.IdempotentOptions{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	longest := `"` + strings.Repeat(`\"`, 255) + `"` // quoted, and every character of it escaped
	if len(longest) != 512 {
		t.Errorf("the longest header is of %d characters", len(longest))
	}
	for key, want := range map[string]int{
		strings.Repeat("~", 255): 200, strings.Repeat("~", 256): 400, longest: 200, `"\"` + longest[1:]: 400, "": 400, "\x7f": 400, "é": 400,
		"a, b": 400, `"a, b"`: 200, "a-b.c~d e": 200, ",": 400, `a"b`: 200,
	} {
		if matches := regexp.MustCompile(keyPattern).MatchString(key); want == 200 && !matches || strings.Contains(key, "a, b") && matches != (want == 200) {
			t.Errorf("key %q: matches is %v, status %d", key, matches, want)
		}
		if w := post(h, "", "Idempotency-Key", key); w.Code != want {
			t.Errorf("key %q: %d, want %d", key, w.Code, want)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
