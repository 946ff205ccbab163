package batch

// waitingCalls are the calls that wait for a group.
type waitingCalls struct {
	n      int          // number of calls that have not left
	queues [2]callQueue // releases, other calls
}

func (w *waitingCalls) add(c *call) {
	w.n++
	i := 1
	if c.releases() {
		i = 0
	}
	w.queues[i].push(c)
}

// take moves the calls of the next group to calls, which must be empty. Releases go first.
func (w *waitingCalls) take(calls []*call) []*call {
	for i := range w.queues {
		for q := &w.queues[i]; q.len() > 0 && len(calls) < maxGroup; {
			if c := q.pop(); !c.unsent {
				c.taken = true
				calls = append(calls, c)
			}
		}
	}
	w.n -= len(calls)
	return calls
}

// each calls do for each call in the queues, including those that have left.
func (w *waitingCalls) each(do func(*call)) {
	for _, q := range w.queues {
		for _, c := range q.calls[q.head:] {
			do(c)
		}
	}
}

// callQueue is a FIFO queue.
type callQueue struct {
	calls []*call
	head  int // index of the first call
}

func (q *callQueue) len() int { return len(q.calls) - q.head }

func (q *callQueue) push(c *call) {
	if q.head > maxGroup && q.head > len(q.calls)/2 {
		q.calls = q.calls[:copy(q.calls, q.calls[q.head:])]
		q.head = 0
	}
	q.calls = append(q.calls, c)
}

func (q *callQueue) pop() *call {
	c := q.calls[q.head]
	q.calls[q.head] = nil
	if q.head++; q.head == len(q.calls) {
		q.calls, q.head = q.calls[:0], 0
	}
	return c
}
