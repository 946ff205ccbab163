package docs_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// secure is what security.md shows; internal/security has the same, on a server.
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

// Without its files, or with others, there is no configuration.
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
