package main

import (
	"syscall"
	"time"
)

const prSetTimerSlack = 29 // of linux/prctl.h

// setTimerSlack lets the thread wake on time rather than up to 50 µs later, the default.
func setTimerSlack() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerSlack, 1, 0) // an error leaves the default
}

// sleepPrecisely sleeps until t. time.Sleep in a process that is idle else rounds up to a millisecond.
func sleepPrecisely(t time.Time) {
	for d := time.Until(t); d > 0; d = time.Until(t) {
		ts := syscall.NsecToTimespec(int64(d))
		_ = syscall.Nanosleep(&ts, nil) // a signal ends it early
	}
}
