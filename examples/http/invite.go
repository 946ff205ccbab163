package main

import (
	"crypto/rand"
	"fmt"
	"io"
)

// invite prints requests that are ready to paste.
func invite(w io.Writer, url string) {
	const (
		alice = " -H 'Authorization: Bearer alice-token'"
		tea   = ` -d '{"item":"tea","quantity":2}'`
		milk  = ` -d '{"item":"milk","quantity":1}'`
	)
	header := func(key string) string { return " -H 'Idempotency-Key: " + key + "'" }
	key := rand.Text()[:8]
	mine := header(key)
	call := "curl -i " + url + "/orders"
	fmt.Fprintf(w, "listening on %s, with the keys at %s/locks/\n", url, url)
	for _, c := range []struct{ why, line string }{
		{"the first call: 201", call + alice + mine + tea},
		{"the same again: 201, the same order, Idempotent-Replayed: true", call + alice + mine + tea},
		{"another body under the same key: 422", call + alice + mine + milk},
		{"another tenant with the same key: 201, another order", call + " -H 'Authorization: Bearer bob-token'" + mine + tea},
		{"no key: 400", call + alice + tea},
		{"no token: 401", call + mine + tea},
	} {
		fmt.Fprintf(w, "\n# %s\n%s\n", c.why, c.line)
	}
	fmt.Fprintf(w, "\n# the key of the first call\n%s/locks/find?scope=alice&method=POST&path=/orders&idempotency-key=%s\n", url, key)
	both := call + alice + header(rand.Text()[:8]) + tea
	fmt.Fprintf(w, "\n# two at once: one runs, the other waits for its response\n%s & %s & wait\n", both, both)
}
