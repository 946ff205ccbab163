package redis_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// oneCommand has the methods that send one command. prepare makes the state for a call, and returns
// the call.
var oneCommand = map[string]struct {
	script  string
	prepare func(t *testing.T, l *lockcore.Locker) func(context.Context) error
}{
	"Extend": {"renew", func(t *testing.T, l *lockcore.Locker) func(context.Context) error {
		t.Helper()
		le, err := l.AcquireFixed(t.Context(), "extended "+rand.Text(), lockcore.Terms{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = le.Release(context.Background()) })
		return func(ctx context.Context) error { return le.Extend(ctx, 2*time.Minute) }
	}},
	"Inspect": {"inspect", func(t *testing.T, l *lockcore.Locker) func(context.Context) error {
		t.Helper()
		return func(ctx context.Context) error {
			_, err := l.Inspect(ctx, event.KindExclusive, "k")
			return err
		}
	}},
	"Look": {"inspect", func(t *testing.T, l *lockcore.Locker) func(context.Context) error {
		t.Helper()
		done(t, l, "looked")
		return func(ctx context.Context) error {
			_, rec, err := inspectRecord(ctx, l, "looked")
			if err == nil && rec == nil {
				err = errors.New("no record")
			}
			return err
		}
	}},
	"Revoke": {"revoke", func(t *testing.T, l *lockcore.Locker) func(context.Context) error {
		t.Helper()
		return func(ctx context.Context) error { return l.Revoke(ctx, event.KindExclusive, "k") }
	}},
	"Clear": {"clear", func(t *testing.T, l *lockcore.Locker) func(context.Context) error {
		t.Helper()
		done(t, l, "cleared")
		return func(ctx context.Context) error { return l.Clear(ctx, event.KindOnce, "cleared") }
	}},
	"ClearSeen": {"clear", func(t *testing.T, l *lockcore.Locker) func(context.Context) error {
		t.Helper()
		done(t, l, "seen")
		seen, err := l.Inspect(t.Context(), event.KindOnce, "seen")
		if err != nil {
			t.Fatal(err)
		}
		return func(ctx context.Context) error { return l.ClearIfUnchanged(ctx, event.KindOnce, "seen", seen) }
	}},
	"ForceClear": {"force_clear", func(t *testing.T, l *lockcore.Locker) func(context.Context) error {
		t.Helper()
		key := rand.Text()
		le, err := l.Acquire(t.Context(), key, noWait)
		ok(t, err)
		t.Cleanup(func() { _ = le.Release(context.Background()) })
		seen, err := l.Inspect(t.Context(), event.KindExclusive, key)
		ok(t, err)
		return func(ctx context.Context) error {
			return l.ForceClearEvenAlive(ctx, event.KindExclusive, key, seen)
		}
	}},
}

// done completes a once key.
func done(t *testing.T, l *lockcore.Locker, key string) {
	t.Helper()
	le, _, err := l.Claim(t.Context(), key, lockcore.Claim{Terms: noWait})
	if le != nil {
		err = le.Complete(t.Context(), []byte("record"), time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The connection of a method that sends one command breaks. The command is sent again, also if the
// first one had its effect.
// Shows: R3
func TestRetryBrokenConnection(t *testing.T) {
	for name, op := range oneCommand {
		for fault, plant := range map[string]func(*faulty.Network, faulty.Match) *faulty.Fault{
			"request cut": (*faulty.Network).CutRequest, "reply cut": (*faulty.Network).CutReply,
		} {
			t.Run(name+"/"+fault, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					l, faults, _ := w.Locker(lockcore.Options{})
					call := op.prepare(t, l)
					_ = call(t.Context()) // this loads the script
					call = op.prepare(t, l)
					f := plant(faults, faulty.Script(op.script))
					if err := call(t.Context()); err != nil {
						t.Error(err)
					}
					select {
					case <-f.Struck():
					default:
						t.Error("inconclusive: the fault did not happen")
					}
				})
			})
		}
	}
}

