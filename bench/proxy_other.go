//go:build !linux

package main

import (
	"errors"
	"fmt"
	"time"
)

// proxy exists only on Linux. On other systems a thread cannot wait for sockets and for a time in
// microseconds together.
type proxy struct{}

func startProxy(string, time.Duration) (*proxy, error) {
	return nil, fmt.Errorf("bench: the scenarios with a delay need Linux: %w", errors.ErrUnsupported)
}

func (*proxy) addr() string { return "" }
func (*proxy) close()       {}
