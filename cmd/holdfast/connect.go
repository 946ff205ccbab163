package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
)

const defaultAddr = "localhost:6379"

// target says which Redis, and which keys there.
type target struct {
	redis, sentinel, master, tls, prefix string
	cluster                              bool
}

// flags returns the flags of a command that all commands have.
func (sh *shell) flags(command, args string) (*flag.FlagSet, *target) {
	f, t := flag.NewFlagSet(command, flag.ContinueOnError), new(target)
	f.SetOutput(sh.err)
	f.Usage = func() {
		fmt.Fprintf(sh.err, "holdfast %s [flags]%s\n", command, args)
		f.PrintDefaults()
	}
	f.StringVar(&t.redis, "redis", "", "host:port, redis:// or rediss:// `address`; several with commas for a Cluster (default HOLDFAST_REDIS, else "+defaultAddr+")")
	f.BoolVar(&t.cluster, "cluster", false, "it is a Cluster: every primary is asked")
	f.StringVar(&t.sentinel, "sentinel", "", "`addresses` of Sentinels, with commas, instead of -redis")
	f.StringVar(&t.master, "master", "", "`name` of the master that the Sentinels watch")
	f.StringVar(&t.tls, "tls", "", "speak TLS, and trust the certificates in this `file`")
	f.StringVar(&t.prefix, "prefix", "", "Options.Prefix of the program (default \"holdfast\")")
	return f, t
}

func parse(f *flag.FlagSet, args []string, positional int) error {
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return flagError{err}
	}
	if f.NArg() != positional {
		return fmt.Errorf("%d arguments after the flags, want %d", f.NArg(), positional)
	}
	return nil
}

// client makes the client; the caller closes it.
func (t *target) client(getenv func(string) string) (redis.UniversalClient, error) {
	if (t.sentinel == "") != (t.master == "") || t.sentinel != "" && (t.redis != "" || t.cluster) {
		return nil, errors.New("-sentinel and -master go together, without -redis and -cluster")
	}
	if u, err := url.Parse(t.redis); err == nil && u.User != nil {
		if _, secret := u.User.Password(); secret {
			return nil, errors.New("a password among the arguments can be read by others: set HOLDFAST_REDIS_PASSWORD, or the whole URL as HOLDFAST_REDIS")
		}
	}
	o, err := t.options(cmp.Or(t.redis, getenv("HOLDFAST_REDIS"), defaultAddr))
	if err != nil {
		return nil, err
	}
	o.Username, o.Password = cmp.Or(getenv("HOLDFAST_REDIS_USER"), o.Username), cmp.Or(getenv("HOLDFAST_REDIS_PASSWORD"), o.Password)
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

// options reads an address or a URL.
func (t *target) options(addr string) (o *redis.Options, err error) {
	o = &redis.Options{Addr: addr}
	if strings.Contains(addr, "://") {
		if o, err = redis.ParseURL(addr); err != nil {
			return nil, errors.New("the URL of -redis or HOLDFAST_REDIS cannot be read: want redis://HOST:PORT/DB, rediss:// or unix://") // its error may quote a password
		}
	} else {
		for one := range strings.SplitSeq(addr, ",") {
			if !strings.Contains(one, ":") {
				return nil, fmt.Errorf("%q has no port: want host:port", one)
			}
		}
		if strings.Contains(addr, ",") && !t.cluster {
			return nil, errors.New("several addresses are for a Cluster: say -cluster")
		}
	}
	o.MaxRetries, o.DialTimeout, o.ReadTimeout, o.DialerRetries = -1, 3*time.Second, 3*time.Second, 1
	if t.tls == "" {
		return o, nil
	}
	pem, err := os.ReadFile(t.tls)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", t.tls)
	}
	if o.TLSConfig == nil {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	o.TLSConfig.RootCAs = pool
	return o, nil
}

// with calls do with a Locker on the target, which holds nothing.
func (sh *shell) with(t *target, do func(*lockcore.Locker) (int, error)) (code int, err error) {
	rdb, err := t.client(sh.getenv)
	if err != nil {
		return exitFailed, err
	}
	defer func() { _ = rdb.Close() }()
	l, err := lockcore.New(rdb, lockcore.Options{Prefix: t.prefix})
	if err != nil {
		return exitFailed, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Close(ctx)
	}()
	return do(l)
}
