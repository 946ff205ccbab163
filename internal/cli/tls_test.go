package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// authority signs certificates for one test.
type authority struct {
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
	dir, file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	a := &authority{key: key, dir: t.TempDir(), cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &key.PublicKey, key)
	ok(t, err)
	a.cert, err = x509.ParseCertificate(der)
	ok(t, err)
	a.file = a.write(t, "ca.crt", "CERTIFICATE", der)
	return a
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) string {
	t.Helper()
	file := filepath.Join(a.dir, name)
	ok(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return file
}

// issue signs a certificate for 127.0.0.1, which a server or a client can use.
func (a *authority) issue(t *testing.T, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, &private.PublicKey, a.key)
	ok(t, err)
	bytes, err := x509.MarshalPKCS8PrivateKey(private)
	ok(t, err)
	return a.write(t, name+".crt", "CERTIFICATE", der), a.write(t, name+".key", "PRIVATE KEY", bytes)
}

// tlsServer starts a server that accepts TLS only, and only from a client with a certificate of ca,
// as Redis does by default. It returns the port.
func tlsServer(t *testing.T, ca *authority) string {
	t.Helper()
	cert, key := ca.issue(t, "server")
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	ok(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	ok(t, err)
	ok(t, l.Close())
	redistest.Real(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.file)
	return port
}

// With -tls, -cert and -key the command reaches a server that requires a client certificate, by
// address or by URL. If one of them is missing or wrong, the error names it.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	if _, err := x509.SystemCertPool(); err != nil { // load the pool now, because on a busy machine that takes longer than a command may
		t.Fatal(err)
	}
	ca, stranger := newAuthority(t), newAuthority(t)
	port := tlsServer(t, ca)
	addr := "127.0.0.1:" + port
	cert, key := ca.issue(t, "client")
	otherCert, otherKey := stranger.issue(t, "client")
	trusted := " -tls " + ca.file
	own := " -cert " + cert + " -key " + key
	for _, args := range []string{
		"ls -redis " + addr + trusted + own, "ls -redis rediss://" + addr + trusted + own, "doctor -lease 10m -redis " + addr + trusted + own,
	} {
		if code, out, errs := (call{}).run(t, strings.Fields(args)...); code != exitOK {
			t.Errorf("%s: %d %q %s", args, code, errs, out)
		}
	}
	for _, c := range []struct{ args, want string }{
		{"-redis " + addr + trusted, "-cert FILE -key FILE"},
		{"-redis " + addr + own, "-tls FILE"},
		{"-redis " + addr + trusted + " -cert " + otherCert + " -key " + otherKey, "does not trust the certificate of -cert"},
		{"-redis localhost:" + port + trusted + own, "the name that is in the certificate"},
		{"-redis " + addr + trusted + " -cert " + cert, "-cert and -key go together"},
		{"-redis " + addr + trusted + " -key " + key, "-cert and -key go together"},
		{"-redis " + addr + trusted + " -cert " + cert + " -key " + otherKey, "does not match"},
		{"-redis " + addr + trusted + " -cert cli.go -key " + key, "-cert cli.go"},
		{"-redis " + addr + trusted + " -cert " + cert + " -key /nothing/there", "/nothing/there: no such file"},
	} {
		for _, command := range []string{"ls", "doctor"} {
			if code, _, errs := (call{}).run(t, append([]string{command}, strings.Fields(c.args)...)...); code != exitFailed || !strings.Contains(errs, c.want) {
				t.Errorf("%s %s: %d, want %q in %q", command, c.args, code, c.want, errs)
			}
		}
	}
}
