// Package testhook lets package locktest reach inside lockcore.
package testhook

import "context"

// Lose ends every lease that ctx carries as lost. Package lockcore sets it.
var Lose func(ctx context.Context)
