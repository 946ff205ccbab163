package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
)

const defaultAddr = "localhost:6379"

// target selects a server and the keys on it.
type target struct {
	redis, sentinel, master, prefix string
	tls, cert, key                  string // files
	cluster, quorum                 bool
	postgres, schema                string

	from, login string // the sources of the address, and of user and password; for hints
}

// flags returns the flags that all commands with a server share.
func (sh *shell) flags(command, args string) (*flag.FlagSet, *target) {
	f, t := sh.flagSet(command, args), new(target)
	f.StringVar(&t.redis, "redis", "", "host:port, redis:// or rediss:// `address`; several with commas for -cluster and -quorum (default HOLDFAST_REDIS, else REDIS_ADDR, else "+defaultAddr+")")
	f.BoolVar(&t.cluster, "cluster", false, "use a Cluster, with all its primaries")
	f.BoolVar(&t.quorum, "quorum", false, "use the 3, 5 or 7 independent servers of lockcore.NewQuorum")
	f.StringVar(&t.sentinel, "sentinel", "", "`addresses` of Sentinels, with commas, instead of -redis")
	f.StringVar(&t.master, "master", "", "`name` of the master that the Sentinels watch")
	f.StringVar(&t.tls, "tls", "", "use TLS, and trust the certificates in this `file`")
	f.StringVar(&t.cert, "cert", "", "use TLS, with the client certificate in this `file` (needs -key)")
	f.StringVar(&t.key, "key", "", "`file` with the private key of -cert")
	f.StringVar(&t.prefix, "prefix", "", "Options.Prefix of the program (default \"holdfast\")")
	f.StringVar(&t.postgres, "postgres", "", "`DSN` of a database of PostgreSQL, instead of -redis (default HOLDFAST_POSTGRES)")
	f.StringVar(&t.schema, "schema", "", "with -postgres: Options.Schema of the program (default: the search path)")
	return f, t
}

// examples are arguments of the commands, for their help.
var examples = map[string]string{
	"doctor": "-redis localhost:6379", "ls": "-match 'account:*'", "show": "account:42", "why": "5ae50d18-2647-43dd-b67b-5c8e5ec5c9e6", "watch": "account:42",
	"serve": "-listen localhost:8321 -act", "revoke": "account:42", "clear": "-once charge/payment:7", "pause": "-for 10m -reason 'partner is down' partner:acme",
	"limit": "-n 2 -rate 5/1s -for 1h partner:acme", "wake": "account:42", "key": "-scope alice -path /charges 8e03978e-40d5-43dd-bc93-6894a57f9324", "version": "-json",
}

// flagSet returns the flags of a command that needs no Redis.
func (sh *shell) flagSet(command, args string) *flag.FlagSet {
	f := flag.NewFlagSet(command, flag.ContinueOnError)
	f.SetOutput(sh.err)
	f.Usage = func() {
		fmt.Fprintf(sh.err, "holdfast %s [flags]%s\n", command, args)
		if example := examples[command]; example != "" {
			fmt.Fprintf(sh.err, "for example: holdfast %s %s\n", command, example)
		}
		f.PrintDefaults()
		problem := problems[command]
		if problem != "" {
			problem = "  1  " + problem + "\n"
		}
		fmt.Fprintf(sh.err, ends, problem)
	}
	return f
}

func parse(f *flag.FlagSet, args []string, positional int) error {
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return flagError{err}
	}
	switch rest := f.Args(); {
	case len(rest) == positional:
		return nil
	case positional == 0 && f.Lookup("match") != nil:
		return fmt.Errorf("unexpected argument %q, want only flags: for keys use -match", rest[0])
	case positional == 0:
		return fmt.Errorf("unexpected argument %q, want only flags: for an address use -redis", rest[0])
	case len(rest) == 0:
		return fmt.Errorf("KEY is missing: holdfast %s [flags] KEY", f.Name())
	default:
		return fmt.Errorf("unexpected argument %q after KEY: flags come before KEY, and there is only one KEY", rest[1])
	}
}

