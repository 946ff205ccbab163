package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// version is major, minor, patch.
type version [3]int

// The first releases of each branch with the fixes of CVE-2025-49844, -46817, -46818 and -46819.
// Later branches have the fixes from their start.
var (
	luaFixedRedis  = []version{{6, 2, 20}, {7, 2, 11}, {7, 4, 6}, {8, 0, 4}, {8, 2, 2}}
	luaFixedValkey = []version{{7, 2, 11}, {8, 0, 6}, {8, 1, 4}}
	oldestRedis    = version{6, 2, 0}
)

// product returns name and version of the server. Valkey reports a version of Redis besides its
// own.
func (n *node) product() (name, text string) {
	if v := n.info["valkey_version"]; v != "" || n.info["server_name"] == "valkey" {
		return "Valkey", v
	}
	return "Redis", n.info["redis_version"]
}

// mode returns standalone, sentinel or cluster. Valkey has its own name for that field too.
func (n *node) mode() string { return cmp.Or(n.info["redis_mode"], n.info["server_mode"]) }

func (n *node) checkVersion() {
	name, text := n.product()
	v, ok := parseVersion(text)
	if !ok {
		return // INFO was refused, which codeNotSeen reports; or it is another product, for which the trial decides
	}
	fixed := luaFixedRedis
	if name == "Valkey" {
		fixed = luaFixedValkey
	} else if slices.Compare(v[:], oldestRedis[:]) < 0 {
		n.say(codeVersion, SeverityProblem, "Redis "+text,
			"The scripts are not tested on it; it may lack commands that they need.", "Update to Redis 6.2 or later, or Valkey.")
	}
	if luaFixed(v, fixed) {
		return
	}
	n.say(codeLua, SeverityWarning, fmt.Sprintf("%s %s, by its number before the fixes of CVE-2025-49844", name, text),
		"On a server without the fixes, a user with the right to EVAL may be able to run code on it. The number alone does not prove that: distributions (Debian: 7.0.15-1~deb12u6) and hosting providers may add the fixes without a new number.",
		"Compare the package's changelog, or update to at least "+listVersions(fixed)+". Give EVAL only to users who need it.")
}

// luaFixed reports whether v has the fixes. It does if v is not older than the entry of its branch
// in fixed, or if its branch is later than all of fixed.
func luaFixed(v version, fixed []version) bool {
	for _, f := range fixed {
		if v[0] == f[0] && v[1] == f[1] {
			return v[2] >= f[2]
		}
	}
	last := fixed[len(fixed)-1]
	return slices.Compare(v[:2], last[:2]) > 0
}

func parseVersion(text string) (v version, ok bool) {
	parts := strings.SplitN(text, ".", 3)
	if len(parts) != 3 {
		return v, false
	}
	for i, p := range parts {
		var err error
		if v[i], err = strconv.Atoi(p); err != nil {
			return v, false
		}
	}
	return v, true
}

func listVersions(versions []version) string {
	texts := make([]string, 0, len(versions))
	for _, v := range versions {
		texts = append(texts, fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]))
	}
	return strings.Join(texts, ", ")
}
