package lockcore

import "time"

// scheduled is the part of a grant or of a call that a dueHeap uses.
type scheduled struct {
	due   time.Duration // by the clock of the Locker
	index int32         // place in the heap, from 1; 0: not in the heap
}

func (s *scheduled) schedule() *scheduled { return s }

// dueHeap is a heap of package container/heap, ordered by due.
type dueHeap[T interface{ schedule() *scheduled }] []T

func (d dueHeap[T]) Len() int           { return len(d) }
func (d dueHeap[T]) Less(i, j int) bool { return d[i].schedule().due < d[j].schedule().due }
func (d dueHeap[T]) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].schedule().index, d[j].schedule().index = int32(i+1), int32(j+1)
}

func (d *dueHeap[T]) Push(x any) {
	t := x.(T) //nolint:errcheck,forcetypeassert // the heap holds nothing else
	*d = append(*d, t)
	t.schedule().index = int32(len(*d))
}

func (d *dueHeap[T]) Pop() any {
	last := len(*d) - 1
	t := (*d)[last]
	clear((*d)[last:])
	*d = (*d)[:last]
	t.schedule().index = 0
	return t
}