// duration is a flag whose error names the expected form.
type duration time.Duration

func durationFlag(f *flag.FlagSet, name string, preset time.Duration, usage string) *time.Duration {
	f.Var((*duration)(&preset), name, usage)
	return &preset
}

func (d *duration) String() string { return time.Duration(*d).String() }

// Set accepts the syntax of time.ParseDuration.
func (d *duration) Set(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("want a duration like 5s")
	}
	*d = duration(v)
	return nil
}

// client returns a client, which the caller closes.
func (t *target) client(getenv func(string) string) (redis.UniversalClient, error) {
	if (t.sentinel == "") != (t.master == "") || t.sentinel != "" && (t.redis != "" || t.cluster) {
		return nil, errors.New("-sentinel and -master go together, without -redis and -cluster")
	}
	if err := noPassword(t.redis); err != nil {
		return nil, err
	}
	o, err := t.options(t.address(getenv))
	if err != nil {
		return nil, err
	}
	t.authenticate(o, getenv)
	switch {
	case t.sentinel != "":
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: t.master, SentinelAddrs: strings.Split(t.sentinel, ","), Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
			SentinelUsername: getenv("HOLDFAST_SENTINEL_USER"), SentinelPassword: getenv("HOLDFAST_SENTINEL_PASSWORD"),
			MaxRetries: o.MaxRetries, DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, ContextTimeoutEnabled: true, DialerRetries: 1,
		}), nil
	case t.cluster:
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: strings.Split(o.Addr, ","), Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
			DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, DialerRetries: 1,
		}), nil
	}
	return redis.NewClient(o), nil
}

// noPassword returns an error for a URL in an argument that has a password.
func noPassword(arg string) error {
	if u, err := url.Parse(arg); err == nil && u.User != nil {
		if _, secret := u.User.Password(); secret {
			return errors.New("other users of the machine can read a password in the arguments: set HOLDFAST_REDIS_PASSWORD, or set HOLDFAST_REDIS to the URL")
		}
	}
	return nil
}

// address returns the address of the Redis, and records its source.
func (t *target) address(getenv func(string) string) string {
	t.from = "-redis"
	if t.redis != "" {
		return t.redis
	}
	for _, name := range []string{"HOLDFAST_REDIS", "REDIS_ADDR"} {
		if addr := getenv(name); addr != "" {
			t.from = name
			return addr
		}
	}
	return defaultAddr
}

// authenticate sets user and password, and records their sources.
func (t *target) authenticate(o *redis.Options, getenv func(string) string) {
	var sources []string
	for _, c := range []struct {
		name  string
		field *string
	}{{"HOLDFAST_REDIS_USER", &o.Username}, {"HOLDFAST_REDIS_PASSWORD", &o.Password}} {
		if v := getenv(c.name); v != "" {
			*c.field = v
			sources = append(sources, c.name)
		} else if *c.field != "" {
			sources = append(sources, "the URL of "+t.from)
		}
	}
	t.login = strings.Join(slices.Compact(sources), " and ")
}

// options parses an address or a URL.
func (t *target) options(addr string) (o *redis.Options, err error) {
	o = &redis.Options{Addr: addr}
	if strings.Contains(addr, "://") {
		if o, err = redis.ParseURL(addr); err != nil {
			return nil, fmt.Errorf("the URL of %s cannot be read: want redis://HOST:PORT/DB, rediss:// or unix://", t.from) // the error of ParseURL may contain a password
		}
	} else if t.sentinel == "" { // with -sentinel, only a URL has an effect: user, password and TLS
		for one := range strings.SplitSeq(addr, ",") {
			if !strings.Contains(one, ":") {
				return nil, fmt.Errorf("%q has no port: want host:port", one)
			}
		}
		if strings.Contains(addr, ",") && !t.cluster {
			return nil, errors.New("several addresses need -cluster or -quorum")
		}
	}
	o.MaxRetries, o.DialTimeout, o.ReadTimeout, o.DialerRetries = -1, 3*time.Second, 3*time.Second, 1
	return o, t.secure(o)
}

