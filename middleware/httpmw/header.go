package httpmw

import (
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// usualHeaders are the headers that most responses have. Decoded records share these strings as
// names.
var usualHeaders = []string{
	"Allow", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length",
	"Content-Location", "Content-Range", "Content-Type", "Etag", "Expires", "Last-Modified", "Link", "Location", "Retry-After", "Vary",
	"X-Content-Type-Options",
}

// bodyHeaders are always recorded, because they define the meaning of the body.
var bodyHeaders = []string{"Content-Encoding", "Content-Length", "Content-Type"}

// refusedHeaders are never recorded, whatever the options are. They belong to one client, one
// connection or one moment.
var refusedHeaders = []string{
	"Authentication-Info", "Authorization", "Connection", "Cookie", "Date", "Idempotent-Replayed",
	"Keep-Alive", "Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization", "Proxy-Connection",
	"Set-Cookie", //planted:cookie-refused
	"Set-Cookie2", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Www-Authenticate",
}

// omittedHeaders are recorded only if OnlyHeaders names them. They belong to one request, one
// caller or one moment. The documentation of IdempotentOptions.OmitHeaders lists them and
// refusedHeaders. A name that ends in a hyphen is a prefix of names.
var omittedHeaders = []string{
	"Age", "Clear-Site-Data", "Server-Timing",
	"X-Access-Token", "X-Api-Key", "X-Auth-Token", "X-Csrf-Token", "X-Refresh-Token", "X-Xsrf-Token",
	"B3", "Baggage", "Correlation-Id", "Request-Id", "Traceparent", "Traceresponse", "Tracestate", "Trace-Id", "Uber-Trace-Id",
	"X-Amz-Request-Id", "X-Amzn-Requestid", "X-Amzn-Trace-Id", "X-B3-", "X-Cloud-Trace-Context", "X-Correlation-Id", "X-Datadog-",
	"X-Request-Id", "X-Trace-Id",
	"Access-Control-", "Timing-Allow-Origin",
	"Ratelimit", "Ratelimit-", "X-Rate-Limit-", "X-Ratelimit-",
}

// omitted reports whether name, in canonical form, is on the list of omittedHeaders.
func omitted(name string) bool {
	return slices.ContainsFunc(omittedHeaders, func(o string) bool {
		return name == o || strings.HasSuffix(o, "-") && strings.HasPrefix(name, o)
	})
}

func neverKept(name string) bool { return slices.Contains(refusedHeaders, name) }

// neverTrailer reports whether clients reject a response that announces name as a trailer, because
// the header frames the message.
func neverTrailer(name string) bool {
	return name == "Content-Length" || name == "Transfer-Encoding" || name == "Trailer"
}

// records reports whether a header of this canonical name may be recorded.
func (o IdempotentOptions) records(name string) bool {
	switch {
	case neverKept(name), !isToken(name):
		return false
	case slices.Contains(bodyHeaders, name):
		return true
	case len(o.OnlyHeaders) > 0:
		return slices.Contains(o.OnlyHeaders, name)
	}
	return !omitted(name) && !slices.Contains(o.OmitHeaders, name)
}

// kept returns the headers of sent that are recorded: those that the handler has set, changed or
// deleted. before has the headers from before the handler. The code in front of Idempotent has set
// them, and sets them again for a replay. A deleted header is recorded without a value. So net/http
// does not detect a Content-Type for a replay if the handler has deleted it.
func (o IdempotentOptions) kept(sent, before http.Header) http.Header {
	sent, before = canonical(sent), canonical(before)
	hop := connectionOptions(sent)
	k := http.Header{}
	for name, values := range sent {
		if old, found := before[name]; found && slices.Equal(values, old) { //planted:header-from-in-front
			continue
		}
		if o.records(name) && !slices.Contains(hop, name) {
			k[name] = values
		}
	}
	for name := range before {
		if _, found := sent[name]; !found && o.records(name) && !slices.Contains(hop, name) {
			k[name] = []string{}
		}
	}
	return k
}

// canonical returns h with canonical names, and with the values that net/http would write.
func canonical(h http.Header) http.Header {
	c := make(http.Header, len(h))
	for _, written := range slices.Sorted(maps.Keys(h)) { // a fixed order for names that are equal in canonical form
		name := http.CanonicalHeaderKey(written)
		if c[name] == nil {
			c[name] = []string{}
		}
		for _, v := range h[written] {
			c[name] = append(c[name], textproto.TrimString(oneLine.Replace(v)))
		}
	}
	return c
}

// connectionOptions returns the names that the header Connection lists. Those headers are for one
// connection only.
func connectionOptions(h http.Header) []string {
	var names []string
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			names = append(names, http.CanonicalHeaderKey(textproto.TrimString(name)))
		}
	}
	return names
}

// oneLine replaces line ends as net/http does when it writes a header. So no record contains a
// value that could split a response.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ", "\x00", " ")

// replace makes dst equal to src.
func replace(dst, src http.Header) {
	clear(dst)
	for name, values := range src {
		dst[name] = slices.Clone(values)
	}
}

// isToken reports whether s is a token of RFC 9110, section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// isMethod reports whether s can be a method that routers know.
func isMethod(s string) bool { return isToken(s) && s == strings.ToUpper(s) }
