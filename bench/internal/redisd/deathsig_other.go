//go:build !linux

package redisd

import "os/exec"

// dieWithParent does nothing, because this kernel cannot do it: a server remains if this process is
// killed.
func dieWithParent(*exec.Cmd) {}
