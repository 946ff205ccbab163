package wire

// Exported for tests.
var (
	Escape     = escape
	Unescape   = unescape
	EncodeWake = encodeWake
)
