package docs_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// secure is the code of security.md. internal/security tests the same code on a server.
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

// secure returns an error if its files are missing or invalid.
func TestSecureNeedsItsFiles(t *testing.T) {
	other := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(other, []byte("not a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ca := range []string{"", other} {
		if c, err := secure(ca, other, other); c != nil || err == nil {
			t.Errorf("%q: %v", ca, err)
		}
	}
}
