package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/holdfast-go/holdfast/lockcore"
)

const cellSize = 64 // a cache line, so that two keys do not slow each other down

// witness detects when more sections than allowed are inside a key. It has one cell per key, in
// memory that all processes map.
type witness struct {
	mem        []byte
	violations atomic.Int64
}

// newWitnessFile creates a file with the cells of n keys. All processes map it.
func newWitnessFile(n int) (path string, err error) {
	f, err := os.CreateTemp("", "holdfast-bench-*")
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := f.Truncate(int64(n) * cellSize); err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

func openWitness(path string) (*witness, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("bench: mmap: %w", err)
	}
	return &witness{mem: mem}, nil
}

func (w *witness) cell(key int) *int64 {
	return (*int64)(unsafe.Pointer(&w.mem[key*cellSize]))
}

// exclusiveUnit is what an exclusive section adds to the cell of its key; a share adds 1.
const exclusiveUnit = 1 << 32

// enter records that a section of key begins. At most limit sections may be inside together, and
// with limit 0 only one. If there are more, enter counts a violation and returns false. Call leave
// only if enter returned true.
func (w *witness) enter(key, limit int) (fits bool) {
	cell := w.cell(key)
	if limit == 0 {
		fits = atomic.CompareAndSwapInt64(cell, 0, exclusiveUnit)
	} else {
		n := atomic.AddInt64(cell, 1)
		if fits = n < exclusiveUnit && (limit == lockcore.Unlimited || n <= int64(limit)); !fits {
			atomic.AddInt64(cell, -1)
		}
	}
	if !fits {
		w.violations.Add(1)
	}
	return fits
}

// sinceLast returns the time since its last call for key, in any process; 0 the first time. Only a
// section that is alone in its key may call it.
func (w *witness) sinceLast(key int) time.Duration {
	last := (*int64)(unsafe.Pointer(&w.mem[key*cellSize+8]))
	now := time.Now().UnixNano()
	if before := atomic.SwapInt64(last, now); before > 0 {
		return time.Duration(now - before)
	}
	return 0
}

// leave records that a section of key ends. limit must be that of enter.
func (w *witness) leave(key, limit int) {
	if limit == 0 {
		atomic.AddInt64(w.cell(key), -exclusiveUnit)
		return
	}
	atomic.AddInt64(w.cell(key), -1)
}
