package locktest

import "github.com/holdfast-go/holdfast/idempotency"

// CheckCodec is what Codec reports.
func CheckCodec[T any](c idempotency.Codec, values ...T) []error { return checkCodec(c, values) }

// Scribble changes what p points to.
func Scribble(p any) { scribble(p) }
