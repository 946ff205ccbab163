//go:build !linux

package redisd

import "os/exec"

// dieWithParent does nothing where the kernel cannot do it: a server then stays if this process is killed.
func dieWithParent(*exec.Cmd) {}
