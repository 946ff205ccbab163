package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

const cellSize = 64 // a cache line, so that two keys do not disturb each other

// witness sees whether two are ever inside the same key: one cell per key, in memory that all processes map.
type witness struct {
	mem        []byte
	violations atomic.Int64
}

// newWitnessFile makes the memory for n keys.
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

// enter notes that somebody is inside key and says whether they are alone; only then leave may be called.
func (w *witness) enter(key int) (alone bool) {
	if atomic.CompareAndSwapInt64(w.cell(key), 0, 1) {
		return true
	}
	w.violations.Add(1)
	return false
}

func (w *witness) leave(key int) { atomic.StoreInt64(w.cell(key), 0) }