// A repeat of Revoke does not revoke the next hold, and a repeat of Clear does not clear the next
// record.
// Shows: R3
func TestRetryOnce(t *testing.T) {
	t.Run("Revoke", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			operator, faults, _ := w.Locker(lockcore.Options{})
			l, _, _ := w.Locker(lockcore.Options{})
			_ = operator.Revoke(t.Context(), event.KindExclusive, "k")
			time.Sleep(time.Second)
			first := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
			time.Sleep(time.Minute)
			faults.Delay(20 * time.Millisecond)
			faults.CutReply(faulty.Script("revoke"))
			revoked := make(chan error)
			go func() { revoked <- operator.Revoke(t.Context(), event.KindExclusive, "k") }()
			<-first.Context().Done()
			_ = first.Release(t.Context())
			second := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
			if err := <-revoked; err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			if err := second.Release(t.Context()); err != nil {
				t.Errorf("release of the next hold: %v", err)
			}
		})
	})
	t.Run("Clear", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			operator, faults, _ := w.Locker(lockcore.Options{})
			l, _, _ := w.Locker(lockcore.Options{})
			_ = operator.Clear(t.Context(), event.KindOnce, "k")
			time.Sleep(time.Second)
			done(t, l, "k")
			faults.Delay(20 * time.Millisecond)
			f := faults.CutReply(faulty.Script("clear"))
			cleared := make(chan error)
			go func() { cleared <- operator.Clear(t.Context(), event.KindOnce, "k") }()
			<-f.Replied()
			done(t, l, "k")
			if err := <-cleared; err != nil {
				t.Error(err)
			}
			if h, err := l.Inspect(t.Context(), event.KindOnce, "k"); err != nil || h.State != lockcore.StateDone {
				t.Errorf("the key after the next completion: %+v, %v", h, err)
			}
		})
	})
}

// A server closes idle connections. No call after a pause fails, also over TLS, where go-redis does
// not detect that a pooled connection was closed.
// Shows: R3
func TestRetryIdleServer(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	files, roots := certificate(t)
	port := freePort(t)
	s := redistest.Real(t, "--timeout", "1", "--tls-port", port, "--tls-cert-file", files[0], "--tls-key-file", files[1], "--tls-ca-cert-file", files[0],
		"--tls-auth-clients", "no")
	for name, o := range map[string]*redis.Options{
		"plain": s.Options(), "TLS": {Addr: "127.0.0.1:" + port, TLSConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redis.NewClient(o)
			t.Cleanup(func() { _ = rdb.Close() }) // the Locker is closed before
			l := lockerFor(t, rdb, lockcore.Options{Prefix: name})
			ready := map[string]func(context.Context) error{}
			for name, op := range oneCommand {
				ready[name] = op.prepare(t, l)
			}
			for name, call := range ready {
				var wg sync.WaitGroup
				for range 8 { // opens connections, which the server will close
					wg.Go(func() {
						_, _ = l.Inspect(t.Context(), event.KindExclusive, "k")
						_ = l.Revoke(t.Context(), event.KindExclusive, "nobody has it")
					})
				}
				wg.Wait()
				time.Sleep(2500 * time.Millisecond)
				if err := call(t.Context()); err != nil {
					t.Errorf("%s after a pause: %v", name, err)
				}
			}
		})
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) //nolint:errcheck // it is the address of a TCP listener
}

// certificate makes a certificate for 127.0.0.1, and returns the files of the certificate and of
// its key.
func certificate(t *testing.T) (files [2]string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	for i, b := range []*pem.Block{{Type: "CERTIFICATE", Bytes: der}, {Type: "PRIVATE KEY", Bytes: private}} {
		files[i] = filepath.Join(t.TempDir(), strconv.Itoa(i))
		text := pem.EncodeToMemory(b)
		if i == 0 {
			roots.AppendCertsFromPEM(text)
		}
		if err := os.WriteFile(files[i], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files, roots
}
