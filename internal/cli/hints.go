package cli

import (
	"cmp"
	"errors"
	"slices"
	"strings"
)

// rightsPage lists the rights that a user needs.
const rightsPage = "https://github.com/holdfast-go/holdfast/blob/main/docs/operate.md#rights"

// hintedError is an error with advice for the user.
type hintedError struct {
	error
	say string
}

func (h hintedError) Unwrap() error { return h.error }

// hint is the advice for an error whose text contains part.
type hint struct{ part, say string }

// explain adds the first hint that applies to an error that has none.
func (t *target) explain(err error) error {
	if err == nil || errors.As(err, new(hintedError)) {
		return err
	}
	text := err.Error()
	if t.from == fromPostgres || t.from == fromEnvironment {
		for _, h := range postgresHints(t.from) {
			if strings.Contains(text, h.part) {
				return hintedError{err, h.say}
			}
		}
		return err
	}
	hints := tlsHints
	if strings.Contains(text, "all sentinels") { // no Sentinel has named a primary
		hints = slices.Concat(hints, sentinelHints)
	}
	for _, h := range slices.Concat(hints, t.redisHints()) {
		if strings.Contains(text, h.part) {
			return hintedError{err, h.say}
		}
	}
	return err
}

const (
	otherName  = "The server's certificate has another name: use the name that is in the certificate as the address. Nodes of a Cluster and Sentinels must announce such names."
	ownCert    = "Redis requires a client certificate: -cert FILE -key FILE."
	otherCert  = "Redis does not trust the certificate of -cert: an authority in Redis's tls-ca-cert-file must have signed it."
	noSentinel = "No Sentinel replies there: is -sentinel right, and are the Sentinels running?"
)

var tlsHints = []hint{
	{"first record does not look like a TLS handshake", "That port does not use TLS: use redis://, without -tls, -cert and -key."},
	{"certificate signed by unknown authority", "Name the authority's certificate: -tls FILE."},
	{"certificate required", ownCert},
	{"handshake failure", ownCert}, // the same error before TLS 1.3
	{"unknown certificate authority", otherCert},
	{"bad certificate", otherCert},
	{"cannot validate certificate", otherName},
	{"certificate is not valid for", otherName},
	{"certificate is valid for", otherName},
}

// If several Sentinels return errors, the first hint in this order applies.
var sentinelHints = []hint{
	{"redis: nil", "The Sentinels there do not know a master of that name: check -master."},
	{"unknown command", "That is no Sentinel: use -redis for the Redis itself, or name the Sentinels' port (26379 unless set otherwise)."},
	{"WRONGPASS", "The user or the password for the Sentinels is wrong: see HOLDFAST_SENTINEL_USER and HOLDFAST_SENTINEL_PASSWORD."},
	{"NOAUTH", "The Sentinels require a password: set HOLDFAST_SENTINEL_PASSWORD (and HOLDFAST_SENTINEL_USER)."},
	{"NOPERM", "The user for the Sentinels lacks a right: it needs +sentinel."},
	{"connection refused", noSentinel},
	{"no such host", noSentinel},
	{" timeout", noSentinel},
	{"deadline exceeded", noSentinel},
}

// redisHints returns hints that name the sources of the address and the login.
func (t *target) redisHints() []hint {
	at, refused := t.from, "No server listens there: is "+t.from+" right, and is Redis running? For keys in PostgreSQL set -postgres or HOLDFAST_POSTGRES."
	if t.sentinel != "" {
		at, refused = "-sentinel", "No server listens at the address of the master that the Sentinels return: is it running and reachable from here?"
	}
	noAnswer := "No reply in time: is " + at + " right? Does that port use TLS (rediss://, -tls), or not?"
	// In TLS 1.3 a client may write before the server rejects its certificate. The reset can then
	// hide the reason.
	hangsUp := "The server closes the connection: if Redis requires TLS, use rediss:// or -tls."
	switch {
	case t.cert != "":
		hangsUp = "The server closes the connection. Perhaps: " + otherCert
	case t.tls != "" || strings.HasPrefix(t.redis, "rediss://"):
		hangsUp = "The server closes the connection. Perhaps: " + ownCert
	}
	return []hint{
		{"WRONGPASS", "The user or the password is wrong: see " + cmp.Or(t.login, "HOLDFAST_REDIS_USER and HOLDFAST_REDIS_PASSWORD") + "."},
		{"NOAUTH", "Redis requires a password: set HOLDFAST_REDIS_PASSWORD (and HOLDFAST_REDIS_USER)."},
		{"NOPERM", "The user lacks a right; the rights are listed in " + rightsPage},
		{"ACL failure in script", "The user lacks a right; the rights are listed in " + rightsPage},
		{"The user executing the script can't", "The user lacks a right; the rights are listed in " + rightsPage}, // before Redis 8
		{"cluster support disabled", "That server is not part of a Cluster: leave -cluster out."},
		{"MOVED", "That server is part of a Cluster: pass -cluster."},
		{"connection refused", refused},
		{"no such host", "The name cannot be resolved: is " + at + " right?"},
		{" timeout", noAnswer}, // not "-timeout", which an error of ls contains
		{"deadline exceeded", noAnswer},
		{"EOF", hangsUp},
		{"connection reset", hangsUp},
		{"broken pipe", hangsUp},
	}
}

// postgresHints returns hints for errors of a connection to PostgreSQL. Those of a statement say
// themselves what to do.
func postgresHints(from string) []hint {
	login := "The user or the password is wrong: see " + from + ", PGPASSWORD and PGPASSFILE."
	refused := "No server listens there: is " + from + " right, and is PostgreSQL running?"
	return []hint{
		{"SQLSTATE 28", login},
		{"SQLSTATE 3D000", "The server has no such database: is " + from + " right?"},
		{"connection refused", refused},
		{"no such file or directory", refused}, // a socket
		{"no such host", "The name cannot be resolved: is " + from + " right?"},
		{" timeout", "No reply in time: is " + from + " right?"},
		{"deadline exceeded", "No reply in time: is " + from + " right?"},
	}
}
