package security_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// authority signs certificates for one test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	a.key = key
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &key.PublicKey, key)
	check(t, err)
	a.cert, err = x509.ParseCertificate(der)
	check(t, err)
	a.file = a.write(name+".crt", "CERTIFICATE", der)
	return a
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	file := filepath.Join(a.dir, name)
	check(a.t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return file
}

// issue signs a certificate of a server or a client for 127.0.0.1.
func (a *authority) issue(name string) (cert, key string) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(a.t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, &private.PublicKey, a.key)
	check(a.t, err)
	bytes, err := x509.MarshalPKCS8PrivateKey(private)
	check(a.t, err)
	return a.write(name+".crt", "CERTIFICATE", der), a.write(name+".key", "PRIVATE KEY", bytes)
}

// tlsServer starts a server that accepts only TLS clients with a certificate of ca. It returns the
// server and its TLS address.
func tlsServer(t *testing.T, ca *authority, args ...string) (*redistest.Server, string) {
	t.Helper()
	cert, key := ca.issue("server")
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	port := l.Addr().(*net.TCPAddr).Port //nolint:errcheck // of a TCP listener
	check(t, l.Close())
	s := redistest.Real(t, append([]string{
		"--tls-port", strconv.Itoa(port), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.file, "--tls-auth-clients", "yes",
	}, args...)...)
	return s, net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// secure returns the configuration that docs/security.md shows.
func secure(caFile, certFile, keyFile string) (*tls.Config, error) {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("no certificate in " + caFile)
	}
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

func secureBy(t *testing.T, server, client *authority) *tls.Config {
	t.Helper()
	cert, key := client.issue("client")
	config, err := secure(server.file, cert, key)
	check(t, err)
	return config
}

// All connections of a Locker, for calls, releases, renewals and its subscription, use TLS with the
// client's certificate and the user of the credentials.
func TestTLS(t *testing.T) {
	testlevel.Full(t)
	ca := newAuthority(t, "ca")
	s, addr := tlsServer(t, ca)
	setUser(t, s, leastRights+" +scan")
	check(t, s.Client(t).Do(t.Context(), "ACL", "SETUSER", "default", "off").Err())
	config := secureBy(t, ca, ca)
	for name, credentials := range map[string]func(*redis.Options){
		"password": asJob,
		"provider": func(o *redis.Options) { o.CredentialsProvider = func() (string, string) { return "job", "pw" } },
		"provider with ctx": func(o *redis.Options) {
			o.CredentialsProviderContext = func(context.Context) (string, string, error) { return "job", "pw", nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := &redis.Options{Addr: addr, TLSConfig: config}
			credentials(o)
			rdb := redis.NewClient(o)
			defer func() { _ = rdb.Close() }()
			check(t, life(t, rdb, time.Second))
			if rdb.PoolStats().TotalConns != 0 {
				t.Error("inconclusive: the user's own pool was used")
			}
		})
	}
	s.Stop() // the default user is off, so the end of the test cannot read the ACL log
}

// The clients that a Locker makes for a Cluster use TLS too, with the user's credentials.
func TestTLSCluster(t *testing.T) {
	testlevel.Full(t)
	ca := newAuthority(t, "ca")
	s, addr := tlsServer(t, ca, "--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-announce-ip", "127.0.0.1")
	formCluster(t, s)
	setUser(t, s, clusterRights)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, TLSConfig: secureBy(t, ca, ca), Username: "job", Password: "pw"})
	defer func() { _ = rdb.Close() }()
	err := life(t, rdb, time.Second)
	if denied := denials(t, s); err != nil || len(denied) > 0 {
		t.Errorf("denied: %q, %v", denied, err)
	}
}

// A call fails in bounded time, with an error that names the cause. The causes are a server with a
// certificate of another authority, a client with an unknown certificate, wrong credentials, and a
// client without TLS. Nothing runs.
func TestTLSRefused(t *testing.T) {
	testlevel.Full(t)
	ca, stranger := newAuthority(t, "ca"), newAuthority(t, "stranger")
	s, addr := tlsServer(t, ca)
	setUser(t, s, leastRights)
	control := redistest.NewControl(t)
	for name, c := range map[string]struct {
		config *tls.Config
		edit   func(*redis.Options)
		says   string
	}{
		"server unknown": {secureBy(t, stranger, ca), asJob, "certificate signed by unknown authority"},
		"client unknown": {secureBy(t, ca, stranger), asJob, "unknown certificate authority"},
		"no certificate": {&tls.Config{RootCAs: secureBy(t, ca, ca).RootCAs}, asJob, "certificate required"},
		"wrong name":     {func() *tls.Config { c := secureBy(t, ca, ca); c.ServerName = "redis.example"; return c }(), asJob, "redis.example"},
		"wrong password": {secureBy(t, ca, ca), func(o *redis.Options) { o.Username, o.Password = "job", "other" }, "WRONGPASS"},
		"no TLS":         {nil, asJob, ""}, // the server closes the connection
	} {
		t.Run(name, func(t *testing.T) {
			o := &redis.Options{Addr: addr, TLSConfig: c.config, MaxRetries: -1}
			c.edit(o)
			rdb := redis.NewClient(o)
			defer func() { _ = rdb.Close() }()
			l := newLocker(t, rdb, lockcore.Options{})
			for try := 1; ; try++ {
				start := time.Now()
				_, err := l.Acquire(t.Context(), "k", noWait)
				if d := time.Since(start); d > 10*time.Second+control.Late(start) {
					t.Errorf("after %v", d)
				}
				if errors.Is(err, lockcore.ErrUnavailable) && strings.Contains(err.Error(), c.says) {
					return
				}
				if !errors.Is(err, lockcore.ErrUnavailable) || !alertLost(err) || try == 20 {
					t.Fatalf("%v, want ErrUnavailable with %q", err, c.says)
				}
			}
		})
	}
}

// alertLost reports whether the alert of the server may have been lost. With TLS 1.3 the server
// refuses a client after the client's handshake is over. If the client has sent a command by then,
// the kernel answers it with a reset, which can overtake the alert.
func alertLost(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF)
}
