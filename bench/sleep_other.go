//go:build !linux

package main

import "time"

// setTimerSlack does nothing where threads have no timer slack to change.
func setTimerSlack() {}

func sleepPrecisely(t time.Time) { time.Sleep(time.Until(t)) }
