package main

import (
	"context"
	"errors"
	"time"
)

const (
	delayGroup = "delay" // the name in -scenario of all scenarios with a delay
	pings      = 15
)

// behind returns a copy of s with the address of p, so that the connections of clients pass through
// p.
func (s *server) behind(p *proxy) *server {
	far := *s
	far.addr = p.addr()
	return &far
}

var errPing = errors.New("bench: no PONG")

// ping returns the median of several round trips to addr.
func ping(ctx context.Context, addr string) (time.Duration, error) {
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return 0, err
	}
	var took []float64
	b := make([]byte, 64)
	for range pings {
		start := time.Now()
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			return 0, err
		}
		n, err := conn.Read(b)
		if err != nil {
			return 0, err
		}
		if string(b[:n]) != "+PONG\r\n" {
			return 0, errPing
		}
		took = append(took, float64(time.Since(start)))
	}
	return time.Duration(middle(took)), nil
}
