// Package idempotency has the records of guard.Once, their codecs, and the digests for keys and
// fingerprints. An operator reads and clears a once key with it.
//
// This program prints the record of a key:
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//
//		"github.com/holdfast-go/holdfast/guard"
//		"github.com/holdfast-go/holdfast/idempotency"
//		"github.com/holdfast-go/holdfast/lockcore"
//	)
//
//	func main() {
//		ctx := context.Background()
//		locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // several processes: lockcore.New
//		if err != nil {
//			panic(err)
//		}
//		defer locks.Close(ctx)
//		charge := func(context.Context) (string, error) { return "receipt 17", nil }
//		if _, err := guard.OnceValue(ctx, locks, "charge:7", guard.OnceOptions{}, charge); err != nil {
//			panic(err)
//		}
//		status, err := idempotency.Lookup(ctx, locks, "charge:7")
//		fmt.Println(status.State, status.Attempt, string(status.Content.Data), err)
//	}
//
// [Lookup] returns the state of a key and the [Content] of its record. [Clear] forgets the record,
// or the abandoned run, so that the key runs again. Only these two functions send commands to
// Redis, because package lockcore stores a record as opaque bytes.
//
// [Fingerprint] makes the OnceOptions.Fingerprint of a payload. [Digest] makes a key from parts
// that must not be stored unchanged.
//
// # Guarantees
//
//   - The format of a record has a version. This release reads the versions 1 and 2.
//   - [Decode] accepts only what [Content.Encode] returns. An extra byte, a wrong length or an
//     unknown version is an error.
//
// # What you must do
//
//   - Keep a codec compatible with the records that it has written, because they outlive a deploy.
//   - Do not change the secret of Fingerprint or Digest while records that depend on it are kept.
//
// # Testing
//
// Use your own [Codec] in a test with guard.OnceValue and locktest.New: the first result that does
// not come back from the codec unchanged is an error.
package idempotency