// secure reads the files of -tls, -cert and -key.
func (t *target) secure(o *redis.Options) error {
	if (t.cert == "") != (t.key == "") {
		return errors.New("-cert and -key go together: a certificate and its private key")
	}
	if t.tls == "" && t.cert == "" {
		return nil
	}
	if o.TLSConfig == nil {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if t.tls != "" {
		pem, err := os.ReadFile(t.tls)
		if err != nil {
			return fmt.Errorf("-tls: %w", err)
		}
		o.TLSConfig.RootCAs = x509.NewCertPool()
		if !o.TLSConfig.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("-tls: no certificate in %s", t.tls)
		}
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return fmt.Errorf("-cert %s -key %s: %w", t.cert, t.key, err)
		}
		o.TLSConfig.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// The sources of a connection string.
const (
	fromPostgres    = "-postgres"
	fromEnvironment = "HOLDFAST_POSTGRES"
)

var errSchema = errors.New("-schema needs -postgres")

// dsn returns the connection string of the database of PostgreSQL, or "" if the target is a Redis.
func (sh *shell) dsn(t *target) string {
	if t.postgres == "" && t.redis == "" && t.sentinel == "" {
		return sh.getenv(fromEnvironment)
	}
	return t.postgres
}

// database opens the database of a target.
func (sh *shell) database(t *target, terms lockcore.Terms) (Database, error) {
	switch {
	case *t != target{postgres: t.postgres, schema: t.schema}:
		return Database{}, errors.New("-postgres (or HOLDFAST_POSTGRES) allows -schema, but no flag for Redis")
	case strings.Contains(strings.ReplaceAll(t.postgres, " ", ""), "password=") || noPassword(t.postgres) != nil:
		return Database{}, errors.New("other users of the machine can read a password in the arguments: set PGPASSWORD, or set HOLDFAST_POSTGRES to the DSN")
	case sh.postgres == nil:
		return Database{}, errors.New("this program has no driver for PostgreSQL: go install github.com/holdfast-go/holdfast/postgres/cmd/holdfast@latest")
	}
	if t.from = fromPostgres; t.postgres == "" {
		t.from = fromEnvironment
	}
	d, err := sh.postgres(sh.dsn(t), t.schema, terms)
	if err != nil {
		return d, fmt.Errorf("%s: %w", t.from, err)
	}
	return d, nil
}

// with calls do with a Locker on the target. The Locker holds nothing. An error has a hint if one
// applies.
func (sh *shell) with(t *target, do func(*lockcore.Locker) (int, error)) (code int, err error) {
	l, closeClients, err := sh.locker(t)
	defer closeClients()
	if err != nil {
		return exitFailed, t.explain(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Close(ctx)
	}()
	code, err = do(l)
	return code, t.explain(err)
}

// locker returns a Locker. The caller closes the clients after it, also after an error.
func (sh *shell) locker(t *target) (l *lockcore.Locker, closeClients func(), err error) {
	if sh.dsn(t) != "" {
		d, err := sh.database(t, lockcore.Terms{})
		if err != nil {
			return nil, func() {}, err
		}
		return d.Locks, d.Close, nil
	}
	if t.schema != "" {
		return nil, func() {}, errSchema
	}
	o := lockcore.Options{Prefix: t.prefix}
	if t.quorum {
		masters, closeClients, err := t.masters(sh.getenv)
		if err != nil {
			return nil, closeClients, err
		}
		l, err := lockcore.NewQuorum(masters, o)
		return l, closeClients, err
	}
	rdb, err := t.client(sh.getenv)
	if err != nil {
		return nil, func() {}, err
	}
	l, err = lockcore.New(rdb, o)
	return l, func() { _ = rdb.Close() }, err
}
