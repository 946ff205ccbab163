package main

import (
	"cmp"
	"slices"
	"strings"
)

// rightsPage is where the rights of a user are listed.
const rightsPage = "https://github.com/holdfast-go/holdfast/blob/main/docs/doctor.md#rights"

// hintedError is an error, and what is likely to help.
type hintedError struct {
	error
	say string
}

func (h hintedError) Unwrap() error { return h.error }

// hint is what to say to an error with that part.
type hint struct{ part, say string }

// explain adds what is likely to help, if something is.
func (t *target) explain(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	hints := tlsHints
	if strings.Contains(text, "all sentinels") { // none of them has named a master
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
	otherName  = "The certificate there is of another name: use the name that is in the certificate as the address. Nodes of a Cluster and Sentinels must announce such names."
	ownCert    = "Redis wants a certificate of yours: -cert FILE -key FILE."
	otherCert  = "Redis does not trust the certificate of -cert: it must be signed by who is in Redis's tls-ca-cert-file."
	noSentinel = "Nobody listens there as a Sentinel: is -sentinel right, and are the Sentinels up?"
)

var tlsHints = []hint{
	{"first record does not look like a TLS handshake", "That port does not speak TLS: use redis://, and no -tls, -cert and -key."},
	{"certificate signed by unknown authority", "Name the authority's certificate: -tls FILE."},
	{"certificate required", ownCert},
	{"handshake failure", ownCert}, // the same, before TLS 1.3
	{"unknown certificate authority", otherCert},
	{"bad certificate", otherCert},
	{"cannot validate certificate", otherName},
	{"certificate is not valid for", otherName},
	{"certificate is valid for", otherName},
}

// Of several Sentinels the one that has most to say counts.
var sentinelHints = []hint{
	{"redis: nil", "The Sentinels there do not know a master of that name: check -master."},
	{"unknown command", "That is no Sentinel: use -redis for the Redis itself, or name the Sentinels' port (26379 unless set otherwise)."},
	{"WRONGPASS", "The user or the password for the Sentinels is wrong: see HOLDFAST_SENTINEL_USER and HOLDFAST_SENTINEL_PASSWORD."},
	{"NOAUTH", "The Sentinels want a password: set HOLDFAST_SENTINEL_PASSWORD (and HOLDFAST_SENTINEL_USER)."},
	{"NOPERM", "The Sentinels' user may not ask them: it needs +sentinel."},
	{"connection refused", noSentinel},
	{"no such host", noSentinel},
	{" timeout", noSentinel},
	{"deadline exceeded", noSentinel},
}

// redisHints name what the caller has said.
func (t *target) redisHints() []hint {
	at, refused := t.from, "Nothing listens there: is "+t.from+" right, and is Redis up?"
	if t.sentinel != "" {
		at, refused = "-sentinel", "Nothing listens where the Sentinels say that the master is: is it up, and can it be reached from here?"
	}
	noAnswer := "Nothing answers there in time: is " + at + " right? And does that port speak TLS (rediss://, -tls), or not?"
	// In TLS 1.3 a client may write before the server rejects its certificate. The reset can then hide the reason.
	hangsUp := "It hangs up: where Redis wants TLS, use rediss:// or -tls."
	switch {
	case t.cert != "":
		hangsUp = "It hangs up. Perhaps " + otherCert
	case t.tls != "" || strings.HasPrefix(t.redis, "rediss://"):
		hangsUp = "It hangs up. Perhaps " + ownCert
	}
	return []hint{
		{"WRONGPASS", "The user or the password is wrong: see " + cmp.Or(t.login, "HOLDFAST_REDIS_USER and HOLDFAST_REDIS_PASSWORD") + "."},
		{"NOAUTH", "A password is needed: set HOLDFAST_REDIS_PASSWORD (and HOLDFAST_REDIS_USER)."},
		{"NOPERM", "This user may not do that; the rights are listed in " + rightsPage},
		{"ACL failure in script", "This user may not do that; the rights are listed in " + rightsPage},
		{"The user executing the script can't", "This user may not do that; the rights are listed in " + rightsPage}, // before Redis 8
		{"cluster support disabled", "That server is not part of a Cluster: leave -cluster out."},
		{"MOVED", "That server is part of a Cluster: say -cluster."},
		{"connection refused", refused},
		{"no such host", "That name is not known: is " + at + " right?"},
		{" timeout", noAnswer}, // not -timeout, which ls says
		{"deadline exceeded", noAnswer},
		{"EOF", hangsUp},
		{"connection reset", hangsUp},
		{"broken pipe", hangsUp},
	}
}
