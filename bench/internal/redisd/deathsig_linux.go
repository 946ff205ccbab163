package redisd

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill cmd when the thread that starts it ends, also if this process
// is killed.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
