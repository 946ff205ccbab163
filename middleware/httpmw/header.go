package httpmw

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// keptHeaders are recorded and replayed: those that describe the answer itself.
var keptHeaders = []string{
	"Allow", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location",
	"Content-Range", "Content-Type", "Etag", "Expires", "Last-Modified", "Link", "Location", "Retry-After", "Vary",
	"X-Content-Type-Options",
}

// refusedHeaders are never recorded, whatever the options say: they belong to one client, one connection or one moment.
var refusedHeaders = []string{
	"Authentication-Info", "Authorization", "Connection", "Content-Length", "Cookie", "Date", "Idempotent-Replayed",
	"Keep-Alive", "Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization", "Proxy-Connection",
	"Set-Cookie", //planted:cookie-refused
	"Set-Cookie2", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Www-Authenticate",
}

func neverKept(name string) bool { return slices.Contains(refusedHeaders, name) }

// neverTrailer are names that frame the answer: announced as a trailer they make clients refuse all of it.
func neverTrailer(name string) bool {
	return name == "Content-Length" || name == "Transfer-Encoding" || name == "Trailer"
}

// kept returns what of h is recorded.
func (o Options) kept(h http.Header) http.Header {
	k := http.Header{}
	for written, values := range h {
		name := http.CanonicalHeaderKey(written)
		if !slices.Contains(o.Headers, name) {
			continue
		}
		if k[name] == nil {
			k[name] = []string{} // without a value it still says: do not guess the Content-Type
		}
		for _, v := range values {
			k[name] = append(k[name], textproto.TrimString(oneLine.Replace(v)))
		}
	}
	return k
}

// oneLine does what net/http does when it writes a header, so that nothing is recorded that could split an answer.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ", "\x00", " ")

// replace makes dst equal to src.
func replace(dst, src http.Header) {
	clear(dst)
	for name, values := range src {
		dst[name] = slices.Clone(values)
	}
}

// isToken says whether s is a token of RFC 9110, section 5.6.2.
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

// isMethod says whether s can be a method that routers know.
func isMethod(s string) bool { return isToken(s) && s == strings.ToUpper(s) }
