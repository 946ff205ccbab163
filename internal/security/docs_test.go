package security_test

import (
	"strings"
	"testing"
)

// The page, its compiled copy and the configuration of the TLS tests are the same.
func TestPublishedTLS(t *testing.T) {
	all := files(t, ".go", ".md")
	_, body, _ := strings.Cut(all["internal/security/tls_test.go"], "\nfunc secure(caFile, certFile, keyFile string) (*tls.Config, error) {\n")
	body, _, _ = strings.Cut(body, "\n}\n")
	want := strings.Join(strings.Fields(body), " ")
	for _, name := range []string{"docs/security.md", "docs/tls_security_test.go"} {
		if len(want) < 300 || !strings.Contains(strings.Join(strings.Fields(all[name]), " "), want) {
			t.Errorf("%s has another configuration", name)
		}
	}
}

// The pages name the same versions of Redis with the fixes.
func TestPublishedVersions(t *testing.T) {
	all := files(t, ".go", ".md")
	for _, name := range []string{"docs/security.md", "SECURITY.md"} {
		for _, word := range []string{"CVE-2025-49844", "CVE-2025-46817", "CVE-2025-46818", "CVE-2025-46819", "6.2.20", "7.2.11", "7.4.6", "8.0.4", "8.2.2"} {
			if !strings.Contains(all[name], word) {
				t.Errorf("%s does not name %s", name, word)
			}
		}
	}
}
