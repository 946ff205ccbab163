package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

const someTask = "5ae50d18-2647-43dd-b67b-5c8e5ec5c9e6"

// inTrace is an Observer of a program whose holds have a trace context.
type inTrace struct{}

func (inTrace) Start(ctx context.Context, _ event.Acquisition) context.Context { return ctx }
func (inTrace) Event(context.Context, event.Event)                             {}

func (inTrace) Traceparent(context.Context) string {
	return "00-dcbabab45780b93852836a0e85db267b-86f6ba493ff72d59-01"
}

// session runs the command at a terminal, and returns what the terminal shows.
func session(t *testing.T, addr, answer string, args ...string) string {
	t.Helper()
	var screen bytes.Buffer
	sh := &shell{
		in: io.TeeReader(strings.NewReader(answer+"\n"), &screen), out: &screen, err: &screen, terminal: true,
		getenv: func(name string) string { return map[string]string{"HOLDFAST_REDIS": addr}[name] },
	}
	sh.run(t.Context(), args)
	return screen.String()
}

// alike replaces what differs from run to run.
func alike(text string) string {
	for _, r := range []struct{ pattern, by string }{
		{`[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}`, "UUID"},
		{`00-[\da-f]{32}-[\da-f]{16}-01`, "TRACE"},
		{`[\w.-]+/\d+( task|\n)`, "HOST/PID$1"},
		{`"host": ".*"`, `"host": "HOST"`},
		{`"as_of": ".*"`, `"as_of": "TIME"`},
		{`\b(\d+h)?(\d+m)?[\d.]+(µs|ms|s)\b|\b\d+h\d+m`, "TIME"},
		{`\d+`, "N"},
		{` +`, " "},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.by)
	}
	return text
}

// docs/operate.md shows what the command prints. A line … on the page stands for lines that it
// omits.
func TestPageShowsTheOutput(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t)
	printed := map[string]string{}
	run := func(answer, command string) {
		t.Helper()
		printed[command] = session(t, s.Addr(), answer, strings.Fields(command)...)
	}
	holder, err := lockcore.New(s.Client(t), lockcore.Options{Observer: inTrace{}})
	ok(t, err)
	t.Cleanup(func() { _ = holder.Close(t.Context()) })
	ctx := lockcore.WithTask(t.Context(), someTask)

	_, err = holder.Acquire(ctx, "account:42", lockcore.Terms{})
	ok(t, err)
	done, _, err := holder.Claim(ctx, "charge/payment:7", lockcore.Claim{})
	ok(t, err)
	record, err := idempotency.Content{Ending: idempotency.Done, Codec: "bytes"}.Encode()
	ok(t, err)
	ok(t, done.Complete(ctx, record, 24*time.Hour))
	parking, _ := worker(t, s.Client(t))
	park(t, parking, event.KindExclusive, "account:42", "/default/"+someTask)
	run("", "ls")
	run("", "show account:42")
	run("", "show -json account:42")
	run("yes", "revoke account:42")

	died, err := holder.Acquire(ctx, "account:43", lockcore.Terms{Lease: longLease})
	ok(t, err)
	silentSince(t, s, "holdfast:2:x:{account:43}")
	park(t, parking, event.KindExclusive, "account:43", "/default/"+someTask)
	run(thisHolder(t), "clear -force account:43")
	<-died.Context().Done()
	for end := time.Now().Add(20 * time.Second); !strings.Contains(printed["wake account:43"], "to 1 process") && time.Now().Before(end); {
		run("", "wake account:43")
	}
	left, _, err := holder.Claim(ctx, "charge/payment:8", lockcore.Claim{})
	ok(t, err)
	ok(t, left.Abandon(ctx))
	run("yes", "clear -once charge/payment:8")

	page, err := os.ReadFile("../../docs/operate.md")
	ok(t, err)
	shown := regexp.MustCompile("(?s)```console\n\\$ holdfast ([^\n]*)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(shown) < len(printed) {
		t.Errorf("%d commands on the page, want %d or more", len(shown), len(printed))
	}
	for command, screen := range printed {
		found := false
		for _, m := range shown {
			if alike(m[1]) != alike(command) {
				continue
			}
			found = true
			want := strings.ReplaceAll(regexp.QuoteMeta(alike(m[2])), "…\n", "(?s:.*)")
			if got := alike(screen); !regexp.MustCompile("^" + want + "$").MatchString(got) {
				t.Errorf("holdfast %s prints\n%s\nthe page shows\n%s", command, got, alike(m[2]))
			}
		}
		if !found {
			t.Errorf("the page has no %q", command)
		}
	}
}
