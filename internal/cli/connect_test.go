package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// clusterNode returns the only server of a Cluster.
func clusterNode(t *testing.T) *redistest.Server {
	t.Helper()
	s := redistest.Real(t, "--cluster-enabled", "yes")
	rdb := s.Client(t)
	ok(t, rdb.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	end := time.Now().Add(20 * time.Second)
	for !strings.Contains(rdb.ClusterInfo(t.Context()).Val(), "cluster_state:ok") {
		if time.Now().After(end) {
			t.Fatal("the cluster does not come up")
		}
		time.Sleep(10 * time.Millisecond) // between two polls
	}
	return s
}

type mistake struct {
	call       call
	args, want string
}

// misuse has mistakes that the command reports before it connects to a server.
var misuse = []mistake{
	{call{}, "ls -once -exclusive", "exclude"},
	{call{}, "ls account:42", "for keys use -match"},
	{call{}, "doctor localhost:6379", "for an address use -redis"},
	{call{}, "show", "KEY is missing"},
	{call{}, "revoke -yes", "KEY is missing"},
	{call{}, "revoke account:42 -yes", `unexpected argument "-yes" after KEY`},
	{call{}, "doctor -lease 5", "want a duration like 5s"},
	{call{}, "ls -timeout soon", "want a duration like 5s"},
	{call{}, "ls -nonsense", "not defined"},
	{call{}, "nonsense", "no command"},
	{call{}, "", "holdfast doctor"},
	{call{}, "ls -postgres dbname=app", "go install github.com/holdfast-go/holdfast/postgres/cmd/holdfast@latest"},
	{call{env: map[string]string{"HOLDFAST_POSTGRES": "password=canary"}}, "doctor", "go install"},
	{call{}, "ls -postgres dbname=app -prefix p", "allows -schema, but no flag for Redis"},
	{call{}, "serve -postgres dbname=app -quorum", "allows -schema, but no flag for Redis"},
	{call{}, "show -postgres postgres://app:canary@db/app k", "set PGPASSWORD"},
	{call{}, "show -postgres password=canary k", "set PGPASSWORD"},
	{call{}, "doctor -postgres dbname=app -replica-acks 1", "without -quorum and -postgres"},
	{call{}, "ls -schema s", "-schema needs -postgres"},
	{call{}, "doctor -schema s", "-schema needs -postgres"},
}

// wrong has mistakes that fail on a server with a password, at addr, or on a Cluster.
func wrong(addr, cluster string) []mistake {
	env := func(pairs ...string) call {
		c := call{env: map[string]string{}}
		for i := 0; i < len(pairs); i += 2 {
			c.env[pairs[i]] = pairs[i+1]
		}
		return c
	}
	return []mistake{
		{env(), "ls -redis 127.0.0.1:1", "No server listens there"},
		{env(), "doctor -redis 127.0.0.1:1", "No server listens there"},
		{env(), "ls -redis " + addr, "HOLDFAST_REDIS_PASSWORD"},
		{env("HOLDFAST_REDIS_PASSWORD", "canary"), "ls -redis " + addr, "password is wrong"},
		{env("HOLDFAST_REDIS_PASSWORD", "canary"), "doctor -redis " + addr, "password is wrong"},
		{env("HOLDFAST_REDIS", "redis://:canary@"+addr), "show k", "password is wrong"},
		{env("HOLDFAST_REDIS", "redis://:canary@[bad"), "show k", "cannot be read"},
		{env(), "ls -redis redis://:canary@" + addr, "HOLDFAST_REDIS_PASSWORD"},
		{env("HOLDFAST_REDIS_PASSWORD", "right"), "ls -redis rediss://" + addr, "TLS"},
		{env("HOLDFAST_REDIS_PASSWORD", "right"), "ls -cluster -redis " + addr, "leave -cluster out"},
		{env(), "ls -redis localhost", "no port"},
		{env(), "ls -redis a:1,b:2", "need -cluster"},
		{env(), "ls -sentinel a:1", "go together"},
		{env(), "ls -sentinel a:1 -master m -cluster", "go together"},
		{env("REDIS_ADDR", "127.0.0.1:1"), "ls", "is REDIS_ADDR right"},
		{env("REDIS_ADDR", "[bad", "HOLDFAST_REDIS", "127.0.0.1:1"), "ls", "is HOLDFAST_REDIS right"},
		{env("HOLDFAST_REDIS", "redis://:canary@"+addr), "ls", "see the URL of HOLDFAST_REDIS."},
		{env("HOLDFAST_REDIS", "redis://op@"+addr, "HOLDFAST_REDIS_PASSWORD", "canary"), "ls", "see the URL of HOLDFAST_REDIS and HOLDFAST_REDIS_PASSWORD."},
		{env("HOLDFAST_REDIS_USER", "op", "HOLDFAST_REDIS_PASSWORD", "canary"), "ls -redis " + addr, "see HOLDFAST_REDIS_USER and HOLDFAST_REDIS_PASSWORD."},
		{env(), "ls -tls /nothing/there -redis " + addr, "/nothing/there"},
		{env(), "ls -tls cli.go -redis " + addr, "no certificate"},
		{env(), "ls -prefix {} -redis " + cluster, "Prefix"},
	}
}

// For each mistake the command prints what is wrong, exits with exitFailed, and never prints a
// password.
func TestWrong(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s, cluster := redistest.Real(t, "--requirepass", "right"), clusterNode(t)
	for _, c := range append(wrong(s.Addr(), cluster.Addr()), misuse...) {
		code, out, errs := c.call.run(t, strings.Fields(c.args)...)
		if code != exitFailed || !strings.Contains(errs, c.want) || strings.Contains(out+errs, "canary") {
			t.Errorf("%s: %d, want %q in %q", c.args, code, c.want, errs)
		}
	}
}

// The command takes passwords from the environment, also inside a URL there. It accepts a user
// name, and a request for help is not a mistake.
func TestRight(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t, "--requirepass", "right")
	rdb := s.Client(t, func(o *redis.Options) { o.Password = "right" })
	ok(t, rdb.Do(t.Context(), "ACL", "SETUSER", "op", "on", ">pw", "~*", "&*", "+@all").Err())
	for _, env := range []map[string]string{
		{"HOLDFAST_REDIS": s.Addr(), "HOLDFAST_REDIS_PASSWORD": "right", "REDIS_ADDR": "127.0.0.1:1"},
		{"REDIS_ADDR": s.Addr(), "HOLDFAST_REDIS_PASSWORD": "right"},
		{"HOLDFAST_REDIS": "redis://:right@" + s.Addr() + "/0"},
		{"HOLDFAST_REDIS": "redis://op@" + s.Addr(), "HOLDFAST_REDIS_PASSWORD": "pw"},
		{"HOLDFAST_REDIS": s.Addr(), "HOLDFAST_REDIS_USER": "op", "HOLDFAST_REDIS_PASSWORD": "pw"},
	} {
		if code, _, errs := (call{env: env}).run(t, "ls"); code != exitOK || !strings.Contains(errs, "no keys") || !strings.Contains(errs, "-prefix") {
			t.Errorf("%v: %d %q", env, code, errs)
		}
	}
	for _, c := range []struct{ args, want string }{
		{"help", "holdfast COMMAND -h"},
		{"-h", "holdfast COMMAND -h"},
		{"doctor -help", "  1  there are problems"},
		{"version -h", "  0  done\n  2  bad"},
		{"ls -h", "HOLDFAST_REDIS_USER"},
		{"help ls", "in a URL %2C is a comma"},
	} {
		if code, out, errs := (call{}).run(t, strings.Fields(c.args)...); code != exitOK || !strings.Contains(out+errs, c.want) || strings.HasPrefix(c.want, "holdfast") && len(out) > 1500 {
			t.Errorf("%q: %d %q %q, want %s", c.args, code, out, errs, c.want)
		}
	}
}
